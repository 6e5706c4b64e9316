"""Watch hundreds of steps of a loop at little cost: how long each takes, and what
happens in some of them only.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import torch

from steptime import stopwatch
from steptime.parts import COLLECTING, COMPILING, FIRST_EPOCH, OCCASIONAL, RANKS
from steptime.stack_samples import (
    WAITING,
    Lines,
    StackSamples,
    longest,
    place_of,
    stack_of,
)
from steptime.torch_calls import compiled_graphs
from steptime.units import format_seconds, significant

# a step is unusual that takes so many times as long as others, and so much longer
_LONG = 1.5
_LONG_S = 2e-4
_ONE_EPOCH = (
    "only a first epoch was seen: later ones are faster only if what it prepares or"
    " reads stays in memory"
)
# a line is new that usual turns spend less on than this share of what an unusual one
# does
_NEW = 0.25
_NOWHERE = ("", "", 0)  # in place of a line


@dataclass
class Step:
    """One turn of the loop: seconds in which it waits for its batch, and those of the
    step; what else happened in it.

    `faults` are the process's page faults, `graphs` those that torch.compile compiled,
    `epoch` how often the batches began anew. `collecting` are seconds of Python's
    garbage collector, in "input_s" and in "step_s", which don't have them. `lines` and
    `input_lines` are samples of the stack.
    """

    input_s: float = 0.0
    step_s: float = 0.0
    faults: int = 0
    graphs: int = 0
    epoch: int = 0
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
    epoch: int


class StepWatch:
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
        self.turns = list[Step]()
        self.again_s: float | None = None  # of a batch that was loaded before
        self._marks = list[_Mark]()
        self._begins = list[_Counters]()
        self._collecting_s = Counter[int]()  # since each mark
        self._watching = False
        self._clock = stopwatch.Clock()
        self._collects_since_s = 0.0
        self._waited_s = 0.0
        self._switches = -1
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
        faults, switches = stopwatch.faults_and_switches()
        # who left no core waited for none: spare a system call
        if switches != self._switches and not self.on_gpu:
            self._switches = switches
            self._waited_s = self._clock.waited_s()
        counters = _Counters(
            len(self._marks), self._waited_s, faults, compiled_graphs(), self.epoch
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
        self._watching = False
        if self.on_gpu:
            torch.cuda.synchronize()
        lines_since = defaultdict[int, Lines](Lines)  # each mark
        for mark, place, seconds in self.samples.seen:
            lines_since[mark][place] += seconds  # type: ignore[assignment]  # a Counter of seconds
        for begin, end in itertools.pairwise(self._begins):
            self.turns.append(self._turn(begin, end, lines_since))
        del self.turns[:skip]

    def _turn(
        self, begin: _Counters, end: _Counters, lines_since: Mapping[int, Lines]
    ) -> Step:
        """The turn between two states of the counters."""
        step = Step(
            faults=end.faults - begin.faults,
            graphs=end.graphs - begin.graphs,
            epoch=end.epoch,
        )
        for i in range(begin.marks, end.marks):
            name = self._marks[i].field
            collecting_s = self._collecting_s[i]
            seconds = max(self._seconds_since(i) - collecting_s, 0.0)
            step.collecting[name] += collecting_s
            if name == "input_s":
                step.input_s += seconds
                step.input_lines.update(lines_since[i])
            else:
                step.step_s += seconds
                step.lines.update(lines_since[i])
        # a wait for a core is taken from both in proportion
        waited_s = end.waited_s - begin.waited_s
        ran = 1 - min(waited_s / max(step.seconds, 1e-12), 1.0)
        step.input_s = ran * step.input_s
        step.step_s = ran * step.step_s
        return step

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
        if seconds > _LONG_S:
            place = place_of(stack_of(sys._getframe().f_back))
            if place is not None:
                self.collected[place] += seconds  # type: ignore[assignment]  # a Counter of seconds


@dataclass(frozen=True)
class Seen:
    """What the turns of a loop show: seconds of a mean turn by what happens in some
    only, and the rest.

    `input_s` and `step_s` are the rest's. `where` names the line of each. `every` is
    how many turns lie between two with occasional work, 0 if that differs or happens
    once. Of a usual step, `step_faults` are the page faults, and `collecting_s` the
    seconds of garbage collection.
    """

    seconds_of: dict[str, float]
    input_s: float
    step_s: float
    where: dict[str, str]
    evidence: tuple[str, ...]
    every: int = 0
    step_faults: float = 0.0
    collecting_s: float = 0.0
    doubt: str = ""  # of the first epoch's share


class _SlowFirstEpoch(NamedTuple):
    """Seconds of a mean turn, the line and a sentence."""

    share_s: float
    place: str
    words: str


class _Event(NamedTuple):
    """What happens in the turns at `indices` only, and takes `more_s` more seconds in
    all than as many usual turns; `place` is its line.
    """

    more_s: float
    name: str
    place: str
    indices: list[int]


def seen(turns: Sequence[Step], collected: Lines, again_s: float | None = None) -> Seen:
    """What several turns show. A slow first epoch counts as if one more, at the later
    ones' speed, followed.

    If only a first one was seen, `again_s`, the seconds of a batch the second time, are
    what a later one would wait.
    """
    mean_s = statistics.fmean(turn.seconds + _collecting_s(turn) for turn in turns)
    rate = significant(1 / max(mean_s, 1e-9))
    evidence = [f"Watched: {len(turns)} steps, {rate} a second."]
    seconds_of = dict[str, float]()
    where = dict[str, str]()
    doubt = ""

    first = [turn for turn in turns if turn.epoch <= turns[0].epoch]
    later = [turn for turn in turns if turn.epoch > turns[0].epoch]
    assumed = list[Step]()
    if not later and again_s is not None:
        assumed = [replace(turn, input_s=min(turn.input_s, again_s)) for turn in first]
    slow = _slow_first_epoch(first, later or assumed)
    if slow is not None:
        seconds_of[FIRST_EPOCH] = slow.share_s
        where[FIRST_EPOCH] = slow.place
        evidence.append(slow.words)
        doubt = _ONE_EPOCH if assumed else ""
        later = later or assumed
    turns = later or turns

    unusual = _unusual(turns)
    usual = [turn for i, turn in enumerate(turns) if i not in set(unusual)]
    every = 0
    # what takes longest is named
    for event in sorted(_events(turns, unusual, usual), reverse=True):
        share_s = event.more_s / len(turns)
        seconds_of[event.name] = seconds_of.get(event.name, 0.0) + share_s
        where.setdefault(event.name, event.place)
        if event.name == OCCASIONAL and not every:
            every = _period(event.indices)
        evidence.append(_sentence(event, len(turns)))

    seconds_of[COLLECTING] = statistics.fmean(map(_collecting_s, turns))
    where[COLLECTING] = longest(collected)
    where["step"] = longest(_total(turn.lines for turn in usual))
    where["input"] = longest(_total(turn.input_lines for turn in turns))
    return Seen(
        seconds_of,
        input_s=statistics.mean(turn.input_s for turn in turns),
        step_s=max(statistics.mean(turn.step_s for turn in usual), 1e-9),
        where=where,
        evidence=tuple(evidence),
        every=every,
        step_faults=statistics.median(turn.faults for turn in usual),
        collecting_s=statistics.fmean(turn.collecting["step_s"] for turn in usual),
        doubt=doubt,
    )


def _collecting_s(turn: Step) -> float:
    return sum(turn.collecting.values())


def _slow_first_epoch(
    first: Sequence[Step], later: Sequence[Step]
) -> _SlowFirstEpoch | None:
    """How much slower the first epoch was; None if it wasn't, or if too few turns say
    so.
    """
    if len(first) < 2 or len(later) < len(first):
        return None
    first_s = statistics.median(turn.seconds for turn in first)
    later_s = statistics.median(turn.seconds for turn in later)
    if first_s <= _LONG * later_s + _LONG_S:
        return None
    more_s = statistics.mean(turn.seconds for turn in first)
    more_s -= statistics.mean(turn.seconds for turn in later)
    words = (
        f"A batch of the first epoch takes {format_seconds(first_s)}, later ones"
        f" {format_seconds(later_s)}."
    )
    place = _place_of_first_epoch(first, later)
    return _SlowFirstEpoch(max(more_s, 0.0) / 2, place, words)


def _place_of_first_epoch(first: Sequence[Step], later: Sequence[Step]) -> str:
    """The line on which the first epoch spends more time than later ones."""
    lines = _mean_lines(turn.lines for turn in first)
    lines -= _mean_lines(turn.lines for turn in later)
    input_lines = _mean_lines(turn.input_lines for turn in first)
    input_lines -= _mean_lines(turn.input_lines for turn in later)
    more = lines + input_lines
    return longest(more or _total(turn.input_lines for turn in first))


def _unusual(turns: Sequence[Step]) -> list[int]:
    """Which turns take longer than most; none if that is more than half of them."""
    base_s = sorted(turn.step_s for turn in turns)[len(turns) // 4]
    limit_s = max(_LONG * base_s, base_s + _LONG_S)
    unusual = [i for i, turn in enumerate(turns) if turn.step_s > limit_s]
    # of every second turn, the first and the last may both be unusual
    return unusual if 2 * len(unusual) <= len(turns) + 1 else []


def _sentence(event: _Event, turns: int) -> str:
    period = _period(event.indices)
    n = len(event.indices)
    often = f"Every {period} steps" if period else f"In {n} of {turns} steps"
    more = format_seconds(event.more_s / n)
    place = f": {event.place}" if event.place else ""
    return f"{often}, {event.name} takes {more} more{place}."


def _period(indices: Sequence[int]) -> int:
    """How many turns lie between two of those at these positions; 0 if that differs, or
    if there are too few.
    """
    distances = [after - before for before, after in itertools.pairwise(indices)]
    usual = statistics.mode(distances) if distances else 0
    return usual if usual > 1 and distances.count(usual) > 0.6 * len(distances) else 0


def _events(
    turns: Sequence[Step], unusual: Sequence[int], usual: Sequence[Step]
) -> Iterator[_Event]:
    """What happens in unusual turns.

    Without a line of its own and without a period, a long turn is chance, and no event.
    """
    usual_s = statistics.mean(turn.step_s for turn in usual)
    usual_lines = _mean_lines(turn.lines for turn in usual)
    longest_s = max((turns[i].step_s for i in unusual), default=0.0)
    # by name, by function and file, and, without these, by length
    groups = defaultdict[tuple[str, str, str, str], list[int]](list)
    for i in unusual:
        more = turns[_sampled_like(i, turns, unusual)].lines - usual_lines
        function, file, line = max(
            more, key=lambda place: more[place], default=_NOWHERE
        )
        seconds = more[function, file, line]
        length = ""
        if usual_lines[function, file, line] >= _NEW * seconds:
            function = file = ""
            length = "long" if 3 * turns[i].step_s > longest_s else "short"
        if function.endswith(WAITING):
            name = RANKS
        elif turns[i].graphs:
            name = COMPILING
        else:
            name = OCCASIONAL
        groups[name, function, file, length].append(i)
    for (name, function, *_), indices in groups.items():
        periodic = len(indices) > 2 and _period(indices)
        if name != COMPILING and not function and not periodic:
            continue
        more_s = sum(max(turns[i].step_s - usual_s, 0.0) for i in indices)
        lines = _mean_lines(turns[i].lines for i in indices) - usual_lines
        yield _Event(more_s, name, longest(lines) if function else "", indices)


def _sampled_like(i: int, turns: Sequence[Step], unusual: Sequence[int]) -> int:
    """Of the unusual turns into which a sample of the stack fell, the one whose length
    is nearest to that of `i`; `i` itself if that one is twice as long.
    """
    sampled = [j for j in unusual if turns[j].lines] or unusual

    def difference(j: int) -> tuple[float, bool]:
        return abs(turns[j].step_s - turns[i].step_s), j != i

    nearest = min(sampled, key=difference)
    return nearest if turns[nearest].step_s < 2 * turns[i].step_s else i


def _total(turns_lines: Iterable[Lines]) -> Lines:
    return sum(turns_lines, Lines())


def _mean_lines(turns_lines: Iterable[Lines]) -> Lines:
    """Seconds of each line in a mean turn."""
    turns_lines = list(turns_lines)
    total = _total(turns_lines)
    return Counter({place: s / len(turns_lines) for place, s in total.items()})
