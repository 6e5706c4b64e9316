"""A zero-bubble schedule for times and a memory limit of one's own, by the heuristic of Qi et al. 2024, section 3."""

from __future__ import annotations

import itertools

from labkit.core.arguments import check_number
from labkit.core.errors import ScheduleError
from labkit.plan.schedule.orders import Lists, check_sizes, zb_h1, zb_h2
from labkit.plan.schedule.simulation import Times, check_kept, per_stage, simulate


def zero_bubble(
    ranks: int,
    microbatches: int,
    *,
    forward_s: Times = 1.0,
    input_s: Times = 1.0,
    weight_s: Times = 1.0,
    transfer_s: float = 0.0,
    memory_limit: float | None = None,
    kept: float = 1.0,
) -> Lists:
    """The schedule with F, B and W apart in which a rank's longest time is the shortest that the heuristic finds.

    `forward_s`, `input_s` and `weight_s` are what F, B and W take, a number or one a rank; `transfer_s` passes between
    two ranks and overlaps with compute. No rank holds more than `memory_limit` activations, `ranks` of them if not
    said (ZB-1p; twice as many are ZB-2p); B frees all but the share `kept` of one, W the rest.
    Each rank takes forwards until its first backward can begin, then one F and one B in turn, and puts W into gaps, or
    where it needs the memory. What to do about gaps too short for a W, and the like, is tried in all combinations; so
    are ZB-H1 and ZB-H2, where the limit allows them.
    Raises ScheduleError for impossible numbers, and for a limit below one activation.
    """
    check_sizes(ranks, microbatches)
    check_number("transfer_s", transfer_s, least=0, error=ScheduleError)
    check_kept(kept)
    limit = float(ranks if memory_limit is None else memory_limit)
    check_number("memory_limit", limit, least=1, advice="A forward leaves one activation.", error=ScheduleError)
    seconds = [
        per_stage(name, value, ranks, 1)
        for name, value in (("forward_s", forward_s), ("input_s", input_s), ("weight_s", weight_s))
    ]
    tries = [
        _Built(seconds, float(transfer_s), microbatches, limit, kept, *flags)
        for flags in itertools.product((True, False), repeat=3)
    ]
    found = [(built.period_s, built.steps) for built in tries]
    whole = [i + w for i, w in zip(*seconds[1:], strict=True)]
    for order in (zb_h1(ranks, microbatches), zb_h2(ranks, microbatches)):
        played = simulate(order, seconds[0], whole, seconds[2], transfer_s, kept=kept)
        if max(played.peak_activations) <= limit:
            found.append((played.period_s, order))
    return min(found, key=lambda each: each[0])[1]


