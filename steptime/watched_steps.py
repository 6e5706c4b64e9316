"""Watch hundreds of steps of a loop at little cost: how long each takes, and what happens in some of them only."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import statistics
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any

import torch

from steptime.annotations import Batch, Supply
from steptime.budget import Budget
from steptime.parts import COLLECTING, COMPILING, FIRST_EPOCH, OCCASIONAL
from steptime.stack_samples import Lines, StackSamples, longest, place_of
from steptime.stopwatch import page_faults
from steptime.units import format_seconds, significant

_STEPS, _WATCHED = 600, 0.3  # watched at most, and in which share of the budget
_LONG, _LONG_S = 1.5, 2e-4  # a step is unusual that takes so many times as long as others, and so much longer
_NEW = 0.25  # a line is new that usual turns spend less on than this share of what an unusual one does
_FIRST = 1.5  # a first epoch is slow whose median step takes so many times as long as later ones


@dataclass
class Step:
    """One turn of the loop: seconds in which it waits for its batch, and those of the step; what else happened in it.

    `faults` are the process's page faults, `collecting_s` seconds of Python's garbage collector, `graphs` those that
    torch.compile compiled, `epoch` how often the batches began anew. `lines` and `input_lines` are samples of the
    stack, in the step and in the input.
    """

    input_s: float = 0.0
    step_s: float = 0.0
    faults: int = 0
    collecting_s: float = 0.0
    graphs: int = 0
    epoch: int = 0
    lines: dict[tuple[str, str, int], float] = field(default_factory=dict)
    input_lines: dict[tuple[str, str, int], float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of the turn."""
        return self.input_s + self.step_s


class StepWatch:
    """Notes each turn of a loop, from `begin`: what lies between `input_begins` and `input_ends` is input.

    On a CPU, time in which this thread waited for a core doesn't count (Linux). On a GPU, events on its stream tell the
    time: input is then what keeps the GPU waiting, and what the host does meanwhile takes no time.
    """

    def __init__(self, device: str) -> None:
        self.on_gpu = device != "cpu"
        self.samples, self.epoch, self.collected = StackSamples(), 0, defaultdict[tuple[str, str, int], float](float)
        self._marks: list[tuple[list[tuple[Any, str]], Step]] = []
        self._waits: int | None = None
        self._collecting_s = self._since_s = 0.0
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, samples of the stack are taken, and the garbage collector is timed."""
        self._waits = _core_waits()
        gc.callbacks.append(self._collecting)
        try:
            with self.samples.taken():
                yield
        finally:
            gc.callbacks.remove(self._collecting)
            if self._waits is not None:
                os.close(self._waits)
                self._waits = None

    def begin(self) -> None:
        """End the turn before, if there is one, and begin the next."""
        if self._marks:
            self._end()
        self.samples.drop()
        self._collecting_s, self._counts = 0.0, (page_faults(), _graphs())
        self._marks.append(([(self._mark(), "step_s")], Step(epoch=self.epoch)))

    def input_begins(self) -> None:
        """From here on, the loop waits for a batch."""
        self._keep(self._marks[-1][1].lines)
        self._marks[-1][0].append((self._mark(), "input_s"))

    def input_ends(self) -> None:
        """From here on, it works."""
        self._keep(self._marks[-1][1].input_lines)
        self._marks[-1][0].append((self._mark(), "step_s"))
        self._marks[-1][1].epoch = self.epoch

    def end(self) -> list[Step]:
        """The turns; the last of them ends here."""
        self._end()
        if self.on_gpu:
            torch.cuda.synchronize()
        for marks, step in self._marks:
            for (mark, name), (following, _) in itertools.pairwise(marks):
                setattr(step, name, getattr(step, name) + self._between(mark, following))
        return [step for _, step in self._marks]

    def _end(self) -> None:
        marks, step = self._marks[-1]
        marks.append((self._mark(), ""))
        self._keep(step.lines)
        step.collecting_s = self._collecting_s
        step.faults, step.graphs = page_faults() - self._counts[0], _graphs() - self._counts[1]

    def _keep(self, lines: dict[tuple[str, str, int], float]) -> None:
        for (function, file), line, seconds in self.samples.drop():
            lines[function, file, line] = lines.get((function, file, line), 0.0) + seconds

    def _mark(self) -> Any:
        if not self.on_gpu:
            return perf_counter() - self._waited_s()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, mark: Any, following: Any) -> float:
        return 1e-3 * mark.elapsed_time(following) if self.on_gpu else max(following - mark, 0.0)

    def _waited_s(self) -> float:
        """Seconds for which this thread has waited for a core."""
        return 1e-9 * int(os.pread(self._waits, 64, 0).split()[1]) if self._waits is not None else 0.0

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._since_s = thread_time()
            return
        seconds = thread_time() - self._since_s
        self._collecting_s += seconds
        if seconds > _LONG_S and (place := place_of(sys._getframe(1))):
            self.collected[*place[0], place[1]] += seconds


def _core_waits() -> int | None:
    """The file with the nanoseconds that this thread has run and waited for a core; None where there is none."""
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return None


def _graphs() -> int:
    """How many graphs torch.compile has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["stats"]["unique_graphs"] if dynamo is not None else 0


