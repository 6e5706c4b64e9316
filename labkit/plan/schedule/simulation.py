"""Play a schedule: when each step begins and ends, given how long it takes and how long its inputs travel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.core.arguments import check_number
from labkit.core.display import brief_repr
from labkit.core.errors import ScheduleError
from labkit.core.spans import Span
from labkit.plan.schedule.actions import BACKWARD, FORWARD, WEIGHTS, Order, Plan, read
from labkit.plan.schedule.timetable import Simulated

Times = float | Sequence[float]


def simulate(
    order: Order,
    forward_s: Times = 1.0,
    backward_s: Times = 2.0,
    weight_s: Times | None = None,
    transfer_s: Times = 0.0,
    activation: Times = 1.0,
    *,
    kept: float = 1.0,
    blocking: bool = False,
) -> Simulated:
    """Play a schedule, a list of steps for each rank: "F0", "B0", "W0", or "F0.1" with the chunk behind the dot.

    A step begins when its rank is free and its input has arrived. Times are in seconds for one micro-batch:
    `backward_s` is the whole backward, `weight_s` the part of it that a "W" takes (half, if not said). A number, or a
    number a rank, is for all chunks of a rank together; a number a stage is for each. `transfer_s` is from a stage to
    the next or back, one for all or one a link. Transfers take no rank's time; with `blocking`, each takes its
    sender's and its receiver's, and is buffered, so that neither waits for the other to be ready.

    `activation` is what a forward leaves behind (per rank or stage); B frees all of it, or where there are W steps all
    but the share `kept`, which W frees. Chunk c of rank r is stage c * ranks + r, as in Megatron-LM.
    Raises ScheduleError for ranks that wait for each other in a circle, an impossible order, or impossible times.
    """
    plan = read(order)
    whole = per_stage("backward_s", backward_s, plan.ranks, plan.chunks)
    half = [t / 2 for t in whole] if weight_s is None else per_stage("weight_s", weight_s, plan.ranks, plan.chunks)
    for stage, (all_s, part_s) in enumerate(zip(whole, half, strict=True)):
        if plan.split and part_s > all_s:
            raise ScheduleError(
                f"Expected weight_s to be a part of backward_s, got {part_s:g} of {all_s:g} s on stage {stage}. "
                "backward_s is the whole backward, of inputs and weights."
            )
    inputs = [a - w for a, w in zip(whole, half, strict=True)] if plan.split else whole
    seconds = [per_stage("forward_s", forward_s, plan.ranks, plan.chunks), inputs, half]
    played = _Played(plan, seconds, _links(transfer_s, plan), blocking)
    held = per_stage("activation", activation, plan.ranks, plan.chunks)
    check_kept(kept)
    return Simulated(
        plan.ranks,
        plan.microbatches,
        plan.chunks,
        tuple(map(tuple, played.starts)),
        tuple(map(tuple, played.ends)),
        tuple(_peak(plan, rank, held, kept) for rank in range(plan.ranks)),
        plan,
        tuple(played.communication),
    )


def check_kept(kept: float) -> None:
    """ScheduleError unless it is a share, 0 to 1."""
    check_number("kept", kept, least=0, error=ScheduleError)
    if kept > 1:
        raise ScheduleError(f"Expected kept to be a share of an activation, 0 to 1, got {brief_repr(kept)}.")


def per_stage(name: str, value: Times, ranks: int, chunks: int) -> list[float]:
    """A number for each stage: given so, or the number of a rank divided among its chunks."""
    stages = ranks * chunks
    values: Any = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(values, Sequence) and not isinstance(values, str):
        for item in values:
            check_number(f"every number in {name}", item, least=0, error=ScheduleError)
        if len(values) == stages:
            return [float(v) for v in values]
        if len(values) == ranks:
            return [float(values[stage % ranks]) / chunks for stage in range(stages)]
        counts = f"{ranks}" if chunks == 1 else f"{ranks} (one a rank) or {stages} (one a stage)"
        raise ScheduleError(f"Expected {name} to be one number or {counts} of them, got {len(values)}.")
    check_number(name, values, least=0, error=ScheduleError)
    return [float(values) / chunks] * stages


def _links(value: Times, plan: Plan) -> list[float]:
    """Seconds from each stage to the next; nothing for two stages on one rank."""
    links = plan.stages - 1
    values: Any = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(values, Sequence):
        check_number("transfer_s", values, least=0, error=ScheduleError)
        return [0.0 if plan.ranks == 1 else float(values)] * links
    if isinstance(values, str) or len(values) != links:
        raise ScheduleError(
            f"Expected transfer_s to be one number or {links}, one for each link between the {plan.stages} stages, "
            f"got {brief_repr(value)}."
        )
    for item in values:
        check_number("every number in transfer_s", item, least=0, error=ScheduleError)
    return [float(v) for v in values]


class _Move(NamedTuple):
    """How a kind of step on a stage gets its input and hands on its output; places are -1 where there is none."""

    here: int  # place of the input of micro-batch 0
    link_in_s: float
    took_s: float
    there: int  # place of the output, where the next stage's step looks for its input
    link_out_s: float


def _moves(plan: Plan, rank: int, seconds: list[list[float]], links: list[float]) -> list[_Move]:
    """The moves of a rank, by 3 * chunk + kind."""
    found, wide = [], 3 * plan.microbatches
    for stage in range(rank, plan.stages, plan.ranks):
        for kind, towards in ((FORWARD, 1), (BACKWARD, -1), (WEIGHTS, 0)):
            giver, taker = stage - towards, stage + towards
            has_giver, has_taker = (towards and 0 <= other < plan.stages for other in (giver, taker))
            found.append(
                _Move(
                    stage * wide if has_giver else -1,
                    links[min(giver, stage)] if has_giver else 0.0,
                    seconds[kind][stage],
                    taker * wide if has_taker else -1,
                    links[min(taker, stage)] if has_taker else 0.0,
                )
            )
    return found


class _Played:
    """The simulation: each rank runs on until an input is missing, and is woken by the rank that makes it."""

    def __init__(self, plan: Plan, seconds: list[list[float]], links: list[float], blocking: bool) -> None:
        self.plan, self.blocking = plan, blocking
        self.starts: list[list[float]] = [[] for _ in range(plan.ranks)]
        self.ends: list[list[float]] = [[] for _ in range(plan.ranks)]
        self.communication: list[Span] = []
        self._free = [0.0] * plan.ranks
        self._moves = [_moves(plan, rank, seconds, links) for rank in range(plan.ranks)]
        # When an input is there, by the step that needs it: stage * 3 * micro-batches + 3 * micro-batch + kind.
        self._inputs: list[float | None] = [None] * (3 * plan.microbatches * plan.stages)
        self._waiting: dict[int, int] = {}
        ready = list(range(plan.ranks))
        while ready:
            self._run(ready.pop(), ready)
        if self._waiting:
            raise ScheduleError(self._circle())

    def _run(self, rank: int, ready: list[int]) -> None:
        """Do a rank's steps until one lacks its input; ranks that get theirs from here join `ready`."""
        inputs, waiting, moves, blocking = self._inputs, self._waiting, self._moves[rank], self.blocking
        starts, ends, free_s = self.starts[rank], self.ends[rank], self._free[rank]
        wide = 3 * self.plan.microbatches
        for code in itertools.islice(self.plan.steps[rank], len(starts), None):
            rest = code % wide
            here, link_in_s, took_s, there, link_out_s = moves[code // wide * 3 + rest % 3]
            if here >= 0:
                here_s = inputs[here + rest]
                if here_s is None:
                    waiting[here + rest] = rank
                    break
                if blocking:
                    free_s = self._received(rank, free_s, here_s, link_in_s, code)
                elif here_s > free_s:
                    free_s = here_s
            starts.append(free_s)
            free_s += took_s
            ends.append(free_s)
            if there >= 0:
                inputs[there + rest] = sent_s = free_s + link_out_s
                if blocking and link_out_s:
                    name = f"send {self.plan.name(code)}"
                    self.communication.append(Span(rank, free_s, sent_s, "communication", name))
                    free_s = sent_s
                if there + rest in waiting:
                    ready.append(waiting.pop(there + rest))
        self._free[rank] = free_s

    def _received(self, rank: int, free_s: float, here_s: float, link_s: float, code: int) -> float:
        """When a blocking receive is over: it takes as long as the sending did, and begins no earlier."""
        begin_s = max(free_s, here_s - link_s)
        if link_s:
            name = f"receive for {self.plan.name(code)}"
            self.communication.append(Span(rank, begin_s, begin_s + link_s, "communication", name))
        return begin_s + link_s

    def _circle(self) -> str:
        """Which ranks wait for each other, in words."""
        plan, wide = self.plan, 3 * self.plan.microbatches
        waits: dict[int, tuple[str, int]] = {}
        for slot, rank in self._waiting.items():
            stage, rest = divmod(slot, wide)
            giver = stage - 1 if rest % 3 == FORWARD else stage + 1
            waits[rank] = (plan.name(stage // plan.ranks * wide + rest), giver % plan.ranks)
        path = [min(waits)]
        while (giver := waits[path[-1]][1]) not in path:
            path.append(giver)
        circle = path[path.index(giver) :]
        whom = {rank: "itself" if waits[rank][1] == rank else f"rank {waits[rank][1]}" for rank in circle}
        links = [f"waits at {waits[rank][0]} for {whom[rank]}" for rank in circle]
        first = f"rank {circle[0]} {links[0]}" + "".join(f", which {link}" for link in links[1:])
        return f"The schedule deadlocks: {first}. Put what is waited for in front of one of these steps."


def _peak(plan: Plan, rank: int, held: list[float], kept: float) -> float:
    """The most that a rank holds at once; its steps run one after another, so that their times don't matter."""
    now, peak, wide = 0.0, 0.0, 3 * plan.microbatches
    frees = (1 - kept, kept) if plan.split else (1.0, 0.0)
    changes = [size * by for size in held[rank :: plan.ranks] for by in (1.0, -frees[0], -frees[1])]
    for code in plan.steps[rank]:
        now += changes[code // wide * 3 + code % 3]
        if now > peak:
            peak = now
    return peak