class _Built:
    """A schedule in the making, on all ranks at once: F, B and W are kinds 0, 1 and 2."""

    def __init__(
        self,
        seconds: list[list[float]],
        transfer_s: float,
        microbatches: int,
        limit: float,
        kept: float,
        early: bool,
        patient: bool,
        greedy: bool,
    ) -> None:
        self.seconds, self.transfer_s, self.microbatches, self.limit = seconds, transfer_s, microbatches, limit
        self.holds = (1.0, kept - 1.0, -kept)
        self.greedy = greedy
        self.ranks = len(seconds[0])
        self.steps: Lists = [[] for _ in range(self.ranks)]
        self.count = [[0, 0, 0] for _ in range(self.ranks)]
        self.free_s = [0.0] * self.ranks
        self.first_s = [0.0] * self.ranks
        self.held = [0.0] * self.ranks
        self.idle_s = [0.0] * self.ranks
        self.ends: tuple[list[list[float]], ...] = tuple([[] for _ in range(self.ranks)] for _ in range(3))
        self._warm_up(early)
        for _ in range(1, microbatches):
            self._forwards(patient)
            for rank in reversed(range(self.ranks)):
                self._make_room(rank, 1)
                self._fill(rank, self._arrival(rank, 1))
                if rank == 0 and self.count[0][0] == microbatches:  # nobody waits for the first rank's backwards
                    while self.count[0][2] < self.count[0][1]:
                        self._put(0, 2)
                self._put(rank, 1)
        for rank in range(self.ranks):
            while self.count[rank][2] < microbatches:
                self._put(rank, 2)
        self.period_s = max(end_s - start_s for start_s, end_s in zip(self.first_s, self.free_s, strict=True))

    def _arrival(self, rank: int, kind: int) -> float:
        """When the input of a rank's next forward or backward is there."""
        giver = rank + (1 if kind else -1)
        if not 0 <= giver < self.ranks:
            return 0.0
        return self.ends[kind][giver][self.count[rank][kind]] + self.transfer_s

    def _put(self, rank: int, kind: int) -> None:
        start_s = self.free_s[rank]
        if kind != 2:
            start_s = max(start_s, self._arrival(rank, kind))
        if not self.steps[rank]:
            self.first_s[rank] = start_s
        else:
            self.idle_s[rank] += start_s - self.free_s[rank]
        self.free_s[rank] = start_s + self.seconds[kind][rank]
        self.ends[kind][rank].append(self.free_s[rank])
        self.steps[rank].append(f"{'FBW'[kind]}{self.count[rank][kind]}")
        self.count[rank][kind] += 1
        self.held[rank] += self.holds[kind]

    def _warm_up(self, early: bool) -> None:
        """Forwards until the first backward can be there, within the limit and no more than the rank before; then B."""
        for rank in range(self.ranks):
            self._put(rank, 0)
        more, back_s = [0] * self.ranks, self.free_s[-1] + self.seconds[1][-1]
        for rank in reversed(range(self.ranks - 1)):
            forward_s, busy_s, due_s = self.seconds[0][rank], self.free_s[rank], back_s + self.transfer_s
            while 1 + more[rank] < self.microbatches and 2 + more[rank] <= self.limit:
                if (busy_s + forward_s > due_s) if early else (busy_s >= due_s):
                    break
                busy_s += forward_s
                more[rank] += 1
            back_s = max(busy_s, due_s) + self.seconds[1][rank]
        for rank in range(1, self.ranks):  # one less than the rank before, which then has one ready, or all there are
            most = more[rank - 1] if more[rank - 1] == self.microbatches - 1 else max(more[rank - 1] - 1, 0)
            more[rank] = min(more[rank], most)
        for rank in range(self.ranks):
            for _ in range(more[rank]):
                self._put(rank, 0)
        for rank in reversed(range(self.ranks)):
            self._put(rank, 1)

    def _forwards(self, patient: bool) -> None:
        """One forward on each rank that has any left; a patient one lets its next backward go first."""
        wanted = [
            self.count[rank][0] < self.microbatches and not (patient and self._better_wait(rank))
            for rank in range(self.ranks)
        ]
        for rank in reversed(range(self.ranks - 1)):  # a rank must stay ahead of the next one
            ahead = self.count[rank][0] > self.count[rank + 1][0] or self.count[rank + 1][0] == self.microbatches
            wanted[rank] = wanted[rank] and (wanted[rank + 1] or not ahead)
        for rank in range(self.ranks):
            if wanted[rank]:
                self._make_room(rank, 0)
                if rank:
                    self._fill(rank, self._arrival(rank, 0))
                self._put(rank, 0)

    def _better_wait(self, rank: int) -> bool:
        """Whether a forward now would hold up the next backward, which the rank can afford to wait for."""
        if rank + 1 == self.ranks or self.count[rank][0] < self.count[rank + 1][0] + 2:
            return False
        due_s = self.free_s[rank + 1] + self.seconds[0][rank + 1] + self.seconds[1][rank + 1] + self.transfer_s
        if self.free_s[rank] >= due_s:
            return True
        pending = self.count[rank][1] - self.count[rank][2]
        lacking, freed = self.held[rank] + 1 - self.limit, -self.holds[2]
        first = sum(lacking - n * freed > 1e-9 for n in range(pending))  # so many W have to make room before
        if self.free_s[rank] + self.seconds[0][rank] + first * self.seconds[2][rank] <= due_s:
            return False
        return due_s - self.free_s[rank] <= max(self.idle_s) - self.idle_s[rank]

    def _make_room(self, rank: int, kind: int) -> None:
        while self.held[rank] + self.holds[kind] > self.limit + 1e-9 and self.count[rank][2] < self.count[rank][1]:
            self._put(rank, 2)

    def _fill(self, rank: int, until_s: float) -> None:
        """W steps into the gap before an input; one that is longer than the rest of it only where that costs less."""
        weight_s, done = self.seconds[2][rank], self.count[rank]
        while done[2] < done[1] and self.free_s[rank] + weight_s <= until_s:
            self._put(rank, 2)
        gap_s = until_s - self.free_s[rank]
        if done[2] < done[1] and gap_s > 0 and (self.greedy or gap_s > max(self.idle_s) - self.idle_s[rank]):
            self._put(rank, 2)
