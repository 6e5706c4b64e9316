"""Divide the time of a watched loop by what limits it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from steptime._units import format_seconds
from steptime.judge.operator_limits import (
    Pace,
    TinyStep,
    divide_gaps,
    explained,
    split_by_limit,
)
from steptime.limits import FAULTS, HOST, LIMITS, RANKS, THREADS, Limit
from steptime.loop.turn_patterns import seen
from steptime.loop.turns import Turn, TurnWatch
from steptime.measure.budget import Budget
from steptime.measure.machine import distributed, name_of
from steptime.measure.operator_timing import OperatorCall, waits_inside_s

# the work of a host and of its GPU, in steps, from which on they work at the same time
_BESIDE = 1.2
_ALIKE = 0.1  # share of a step by which they differ
_STRAGGLES = 1.1  # times the ranks' median, from which on a rank is slow
_SHORT = 0.1  # of a step, below which nobody need look at exchanges


class OwnWork(NamedTuple):
    """What a rank does of a step itself: seconds of its input and of its step, without
    those of exchanges with other ranks, and the line of most of each.
    """

    input_s: float
    step_s: float
    exchange_s: float
    input_line: str = ""
    step_line: str = ""

    @property
    def seconds(self) -> float:
        """Seconds of both."""
        return self.input_s + self.step_s


class WatchedLoop:
    """Divides the time of a loop that was watched by what limits it; on all ranks of a
    distributed run.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tiny = TinyStep(budget.device, budget.sync)
        self.evidence = list[str]()
        self.unexplained = dict[str, str]()
        self.doubt = ""
        self.alone_s = self.ceiling_s = self.inside_s = self.gpu_s = 0.0
        self.slower = 1.0
        self.flop = 0.0
        self.turns = list[Turn]()
        self.calls = list[OperatorCall]()

    def see(self, watch: TurnWatch) -> None:
        """Keep what the turns of the loop have shown."""
        self.turns = watch.turns
        self.seen = seen(
            watch.turns,
            watch.collected,
            watch.again_s,
            second_epoch=watch.second_epoch,
        )
        self.evidence += self.seen.evidence
        self.doubt = self.seen.doubt

    def judged(self, parts: dict[str, float]) -> Limit:
        """The loop's time by limit: of a usual step by `parts`, which sum to 1, and of
        what else was seen.
        """
        step_s = self.seen.step_s
        besides = {
            THREADS: step_s * (self.slower - 1),
            "input": self.seen.input_s,
            **self.seen.seconds_of,
        }
        seconds_of = {
            name: parts.get(name, 0.0) * step_s + besides.get(name, 0.0)
            for name in LIMITS
        }
        loop_s = sum(seconds_of.values())
        lines = dict.fromkeys(LIMITS, self.seen.where["step"])
        lines |= self.seen.where
        lines |= self.unexplained
        low, high = self.seen.interval
        return Limit(
            {name: seconds / loop_s for name, seconds in seconds_of.items()},
            tuple(self.evidence),
            loop_s,
            input_s=self.alone_s,
            lines=lines,
            of_ceiling=self.ceiling_s / self.inside_s * step_s / loop_s,
            every=self.seen.every,
            events=self.seen.events,
            interval_s=(low * loop_s, high * loop_s),
            flop=self.flop,
            gpu_s=self.gpu_s,
            machine=name_of(self.budget.device),
        )

    def divided(
        self,
        calls: Sequence[OperatorCall],
        doubled: Sequence[OperatorCall] | None,
        pace: Pace,
        step_s: float,
        exposed_s: float = 0.0,
    ) -> dict[str, float]:
        """Shares of a step of `step_s` seconds by limit; for `exposed_s` of them,
        nothing hides communication.
        """
        work = split_by_limit(calls, doubled, pace)
        seconds_of = {name: work.get(name, 0.0) for name in LIMITS}
        # besides the time in collectives' own calls
        waits_s = max(
            exposed_s - seconds_of["communication"], waits_inside_s(calls), 0.0
        )
        host_s = divide_gaps(seconds_of, calls, pace, step_s, waits_s)
        if not pace.on_cpu:
            self._compare_with_host(sum(work.values()), host_s, step_s)
        if distributed():  # who has less work of its own waits for the slowest
            exchange_s = seconds_of["communication"]
            own = OwnWork(
                self.seen.input_s,
                max(step_s - exchange_s, 0.0),
                exchange_s,
                self.seen.where["input"],
                self.seen.where["step"],
            )
            ranks = _of_all_ranks(own)
            self.evidence.append(slowest_rank(ranks))
            slowest_s = max(rank.seconds for rank in ranks)
            seconds_of[RANKS] = min(max(slowest_s - own.seconds, 0.0), exchange_s)
            seconds_of["communication"] -= seconds_of[RANKS]
        # the collector's seconds count apart
        seconds_of[HOST] -= min(max(self.seen.collecting_s, 0.0), seconds_of[HOST])
        # of the host's own work: operators have theirs
        faults = self.seen.step_faults - sum(call.faults for call in calls)
        faults_s = min(max(faults * pace.fault_s, 0.0), seconds_of[HOST])
        seconds_of[HOST] -= faults_s
        seconds_of[FAULTS] += faults_s
        self.ceiling_s = sum(
            call.weight * max(pace.memory_s(call), pace.arithmetic_s(call))
            for call in calls
        )
        # more than the step: one by one, operators find colder caches
        self.inside_s = sum(seconds_of.values())
        longest, words = explained(calls, seconds_of, pace, step_s)
        self.unexplained = {"unknown": longest}
        self.calls = list(calls)
        self.flop = sum(call.weight * call.flop for call in calls)
        self.evidence = self.evidence + words
        return {name: seconds / self.inside_s for name, seconds in seconds_of.items()}

    def _compare_with_host(self, gpu_s: float, host_s: float, step_s: float) -> None:
        """Note which of the two is done first with a step, where they work at the same
        time.
        """
        self.gpu_s = gpu_s
        if gpu_s + host_s < _BESIDE * step_s:
            return
        self.evidence.append(
            f"Of a step, the GPU works {format_seconds(gpu_s)} and the host"
            f" {format_seconds(host_s)}, at the same time."
        )
        if abs(gpu_s - host_s) < _ALIKE * step_s:
            self.doubt = (
                "the host and the GPU take about as long, and neither gains much alone"
            )