@dataclass(frozen=True)
class Seen:
    """What the turns of a loop show: seconds of a mean turn by what happens in some only, and the rest.

    `input_s` and `step_s` are the rest's. `where` names the line of each. `every` is how many turns lie between two
    with occasional work, 0 if that differs or happens once. `step_faults` are a usual step's page faults, `collecting_s`
    its seconds of garbage collection.
    """

    seconds_of: dict[str, float]
    input_s: float
    step_s: float
    where: dict[str, str]
    evidence: tuple[str, ...]
    every: int = 0
    step_faults: float = 0.0
    collecting_s: float = 0.0


def seen(turns: Sequence[Step], collected: Lines) -> Seen:
    """What several turns show. A slow first epoch counts as if one more, at the later ones' speed, followed."""
    seconds_of, where, evidence = dict[str, float](), dict[str, str](), list[str]()
    first = [turn for turn in turns if turn.epoch == turns[0].epoch]
    later = [turn for turn in turns if turn.epoch > turns[0].epoch]
    turns = later or turns
    if len(later) >= len(first) > 1 and (more_s := _slow(first, later)):
        seconds_of[FIRST_EPOCH] = more_s / 2
        where[FIRST_EPOCH] = longest(_more(first, later, "lines", "input_lines"))[0]
        evidence.append(
            f"In the first epoch, a batch takes {format_seconds(_mean_s(first))}, in later ones "
            f"{format_seconds(_mean_s(later))}."
        )
    base_s = sorted(turn.step_s for turn in turns)[len(turns) // 4]
    unusual = [i for i, turn in enumerate(turns) if turn.step_s > max(_LONG * base_s, base_s + _LONG_S)]
    if 2 * len(unusual) > len(turns):
        unusual = []
    usual = [turn for i, turn in enumerate(turns) if i not in set(unusual)]
    usual_s, every = statistics.mean(turn.step_s for turn in usual), 0
    for name, place, at in _events(turns, unusual, usual):
        more_s = sum(max(turns[i].step_s - usual_s - turns[i].collecting_s, 0.0) for i in at) / len(turns)
        seconds_of[name] = seconds_of.get(name, 0.0) + more_s
        where.setdefault(name, place)
        period = _period(at)
        every = every or period * (name == OCCASIONAL)
        often = f"Every {period} steps" if period else f"In {len(at)} of {len(turns)} steps"
        each_s = format_seconds(more_s * len(turns) / len(at))
        evidence.append(f"{often}, {name} takes {each_s} more{f': {place}' if place else ''}.")
    if any(turn.collecting_s for turn in turns):
        seconds_of[COLLECTING] = statistics.mean(turn.collecting_s for turn in turns)
        where[COLLECTING] = longest(collected)[0]
    where |= {"step": longest(_sum(usual))[0], "input": longest(_sum(turns, "input_lines"))[0]}
    evidence.insert(0, f"Watched: {len(turns)} steps, {significant(1 / max(_mean_s(turns), 1e-9))} a second.")
    collecting_s = statistics.mean(turn.collecting_s for turn in usual)
    return Seen(
        seconds_of,
        input_s=statistics.mean(turn.input_s for turn in turns),
        step_s=max(usual_s - collecting_s, 1e-9),
        collecting_s=collecting_s,
        where=where,
        evidence=tuple(evidence),
        every=every,
        step_faults=statistics.median(turn.faults for turn in usual),
    )


def _period(at: Sequence[int]) -> int:
    """How many turns lie between two of those at these positions; 0 if that differs, or if there are too few."""
    steps = [b - a for a, b in itertools.pairwise(at)]
    usual = statistics.mode(steps) if steps else 0
    return usual if usual > 1 and steps.count(usual) > 0.6 * len(steps) else 0


def _slow(first: Sequence[Step], later: Sequence[Step]) -> float:
    """Seconds that a turn of a slow first epoch takes more; 0 if it isn't slow, or only in some turns."""
    usual_s = statistics.median(turn.seconds for turn in later)
    slow = statistics.median(turn.seconds for turn in first) > _FIRST * usual_s + _LONG_S
    return _mean_s(first) - _mean_s(later) if slow else 0.0


def _events(
    turns: Sequence[Step], unusual: Iterable[int], usual: Sequence[Step]
) -> Iterator[tuple[str, str, list[int]]]:
    """What happens in unusual turns: its name, its line, and in which turns.

    Without a line of its own and without a period, a long turn is chance, and no event.
    """
    at: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    before = _sum(usual)
    for i in unusual:
        more = _more([turns[i]], usual)
        line = max(more, key=lambda each: more[each], default=("", "", 0))
        new = before.get(line, 0.0) / max(len(usual), 1) < _NEW * more.get(line, 0.0)
        at[COMPILING if turns[i].graphs else OCCASIONAL, *(line[:2] if new else ("", ""))].append(i)
    for (name, function, _), indices in sorted(at.items(), key=lambda item: -len(item[1])):
        if name == COMPILING or function or (_period(indices) and len(indices) > 2):
            yield name, longest(_more([turns[i] for i in indices], usual))[0] if function else "", indices


def _sum(turns: Iterable[Step], *kinds: str) -> Lines:
    total = defaultdict[tuple[str, str, int], float](float)
    for turn in turns:
        for kind in kinds or ("lines",):
            for line, seconds in getattr(turn, kind).items():
                total[line] += seconds
    return total


def _more(some: Sequence[Step], others: Sequence[Step], *kinds: str) -> Lines:
    """Seconds of each line in a mean turn of `some`, beyond those in one of `others`."""
    usual = _sum(others, *kinds)
    found = {line: s / len(some) - usual.get(line, 0.0) / len(others) for line, s in _sum(some, *kinds).items()}
    return {line: seconds for line, seconds in found.items() if seconds > 0}


def _mean_s(turns: Iterable[Step]) -> float:
    return statistics.mean(turn.seconds for turn in turns)


def watch_loop(
    step: Callable[[Batch], object], next_batch: Supply, device: str, budget: Budget, workers: int, ready: int
) -> tuple[list[Step], StepWatch]:
    """The turns of a loop, watched for a share of the budget, after those for which batches may have been `ready`.

    Workers load side by side, and deliver side by side: the number of turns is a multiple of theirs.
    """
    watch, turns, n = StepWatch(device), 0, workers

    def turn() -> None:
        watch.begin()
        watch.input_begins()
        batch = next_batch()
        watch.epoch = next_batch.epoch
        watch.input_ends()
        step(batch)

    with watch.watching():
        for _ in range(ready - 1):  # prepared while others ran
            turn()
        start = perf_counter()
        while n:
            for _ in range(n):
                turn()
            turns, taken_s = turns + n, perf_counter() - start
            left_s = _WATCHED * budget.budget_s - taken_s
            more = min(turns, _STEPS - turns, int(left_s / taken_s * turns) if taken_s else turns)
            n = budget.agreed(max(more, 0)) // workers * workers
        return watch.end()[ready - 1 :], watch
