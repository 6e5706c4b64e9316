"""Note each turn of a loop at little cost: its seconds, page faults, compiled graphs,
garbage collection, and lines.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch

from steptime.measure import clock
from steptime.measure.operator_hooks import compiled_graphs, compiling_s
from steptime.measure.stack_samples import Lines, StackSamples, place_of, stack_of

LONG_S = 2e-4  # what takes longer has a line


@dataclass
class Turn:
    """One turn of the loop: seconds in which it waits for its batch, and those of the
    step; what else happened in it.

    `faults` are the process's page faults, `graphs` those that torch.compile compiled,
    in `compiling_s` seconds of the step, `epoch` how often the batches began anew.
    `waited_s` are seconds in which it waited for a core, which count in no other.
    `collecting` are seconds of Python's garbage collector, in "input_s" and in
    "step_s", which don't have them. `lines` and `input_lines` are samples of the stack.
    """

    input_s: float = 0.0
    step_s: float = 0.0
    faults: int = 0
    graphs: int = 0
    compiling_s: float = 0.0
    epoch: int = 0
    waited_s: float = 0.0
    collecting: Counter[str] = field(default_factory=Counter)
    lines: Lines = field(default_factory=Counter)
    input_lines: Lines = field(default_factory=Counter)

    @property
    def seconds(self) -> float:
        """Seconds of the turn."""
        return self.input_s + self.step_s


class _Mark(NamedTuple):
    """From `at` on, seconds or an event of the GPU, time counts for this field of the
    turn.
    """

    at: Any
    field: str


class _Counters(NamedTuple):
    """What has been counted as a turn begins."""

    marks: int
    waited_s: float
    faults: int
    graphs: int
    compiling_s: float
    epoch: int


class TurnWatch:
    """Notes each turn of a loop, from `begin`, and by each `mark` whether it waits for
    a batch.

    On a GPU, events on its stream tell the time: input is then what keeps the GPU
    waiting, and what the host does meanwhile takes no time.
    """

    def __init__(self, device: str) -> None:
        self.on_gpu = device != "cpu"
        self.samples = StackSamples()
        self.epoch = 0
        self.collected = Lines()
        self.turns = list[Turn]()
        self.again_s: float | None = None  # of a batch that was loaded before
        self.second_epoch = False  # that one came in a second epoch
        self.too_few = False  # turns for what a loader's workers prepare side by side
        self._marks = list[_Mark]()
        self._begins = list[_Counters]()
        self._collecting_s = Counter[int]()  # since each mark
        self._watching = False
        self._clock = clock.Clock()
        self._collects_since_s = 0.0
        self._waited_s = 0.0
        self._switches = -1
        self._graphs = -1
        self._compiling_s = 0.0
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, samples of the stack are taken, and the garbage collector
        is timed.
        """
        gc.callbacks.append(self._collecting)
        try:
            with self.samples.taken():
                yield
        finally:
            self._watching = False
            gc.callbacks.remove(self._collecting)

    def begin(self) -> None:
        """End the turn before, if there is one, and begin the next."""
        faults, switches = clock.faults_and_switches()
        # who left no core waited for none: spare a system call
        if switches != self._switches and not self.on_gpu:
            self._switches = switches
            self._waited_s = self._clock.waited_s()
        # the sum of all compilations is made anew only where there are new ones
        graphs = compiled_graphs()
        if graphs != self._graphs:
            self._graphs = graphs
            self._compiling_s = compiling_s()
        counters = _Counters(
            len(self._marks),
            self._waited_s,
            faults,
            graphs,
            self._compiling_s,
            self.epoch,
        )
        self._begins.append(counters)
        self._watching = True
        self.mark("step_s")

    def mark(self, name: str) -> None:
        """From here on, the loop waits for a batch, "input_s", or works, "step_s"."""
        if not self._watching:
            return
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(_Mark(event, name))
        else:
            self._marks.append(_Mark(perf_counter(), name))
        self.samples.now = len(self._marks) - 1

    def end(self, skip: int = 0) -> None:
        """The last turn ends here; the first ones are left out of `turns`."""
        self.begin()
        self.finish()
        del self.turns[:skip]

    def finish(self) -> None:
        """Add what was noted to `turns`, but for a turn that didn't end."""
        self._watching = False
        if self.on_gpu:
            torch.cuda.synchronize()
        lines_since = defaultdict[int, Lines](Lines)  # each mark
        for mark, place, seconds in self.samples.seen:
            lines_since[mark][place] += seconds  # type: ignore[assignment]  # a Counter of seconds
        for begin, end in itertools.pairwise(self._begins):
            self.turns.append(self._turn(begin, end, lines_since))
        self._marks.clear()
        self._begins.clear()
        self._collecting_s.clear()
        self.samples.seen.clear()

    def _turn(
        self, begin: _Counters, end: _Counters, lines_since: Mapping[int, Lines]
    ) -> Turn:
        """The turn between two states of the counters."""
        turn = Turn(
            faults=end.faults - begin.faults,
            graphs=end.graphs - begin.graphs,
            compiling_s=end.compiling_s - begin.compiling_s,
            epoch=end.epoch,
        )
        for i in range(begin.marks, end.marks):
            name = self._marks[i].field
            collecting_s = self._collecting_s[i]
            seconds = max(self._seconds_since(i) - collecting_s, 0.0)
            turn.collecting[name] += collecting_s
            if name == "input_s":
                turn.input_s += seconds
                turn.input_lines.update(lines_since[i])
            else:
                turn.step_s += seconds
                turn.lines.update(lines_since[i])
        # a wait for a core is taken from both in proportion
        turn.waited_s = min(end.waited_s - begin.waited_s, turn.seconds)
        ran = 1 - turn.waited_s / max(turn.seconds, 1e-12)
        turn.input_s = ran * turn.input_s
        turn.step_s = ran * turn.step_s
        return turn

    def _seconds_since(self, i: int) -> float:
        """Seconds from a mark to the next."""
        start = self._marks[i].at
        end = self._marks[i + 1].at
        return float(1e-3 * start.elapsed_time(end) if self.on_gpu else end - start)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread or not self._watching:
            return
        if phase == "start":
            self._collects_since_s = perf_counter()
            return
        seconds = perf_counter() - self._collects_since_s
        self._collecting_s[self.samples.now] += seconds  # type: ignore[assignment]  # a Counter of seconds
        if seconds > LONG_S:
            stack = stack_of(sys._getframe().f_back)
            place = place_of(stack, in_script=self.samples.in_script)
            if place is not None:
                self.collected[place] += seconds  # type: ignore[assignment]  # a Counter of seconds