def _of_all_ranks(own: OwnWork) -> list[OwnWork]:
    """By rank, what it does of a step itself."""
    ranks: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(ranks, own)
    return ranks


def slowest_rank(ranks: Sequence[OwnWork]) -> str:
    """A sentence on which rank the others wait for, on which line, or that the network
    is what they wait for.
    """
    seconds = [rank.seconds for rank in ranks]
    slowest = seconds.index(max(seconds))
    usual_s = statistics.median(seconds)
    if seconds[slowest] < _STRAGGLES * usual_s:
        words = "All ranks work as long between exchanges"
        exchange_s = statistics.median(rank.exchange_s for rank in ranks)
        if exchange_s < _SHORT * (usual_s + exchange_s):
            return f"{words}, and exchanges take little of a step."
        return f"{words}: they wait for the network, not for each other."
    rank = ranks[slowest]
    more_input_s = rank.input_s - statistics.median(other.input_s for other in ranks)
    more_step_s = rank.step_s - statistics.median(other.step_s for other in ranks)
    line = rank.input_line if more_input_s > more_step_s else rank.step_line
    place = f", most of it {line}" if line else ""
    return (
        f"Rank {slowest} is the slowest: of a step, it works"
        f" {format_seconds(seconds[slowest])} itself{place}, and half of the ranks no"
        f" more than {format_seconds(usual_s)}."
    )
