"""Simulate a schedule: when each step begins and ends, from the times of steps and of
transfers between stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from trainplan.arguments import NonNegative, Share, checked
from trainplan.errors import ScheduleError
from trainplan.schedule.parsing import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    CheckedSchedule,
    Placement,
    Schedule,
    parse,
)
from trainplan.schedule.timetable import ScheduleSpan, Timetable

Times = NonNegative | Sequence[NonNegative]


@checked
def simulate(
    schedule: Schedule,
    forward_s: Times = 1.0,
    backward_s: Times = 2.0,
    weight_s: Times | None = None,
    transfer_s: NonNegative = 0.0,
    *,
    kept: Share = 1.0,
    blocking: bool = False,
    placement: Placement = "loop",
) -> Timetable:
    """The Timetable of a schedule, a list of steps for each rank: "F0", "B0", "W0", or
    "F0.1" with the chunk last.

    A step begins when its rank is free and its input has arrived. Times are in seconds
    for one micro-batch: `backward_s` is the whole backward, `weight_s` the part of it
    that a "W" takes (by default half). One number, or one for each rank, is divided
    among the chunks of a rank; one for each stage is not. `transfer_s` is the time
    between neighboring stages on different ranks, in either direction. Transfers
    overlap with compute; with `blocking`, each takes its sender's and its receiver's
    time, and is buffered, so that neither waits for the other.

    A forward keeps an activation, of which each chunk has its part. B frees all of it
    or, where there are W steps, all but the share `kept`, which W frees. `placement`
    says which stage chunk c of rank r is: "loop", number c * ranks + r, as in
    Megatron-LM; "v", where odd chunks run back from the last rank to the first; "both
    ways", where each chunk is a pipeline of its own with its own micro-batches, odd
    ones running back, and a rank's times are those of one chunk (DualPipe). Raises
    ScheduleError for ranks that wait for each other in a circle and an impossible
    order, ValueError for impossible times.
    """
    checked = parse(schedule, placement)
    owners = [checked.rank(stage) for stage in range(checked.stages)]
    forward = per_stage("forward_s", forward_s, owners, checked.parts)
    backward = per_stage("backward_s", backward_s, owners, checked.parts)
    if weight_s is None:
        weights = [seconds / 2 for seconds in backward]
    else:
        weights = per_stage("weight_s", weight_s, owners, checked.parts)
    if checked.split:
        backward = _without(weights, backward)
    simulation = _Simulation(
        checked, [forward, backward, weights], float(transfer_s), blocking
    )
    return Timetable(
        checked,
        tuple(map(tuple, simulation.starts)),
        tuple(map(tuple, simulation.ends)),
        tuple(_peak(checked, rank, kept) for rank in range(checked.ranks)),
        tuple(simulation.communication),
    )


def _without(weights: list[float], backward: list[float]) -> list[float]:
    """What is left of the backward of each stage without that of the weights."""
    for stage, (all_s, part_s) in enumerate(zip(backward, weights, strict=True)):
        if part_s > all_s:
            raise ValueError(
                f"Expected weight_s to be a part of backward_s, got {part_s:g} of"
                f" {all_s:g} s on stage {stage}. backward_s is the whole backward, of"
                " inputs and weights."
            )
    return [all_s - part_s for all_s, part_s in zip(backward, weights, strict=True)]


def per_stage(
    name: str, value: Times, owners: Sequence[int], parts: int = 1
) -> list[float]:
    """A number for each stage: as given, or that of its owner, a rank, divided by
    `parts`. Raises ValueError.
    """
    ranks = max(owners) + 1
    stages = len(owners)
    if not isinstance(value, Sequence):
        return [float(value) / parts] * stages
    if len(value) == ranks:
        return [float(value[rank]) / parts for rank in owners]
    if len(value) == stages:
        return [float(seconds) for seconds in value]
    counts = f"{ranks}"
    if ranks != stages:
        counts = f"{ranks} (one a rank) or {stages} (one a stage)"
    raise ValueError(
        f"Expected {name} to be one number or {counts} of them, got {len(value)}."
    )


class _StepKind(NamedTuple):
    """One kind of step on one stage: where its input arrives, what it takes, where its
    output goes; -1 is nowhere.
    """

    input_slot: int  # of micro-batch 0, in _Simulation._inputs
    received_s: float  # what the input's transfer takes
    took_s: float
    output_slot: int  # the input slot of the step that needs the output
    sent_s: float


def _step_kinds(
    checked: CheckedSchedule, rank: int, seconds: list[list[float]], transfer_s: float
) -> list[_StepKind]:
    """The kinds of steps of a rank, by 3 * chunk + kind."""
    wide = 3 * checked.microbatches

    def slot_and_time(stage: int | None, slot_stage: int | None) -> tuple[int, float]:
        """The slot of `slot_stage`, and the transfer's time between this rank and that
        of `stage`.
        """
        if stage is None or slot_stage is None:
            return -1, 0.0
        return slot_stage * wide, transfer_s if checked.rank(stage) != rank else 0.0

    kinds = []
    for chunk in range(checked.chunks):
        stage = checked.stage(rank, chunk)
        for kind, towards in ((FORWARD, 1), (BACKWARD, -1)):
            giver = checked.neighbor(stage, -towards)
            taker = checked.neighbor(stage, towards)
            took_s = seconds[kind][stage]
            received = slot_and_time(giver, stage)
            sent = slot_and_time(taker, taker)
            kinds.append(_StepKind(*received, took_s, *sent))
        kinds.append(_StepKind(-1, 0.0, seconds[WEIGHTS][stage], -1, 0.0))
    return kinds


class _Simulation:
    """Runs each rank until an input is missing; the rank that makes this input wakes
    it.
    """

    def __init__(
        self,
        checked: CheckedSchedule,
        seconds: list[list[float]],
        transfer_s: float,
        blocking: bool,
    ) -> None:
        self.checked = checked
        self.blocking = blocking
        self.starts: list[list[float]] = [[] for _ in range(checked.ranks)]
        self.ends: list[list[float]] = [[] for _ in range(checked.ranks)]
        self.communication: list[ScheduleSpan] = []
        self._free = [0.0] * checked.ranks
        self._kinds = [
            _step_kinds(checked, rank, seconds, transfer_s)
            for rank in range(checked.ranks)
        ]
        # when an input arrives, by the step that needs it: stage * 3 * microbatches + 3
        # * micro-batch + kind
        self._inputs: list[float | None] = [None] * (
            3 * checked.microbatches * checked.stages
        )
        self._waiting: dict[int, int] = {}
        ready = list(range(checked.ranks))
        while ready:
            self._run(ready.pop(), ready)
        if self._waiting:
            raise ScheduleError(self._circle())

    def _run(self, rank: int, ready: list[int]) -> None:
        """Do a rank's steps until one lacks its input; ranks that get the input they
        wait for join `ready`.
        """
        # local names: this loop runs once for each of perhaps 100,000 steps
        inputs = self._inputs
        waiting = self._waiting
        kinds = self._kinds[rank]
        blocking = self.blocking
        starts = self.starts[rank]
        ends = self.ends[rank]
        free_s = self._free[rank]
        wide = 3 * self.checked.microbatches
        for code in itertools.islice(self.checked.steps[rank], len(starts), None):
            rest = code % wide
            input_slot, received_s, took_s, output_slot, sent_s = kinds[
                code // wide * 3 + rest % 3
            ]
            if input_slot >= 0:
                arrival_s = inputs[input_slot + rest]
                if arrival_s is None:
                    waiting[input_slot + rest] = rank
                    break
                if blocking and received_s:
                    free_s = self._received(rank, free_s, arrival_s, received_s, code)
                elif arrival_s > free_s:
                    free_s = arrival_s
            starts.append(free_s)
            free_s += took_s
            ends.append(free_s)
            if output_slot >= 0:
                inputs[output_slot + rest] = free_s + sent_s
                if blocking and sent_s:
                    name = f"send {self.checked.name(code)}"
                    self.communication.append(
                        ScheduleSpan(
                            rank, free_s, free_s + sent_s, "communication", name
                        )
                    )
                    free_s += sent_s
                if output_slot + rest in waiting:
                    ready.append(waiting.pop(output_slot + rest))
        self._free[rank] = free_s

    def _received(
        self, rank: int, free_s: float, arrival_s: float, took_s: float, code: int
    ) -> float:
        """When a blocking receive ends; it takes as long as the send, and begins no
        earlier.
        """
        begin_s = max(free_s, arrival_s - took_s)
        name = f"receive for {self.checked.name(code)}"
        self.communication.append(
            ScheduleSpan(rank, begin_s, begin_s + took_s, "communication", name)
        )
        return begin_s + took_s

    def _circle(self) -> str:
        """The message that names the ranks which wait for each other."""
        checked = self.checked
        wide = 3 * checked.microbatches
        step_of: dict[int, str] = {}  # at which a rank waits
        giver_of: dict[int, int] = {}  # for which rank
        for slot, rank in self._waiting.items():
            stage, rest = divmod(slot, wide)
            giver_of[rank] = checked.rank(
                stage - 1 if rest % 3 == FORWARD else stage + 1
            )
            step_of[rank] = checked.name(stage // checked.ranks * wide + rest)
        path = []
        rank = min(giver_of)
        while rank not in path:
            path.append(rank)
            rank = giver_of[rank]
        circle = path[path.index(rank) :]
        links = []
        for rank in circle:
            giver = giver_of[rank]
            whom = "itself" if giver == rank else f"rank {giver}"
            links.append(f"waits at {step_of[rank]} for {whom}")
        chain = ", which ".join(links)
        return (
            f"The schedule deadlocks: rank {circle[0]} {chain}. Put what is waited for"
            " in front of one of these steps."
        )


def _peak(checked: CheckedSchedule, rank: int, kept: float) -> float:
    """The most activations a rank holds at once. Its steps run one after another, so
    their times don't matter.
    """
    now = peak = 0.0
    parts = checked.parts
    left = kept if checked.split else 0.0  # what B leaves to W
    changes = (1 / parts, -(1 - left) / parts, -left / parts)  # by kind
    for code in checked.steps[rank]:
        now += changes[code % 3]
        if now > peak:  # faster than max() in this loop
            peak = now
    return peak
