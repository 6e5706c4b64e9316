"""A zero-bubble schedule for given times and a memory limit, by the heuristic of Qi et
al. 2024, section 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from labkit.core.parameters import Count, NonNegative, Number, Share, checked
from trainplan.errors import ScheduleError
from trainplan.schedule import simulate, zb_h1, zb_h2

KINDS = "FBW"
FORWARD, BACKWARD, WEIGHTS = range(3)
MOST_STEPS = 100_000  # ranks x micro-batches, which are built in a few seconds
Times = NonNegative | Sequence[NonNegative]


@checked(error=ScheduleError)
def zero_bubble(
    ranks: Count,
    microbatches: Count,
    *,
    forward_s: Times = 1.0,
    input_s: Times = 1.0,
    weight_s: Times = 1.0,
    transfer_s: NonNegative = 0.0,
    memory_limit: (
        Annotated[float, Number(least=1, advice="A forward leaves one activation.")]
        | None
    ) = None,
    kept: Share = 1.0,
) -> list[list[str]]:
    """The schedule with separate F, B and W steps that has the shortest period the
    heuristic finds.

    `forward_s`, `input_s` and `weight_s` are the seconds of F, B and W, one number or
    one for each rank; `transfer_s` is the time between two ranks and overlaps with
    compute. No rank holds more than `memory_limit` activations, by default `ranks` of
    them (ZB-1p; twice as many are ZB-2p). B frees all but the share `kept` of one, W
    the rest. Each rank runs forwards until its first backward can begin, then one F and
    one B in turn, and puts W into gaps, or where it needs the memory. Three choices,
    such as whether W may overrun a short gap, are tried in all combinations, and so are
    ZB-H1 and ZB-H2 where the limit allows them. Raises ScheduleError for impossible
    numbers, and for a limit below one activation.
    """
    if ranks * microbatches > MOST_STEPS:
        raise ScheduleError(
            f"Expected ranks x microbatches to be at most {MOST_STEPS:,}, got"
            f" {ranks:,} x {microbatches:,}. Take fewer micro-batches: a schedule"
            " repeats itself."
        )
    limit = float(ranks if memory_limit is None else memory_limit)
    seconds = [
        _per_rank(name, value, ranks)
        for name, value in (
            ("forward_s", forward_s),
            ("input_s", input_s),
            ("weight_s", weight_s),
        )
    ]
    tries = [
        _Builder(seconds, float(transfer_s), microbatches, limit, kept, *flags)
        for flags in itertools.product((True, False), repeat=3)
    ]
    schedules = [(built.period_s, built.steps) for built in tries]
    whole = [i + w for i, w in zip(*seconds[1:], strict=True)]
    for schedule in (zb_h1(ranks, microbatches), zb_h2(ranks, microbatches)):
        played = simulate(
            schedule, seconds[0], whole, seconds[2], transfer_s, kept=kept
        )
        if max(played.peak_activations) <= limit:
            schedules.append((played.period_s, schedule))
    return min(schedules, key=lambda each: each[0])[1]


def _per_rank(name: str, value: Times, ranks: int) -> list[float]:
    """A number for each rank: as given, or the one number."""
    if not isinstance(value, Sequence):
        return [float(value)] * ranks
    if len(value) != ranks:
        raise ScheduleError(
            f"Expected {name} to be one number or {ranks} of them, got {len(value)}."
        )
    return [float(seconds) for seconds in value]


@dataclass
class _Builder:
    """Builds a schedule step by step, on all ranks at once."""

    seconds: list[list[float]]  # by kind of step and rank
    transfer_s: float
    microbatches: int
    limit: float
    kept: float
    early: bool
    patient: bool
    greedy: bool

    def __post_init__(self) -> None:
        # of the activations held, by kind of step
        self.change = (1.0, self.kept - 1.0, -self.kept)
        self.ranks = len(self.seconds[0])
        self.steps: list[list[str]] = [[] for _ in range(self.ranks)]
        self.count = [[0, 0, 0] for _ in range(self.ranks)]
        self.free_s = [0.0] * self.ranks
        self.first_s = [0.0] * self.ranks
        self.held = [0.0] * self.ranks
        self.idle_s = [0.0] * self.ranks
        self.ends: tuple[list[list[float]], ...] = tuple(
            [[] for _ in range(self.ranks)] for _ in range(3)
        )
        self._warm_up()
        for _ in range(1, self.microbatches):
            self._forwards()
            for rank in reversed(range(self.ranks)):
                self._make_room(rank, BACKWARD)
                self._fill(rank, self._arrival(rank, BACKWARD))
                # no rank waits for the first one's backwards
                if rank == 0 and self.count[0][0] == self.microbatches:
                    while self.count[0][2] < self.count[0][1]:
                        self._put(0, WEIGHTS)
                self._put(rank, BACKWARD)
        for rank in range(self.ranks):
            while self.count[rank][2] < self.microbatches:
                self._put(rank, WEIGHTS)
        self.period_s = max(
            end_s - start_s
            for start_s, end_s in zip(self.first_s, self.free_s, strict=True)
        )

    def _arrival(self, rank: int, kind: int) -> float:
        """When the input of a rank's next forward or backward arrives."""
        giver = rank + (1 if kind == BACKWARD else -1)
        if not 0 <= giver < self.ranks:
            return 0.0
        return self.ends[kind][giver][self.count[rank][kind]] + self.transfer_s

    def _put(self, rank: int, kind: int) -> None:
        start_s = self.free_s[rank]
        if kind != WEIGHTS:
            start_s = max(start_s, self._arrival(rank, kind))
        if not self.steps[rank]:
            self.first_s[rank] = start_s
        else:
            self.idle_s[rank] += start_s - self.free_s[rank]
        self.free_s[rank] = start_s + self.seconds[kind][rank]
        self.ends[kind][rank].append(self.free_s[rank])
        self.steps[rank].append(f"{KINDS[kind]}{self.count[rank][kind]}")
        self.count[rank][kind] += 1
        self.held[rank] += self.change[kind]

    def _warm_up(self) -> None:
        """Forwards until the first backward can arrive, within the limit and no more
        than the rank before; then B.
        """
        for rank in range(self.ranks):
            self._put(rank, FORWARD)
        more = [0] * self.ranks
        back_s = self.free_s[-1] + self.seconds[1][-1]
        for rank in reversed(range(self.ranks - 1)):
            forward_s = self.seconds[0][rank]
            busy_s = self.free_s[rank]
            due_s = back_s + self.transfer_s
            while 1 + more[rank] < self.microbatches and 2 + more[rank] <= self.limit:
                if (busy_s + forward_s > due_s) if self.early else (busy_s >= due_s):
                    break
                busy_s += forward_s
                more[rank] += 1
            back_s = max(busy_s, due_s) + self.seconds[1][rank]
        # one less than the rank before, which so has one ready, unless that has all
        for rank in range(1, self.ranks):
            most = (
                more[rank - 1]
                if more[rank - 1] == self.microbatches - 1
                else max(more[rank - 1] - 1, 0)
            )
            more[rank] = min(more[rank], most)
        for rank in range(self.ranks):
            for _ in range(more[rank]):
                self._put(rank, FORWARD)
        for rank in reversed(range(self.ranks)):
            self._put(rank, BACKWARD)

    def _forwards(self) -> None:
        """One forward on each rank that has any left; where patient, a rank may let its
        next backward go first.
        """
        wanted = [
            self.count[rank][0] < self.microbatches
            and not (self.patient and self._better_wait(rank))
            for rank in range(self.ranks)
        ]
        # a rank must stay ahead of the next one
        for rank in reversed(range(self.ranks - 1)):
            ahead = (
                self.count[rank][0] > self.count[rank + 1][0]
                or self.count[rank + 1][0] == self.microbatches
            )
            wanted[rank] = wanted[rank] and (wanted[rank + 1] or not ahead)
        for rank in range(self.ranks):
            if wanted[rank]:
                self._make_room(rank, FORWARD)
                if rank:
                    self._fill(rank, self._arrival(rank, FORWARD))
                self._put(rank, FORWARD)

    def _better_wait(self, rank: int) -> bool:
        """Whether a forward now would delay the next backward, and the rank has idled
        too little to mind the wait.
        """
        if rank + 1 == self.ranks or self.count[rank][0] < self.count[rank + 1][0] + 2:
            return False
        due_s = (
            self.free_s[rank + 1]
            + self.seconds[0][rank + 1]
            + self.seconds[1][rank + 1]
            + self.transfer_s
        )
        if self.free_s[rank] >= due_s:
            return True
        pending = self.count[rank][1] - self.count[rank][2]
        lacking = self.held[rank] + 1 - self.limit
        freed = -self.change[2]
        # how many W must make room before
        first = sum(lacking - n * freed > 1e-9 for n in range(pending))
        if (
            self.free_s[rank] + self.seconds[0][rank] + first * self.seconds[2][rank]
            <= due_s
        ):
            return False
        return due_s - self.free_s[rank] <= max(self.idle_s) - self.idle_s[rank]

    def _make_room(self, rank: int, kind: int) -> None:
        while (
            self.held[rank] + self.change[kind] > self.limit + 1e-9
            and self.count[rank][2] < self.count[rank][1]
        ):
            self._put(rank, WEIGHTS)

    def _fill(self, rank: int, until_s: float) -> None:
        """W steps in the gap before an input arrives; one that overruns the gap only
        where idling would cost more.
        """
        weight_s = self.seconds[2][rank]
        counts = self.count[rank]
        while counts[2] < counts[1] and self.free_s[rank] + weight_s <= until_s:
            self._put(rank, WEIGHTS)
        gap_s = until_s - self.free_s[rank]
        if (
            counts[2] < counts[1]
            and gap_s > 0
            and (self.greedy or gap_s > max(self.idle_s) - self.idle_s[rank])
        ):
            self._put(rank, WEIGHTS)
