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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

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
        # when something began, and the field of its turn that it counts for
        self._marks = list[tuple[Any, str]]()
        # of turns, so far: marks, waits, faults, graphs, epochs
        self._ends = list[tuple[int, float, int, int, int]]()
        self._collecting_s = Counter[int]()  # since each mark
        self._watching = False
        self._clock = stopwatch.Clock()
        self._since_s = 0.0
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
        self._ends.append(
            (len(self._marks), self._waited_s, faults, compiled_graphs(), self.epoch)
        )
        self._watching = True
        self.mark("step_s")

    def mark(self, name: str) -> None:
        """From here on, the loop waits for a batch, "input_s", or works, "step_s"."""
        if self._watching:
            if self.on_gpu:
                (event := torch.cuda.Event(enable_timing=True)).record()
            self._marks.append((event if self.on_gpu else perf_counter(), name))
            self.samples.now = len(self._marks) - 1

    def end(self, skip: int = 0) -> None:
        """The last turn ends here; the first ones are left out of `turns`."""
        self.begin()
        self._watching = False
        if self.on_gpu:
            torch.cuda.synchronize()
        lines = defaultdict[int, Lines](Lines)
        for i, place, seconds in self.samples.seen:
            lines[i][place] += seconds  # type: ignore[assignment]  # a Counter of seconds
        for (first, waited_s, faults, graphs, _), (
            last,
            until_s,
            *so_far,
            epoch,
        ) in itertools.pairwise(self._ends):
            self.turns.append(
                step := Step(
                    faults=so_far[0] - faults, graphs=so_far[1] - graphs, epoch=epoch
                )
            )
            for i, (mark, name) in enumerate(self._marks[first:last], first):
                following = self._marks[i + 1][0]
                gc_s = self._collecting_s[i]
                seconds = (
                    1e-3 * mark.elapsed_time(following)
                    if self.on_gpu
                    else following - mark
                )
                setattr(step, name, getattr(step, name) + max(seconds - gc_s, 0.0))
                step.collecting[name] += gc_s
                (step.input_lines if name == "input_s" else step.lines).update(lines[i])
            ran = 1 - min((until_s - waited_s) / max(step.seconds, 1e-12), 1.0)
            step.input_s = ran * step.input_s
            step.step_s = ran * step.step_s
        del self.turns[:skip]

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread or not self._watching:
            return
        if phase == "start":
            self._since_s = perf_counter()
            return
        seconds = perf_counter() - self._since_s
        self._collecting_s[self.samples.now] += seconds  # type: ignore[assignment]  # a Counter of seconds
        if seconds > _LONG_S and (place := place_of(stack_of(sys._getframe().f_back))):
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


def seen(turns: Sequence[Step], collected: Lines, again_s: float | None = None) -> Seen:
    """What several turns show. A slow first epoch counts as if one more, at the later
    ones' speed, followed.

    If only a first one was seen, `again_s`, the seconds of a batch the second time, are
    what a later one would wait.
    """
    seconds_of = dict[str, float]()
    where = dict[str, str]()
    every = 0
    doubt = ""
    all_s = statistics.fmean(
        turn.seconds + sum(turn.collecting.values()) for turn in turns
    )
    notes = [
        f"Watched: {len(turns)} steps, {significant(1 / max(all_s, 1e-9))} a second."
    ]
    first, later = (
        [turn for turn in turns if (turn.epoch > turns[0].epoch) == is_later]
        for is_later in (False, True)
    )
    if not later and again_s is not None and len(first) > 1:
        later = [replace(turn, input_s=min(turn.input_s, again_s)) for turn in first]
        doubt = _ONE_EPOCH
    if len(later) >= len(first) > 1:
        one, other = (
            statistics.median(turn.seconds for turn in some) for some in (first, later)
        )
        if one > _LONG * other + _LONG_S:
            seconds_of[FIRST_EPOCH] = (
                max(_mean(first, "seconds") - _mean(later, "seconds"), 0.0) / 2
            )
            lines = _more(first, later) + _more(first, later, "input_lines")
            where[FIRST_EPOCH] = longest(lines or _lines(first, "input_lines"))
            notes.append(
                f"A batch of the first epoch takes {format_seconds(one)}, later ones"
                f" {format_seconds(other)}."
            )
        elif doubt:
            later = []
            doubt = ""
    turns = later or turns
    base_s = sorted(turn.step_s for turn in turns)[len(turns) // 4]
    unusual = [
        i
        for i, turn in enumerate(turns)
        if turn.step_s > max(_LONG * base_s, base_s + _LONG_S)
    ]
    # half of them, the first or the last one more
    unusual = unusual if 2 * len(unusual) <= len(turns) + 1 else []
    usual = [turn for i, turn in enumerate(turns) if i not in set(unusual)]
    usual_s = _mean(usual, "step_s")
    events = [
        (sum(max(turns[i].step_s - usual_s, 0.0) for i in at), name, place, at)
        for name, place, at in _events(turns, unusual, usual)
    ]
    # what takes longest is named
    for more_s, name, place, at in sorted(events, reverse=True):
        seconds_of[name] = seconds_of.get(name, 0.0) + more_s / len(turns)
        where.setdefault(name, place)
        period = _period(at)
        every = every or period * (name == OCCASIONAL)
        often = (
            f"Every {period} steps" if period else f"In {len(at)} of {len(turns)} steps"
        )
        notes.append(
            f"{often}, {name} takes {format_seconds(more_s / len(at))}"
            f" more{': ' * bool(place)}{place}."
        )
    seconds_of[COLLECTING] = statistics.fmean(
        sum(turn.collecting.values()) for turn in turns
    )
    where[COLLECTING] = longest(collected)
    where |= {
        "step": longest(_lines(usual)),
        "input": longest(_lines(turns, "input_lines")),
    }
    faults = statistics.median(turn.faults for turn in usual)
    collecting_s = statistics.fmean(turn.collecting["step_s"] for turn in usual)
    step_s = max(usual_s, 1e-9)
    input_s = _mean(turns, "input_s")
    return Seen(
        seconds_of,
        input_s,
        step_s,
        where,
        tuple(notes),
        every,
        faults,
        collecting_s,
        doubt,
    )


def _period(at: Sequence[int]) -> int:
    """How many turns lie between two of those at these positions; 0 if that differs, or
    if there are too few.
    """
    steps = [b - a for a, b in itertools.pairwise(at)]
    usual = statistics.mode(steps) if steps else 0
    return usual if usual > 1 and steps.count(usual) > 0.6 * len(steps) else 0


def _events(
    turns: Sequence[Step], unusual: Sequence[int], usual: Sequence[Step]
) -> Iterator[tuple[str, str, list[int]]]:
    """What happens in unusual turns: its name, its line, and in which turns.

    Without a line of its own and without a period, a long turn is chance, and no event.
    """
    at = defaultdict[tuple[str, ...], list[int]](list)
    before = _lines(usual)
    longest_s = max((turns[i].step_s for i in unusual), default=0.0)
    sampled = [i for i in unusual if turns[i].lines] or unusual
    for i in unusual:
        # no sample fell into i
        near = min(
            sampled, key=lambda j: (abs(turns[j].step_s - turns[i].step_s), j != i)
        )
        like = turns[near if turns[near].step_s < 2 * turns[i].step_s else i]
        line, seconds = next(
            iter(_more([like], usual).most_common(1)), (("", "", 0), 0.0)
        )
        new = before[line] < _NEW * seconds * len(usual)
        length = "long" if 3 * turns[i].step_s > longest_s else ""
        kind = line[:2] if new else ("", length)
        if kind[0].endswith(WAITING):
            name = RANKS
        elif turns[i].graphs:
            name = COMPILING
        else:
            name = OCCASIONAL
        at[name, *kind].append(i)
    for (name, function, _), indices in at.items():
        if name == COMPILING or function or (_period(indices) and len(indices) > 2):
            yield (
                name,
                longest(_more([turns[i] for i in indices], usual)) if function else "",
                indices,
            )


def _mean(turns: Sequence[Step], name: str) -> float:
    return float(statistics.mean(getattr(turn, name) for turn in turns))


def _lines(turns: Sequence[Step], kind: str = "lines") -> Lines:
    return sum((getattr(turn, kind) for turn in turns), Lines())


def _more(some: Sequence[Step], others: Sequence[Step], kind: str = "lines") -> Lines:
    """Seconds of each line in a mean turn of `some`, beyond those in
    one of `others`.
    """
    means = [
        Counter({k: s / len(turns) for k, s in _lines(turns, kind).items()})
        for turns in (some, others)
    ]
    return means[0] - means[1]
