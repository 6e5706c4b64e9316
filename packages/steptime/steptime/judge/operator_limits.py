"""What operators cost that calculate next to nothing, and what limits those that
calculate more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from steptime._units import format_seconds
from steptime.limits import FAULTS, HOST
from steptime.measure.ceilings import Ceilings
from steptime.measure.clock import above_0, faults_and_switches, mean_s
from steptime.measure.operator_timing import (
    OperatorCall,
    low,
    timed_calls,
    typical_calls,
)

WORK = (
    "memory bandwidth",
    "arithmetic",
    "unknown",
    "launch overhead",
    "communication",
    "input",
    FAULTS,
)
# The share of an operator's time that its bytes or FLOP need at the ceilings: new
# memory makes copies slow. And where FLOP need longer: convolutions and small products
# reach a tenth of a large product's rate.
_EXPLAINED = 0.25
_PRODUCT = 0.1
_MORE_THAN_A_STEP = 1.1  # steps that the parts of one take in all, which is said
_WARM_UP = 10
# allocations beyond 32 MiB are new to the process each time, with glibc
_NEW = 3
_NEW_BYTES = 2**26
_IN_A_ROW = 5  # the first of them finds cold caches


@dataclass(frozen=True)
class Pace:
    """FLOP/s of a matmul by dtype, B/s of a copy, and what operators cost that
    calculate next to nothing.

    `empty_s` are the seconds of an operator on one number, timed by itself. In a tiny
    training step, `dearest_s` are what the slowest operator takes beyond that, `gap_s`
    the longest time between two timed operators, and `launch_s` the seconds per
    operator of the step as it is. `on_cpu` says which device; `fault_s` are those of a
    page fault.
    """

    flop_per_s: dict[str, float]
    bytes_per_s: float
    empty_s: float
    dearest_s: float
    gap_s: float
    launch_s: float
    on_cpu: bool = False
    fault_s: float = 0.0

    def arithmetic_s(self, call: OperatorCall) -> float:
        """Seconds of the call's FLOP at the matmul's rate. On a GPU, torch lets float32
        convolutions use TF32.
        """
        float32 = self.flop_per_s["float32"]
        rate = self.flop_per_s.get(call.dtype) or float32
        if call.dtype == "float32" and "convolution" in call.name:
            rate = self.flop_per_s.get("tf32") or float32
        return call.flop / rate

    def memory_s(self, call: OperatorCall) -> float:
        """Seconds in which a copy would move the call's bytes."""
        return call.n_bytes / self.bytes_per_s

    def limit(
        self, call: OperatorCall, net_s: float, twice: OperatorCall | None = None
    ) -> tuple[str, float]:
        """What limits a call of `net_s` seconds, and how many of these are launch
        overhead instead.

        The call's lower bounds are its bytes at the copy's rate and its FLOP at the
        matmul's. If the higher one explains a quarter of its time, the call belongs to
        it. Otherwise what doesn't grow in the same call with `twice` the batch is
        launch overhead, up to `dearest_s`: all of it on a CPU where the FLOP grow,
        since the rest is then spent on preparing the call (a GPU may have had room for
        both halves at once). What grows is arithmetic if FLOP explain a tenth of it, or
        unknown.
        """
        memory_s = self.memory_s(call)
        arithmetic_s = self.arithmetic_s(call)
        most_s = max(memory_s, arithmetic_s)
        if most_s >= _EXPLAINED * net_s:
            return "arithmetic" if arithmetic_s > memory_s else "memory bandwidth", 0.0
        twice = twice or call
        growing_s = max(twice.seconds - call.seconds, most_s)
        fixed_s = max(net_s - growing_s, 0.0)
        if not self.on_cpu or twice.flop <= call.flop:
            fixed_s = min(fixed_s, self.dearest_s)
        by_flop = arithmetic_s >= _PRODUCT * (net_s - fixed_s)
        if by_flop and arithmetic_s > memory_s:
            return "arithmetic", fixed_s
        return "unknown", fixed_s


class TinyStep:
    """A training step on next to nothing, whose operators cost what they cost at this
    moment.

    Measured in turn with the step that is judged, it is slowed down by other programs
    as much as that one.
    """

    def __init__(self, device: str, sync: Callable[[], None]) -> None:
        self.on_cpu = device == "cpu"
        self.sync = sync
        with torch.random.fork_rng(devices=[]):
            layers = (
                nn.Conv2d(1, 2, 3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(2, 2),
                nn.ReLU(),
                nn.Linear(2, 2),
            )
        self.net = nn.Sequential(*layers).to(device)
        self.image = torch.ones(1, 1, 3, 3, device=device)
        self.one = torch.ones(1, device=device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.0)
        self.empty_s = list[float]()
        self.plain_s = list[float]()
        self.runs = list[list[OperatorCall]]()
        for _ in range(_WARM_UP):
            timed_calls(self.step, sync)

    def step(self) -> None:
        """Train once."""
        self.optimizer.zero_grad()
        self.net(self.image).sum().backward()
        self.optimizer.step()

    def measure(self, times: int) -> None:
        """Time an operator on one number, the step, and each of its operators."""
        for _ in range(times):
            *additions, _end = timed_calls(self._add, self.sync)
            self.empty_s.append(min(above_0(call.seconds for call in additions)))
            self.plain_s.append(mean_s(self.step, self.sync))
            self.runs.append(timed_calls(self.step, self.sync))

    def _add(self) -> None:
        for _ in range(_IN_A_ROW):
            self.one.add_(1)

    def pace(self, ceilings: Ceilings) -> Pace:
        """The pace of this machine while the step was measured."""
        calls = typical_calls(self.runs)
        empty_s = low(self.empty_s)
        net_s = [max(call.seconds - empty_s, 0.0) for call in calls]
        return Pace(
            flop_per_s=dict(ceilings.matmul_flop_per_s),
            bytes_per_s=ceilings.copy_bytes_per_s,
            empty_s=empty_s,
            dearest_s=max(net_s),
            gap_s=max(call.before_s for call in calls),
            launch_s=max(low(above_0(self.plain_s)) - sum(net_s), 0.0) / len(calls),
            on_cpu=self.on_cpu,
            fault_s=_fault_s(self.sync) if self.on_cpu else 0.0,
        )


def _fault_s(sync: Callable[[], None]) -> float:
    """Seconds of a page fault: of filling new memory, beyond those of filling it again;
    0 without faults.
    """
    return low([_fault_reading_s(sync) for _ in range(_NEW)])


def _fault_reading_s(sync: Callable[[], None]) -> float:
    kept = list[torch.Tensor]()

    def fill_new() -> None:
        kept.append(torch.full((_NEW_BYTES // 4,), 1.0))

    before, _ = faults_and_switches()
    new_s = mean_s(fill_new, sync)
    after, _ = faults_and_switches()
    again_s = mean_s(partial(kept[0].fill_, 2.0), sync)
    faults = after - before
    return max(new_s - again_s, 0.0) / faults if faults else 0.0


def split_by_limit(
    calls: Sequence[OperatorCall], doubled: Sequence[OperatorCall] | None, pace: Pace
) -> dict[str, float]:
    """Seconds of a step's calls by what limits them (WORK), each without the
    `pace.empty_s` that any operator takes.

    `doubled` are the calls with twice the batch, None if there are none.
    """
    seconds = dict.fromkeys(WORK, 0.0)
    if doubled is None or [c.name for c in calls] != [c.name for c in doubled]:
        doubled = calls  # without a comparison, no call grows
    for call, twice in zip(calls, doubled, strict=True):
        net_s = max(call.seconds - pace.empty_s, 0.0)
        faults_s = min(call.faults * pace.fault_s, net_s)
        seconds[FAULTS] += call.weight * faults_s
        net_s -= faults_s
        if call.group != "work":
            seconds[call.group] += call.weight * net_s
            continue
        twice_faults_s = min(twice.faults * pace.fault_s, twice.seconds)
        kind, fixed_s = pace.limit(
            replace(call, seconds=call.seconds - faults_s),
            net_s,
            replace(twice, seconds=twice.seconds - twice_faults_s),
        )
        seconds["launch overhead"] += call.weight * fixed_s
        seconds[kind] += call.weight * (net_s - fixed_s)
    return seconds


def divide_gaps(
    seconds: dict[str, float],
    calls: Sequence[OperatorCall],
    pace: Pace,
    step_s: float,
    waits_s: float,
) -> float:
    """Add to `seconds`, by limit, what passes between the operators of a step of
    `step_s` seconds. Returns the seconds that the host alone takes for it.

    `waits_s` of it are waits for other ranks. Launching lies in short gaps and costs no
    more than in a tiny step; the rest is the host's. On a GPU, where the host takes
    longer than the GPU's work, that work counts only as far as the host waits for it.
    """
    long_s = sum(call.weight * max(call.before_s - pace.gap_s, 0.0) for call in calls)
    long_s = max(long_s - waits_s, 0.0)
    launches_s = sum(call.weight for call in calls) * pace.launch_s
    if len(calls) == 1:  # the end of the step: a loader alone launches nothing
        launches_s = 0.0
    alone_s = long_s + launches_s
    if not pace.on_cpu:
        _hide_work(seconds, max(step_s - waits_s - alone_s, 0.0), alone_s)
    rest_s = max(step_s - sum(seconds.values()) - waits_s, 0.0)
    host_s = max(min(long_s, rest_s), rest_s - launches_s)
    seconds["communication"] += waits_s
    seconds["launch overhead"] += rest_s - host_s
    seconds[HOST] += host_s
    return alone_s


def _hide_work(seconds: dict[str, float], exposed_s: float, alone_s: float) -> None:
    """Shorten a GPU's operators to the `exposed_s` seconds that pass beside those of
    the host, `alone_s`, if the host takes longer.
    """
    hideable = ("arithmetic", "memory bandwidth", "unknown", "launch overhead")
    work_s = sum(seconds[name] for name in hideable)
    # for copies and collectives, the host may wait
    left_s = max(exposed_s - seconds["input"] - seconds["communication"], 0.0)
    if left_s < work_s < alone_s:
        for name in hideable:
            seconds[name] *= left_s / work_s


def explained(
    calls: Sequence[OperatorCall],
    seconds_of: dict[str, float],
    pace: Pace,
    step_s: float,
) -> tuple[str, list[str]]:
    """The operator that holds most of what is unknown, and the division of a step in
    sentences.
    """
    words = {name: format_seconds(seconds) for name, seconds in seconds_of.items()}
    longest = max(calls, key=lambda call: call.seconds)
    unknown: list[OperatorCall] = []
    for call in calls:
        limit, _ = pace.limit(call, call.seconds - pace.empty_s)
        if limit == "unknown":
            unknown.append(call)
    unexplained = max(unknown, key=lambda call: call.seconds).name if unknown else ""
    n = sum(call.weight for call in calls) - 1
    if n < 1:
        words_on_loader = "No operator ran between batches: this is the loader alone."
        return unexplained, [words_on_loader]
    evidence = [
        (
            f"{n:.0f} operators in a step of {format_seconds(step_s)}. By the ceilings,"
            f" memory bandwidth limits {words['memory bandwidth']} of their work and"
            f" arithmetic {words['arithmetic']}; neither explains {words['unknown']}."
            f" The longest is {longest.name}, {format_seconds(longest.seconds)}."
        ),
        (
            f"Launching and preparing them takes {words['launch overhead']}; in a tiny"
            f" training step, an operator costs {format_seconds(pace.launch_s)}."
        ),
    ]
    sum_s = sum(seconds_of.values())
    if sum_s > _MORE_THAN_A_STEP * step_s:
        evidence.append(
            f"Timed one by one, all of it takes {format_seconds(sum_s)}, more than the"
            " step: caches are colder then, or other programs took a core. The shares"
            " are of that sum."
        )
    if seconds_of[HOST] > 0.1 * step_s:
        evidence.append(
            f"Between operators, the host works or waits for {words[HOST]} more."
        )
    if seconds_of["communication"]:
        evidence.append(
            f"Of a step, exposed communication takes {words['communication']}: no work"
            " hides it."
        )
    return unexplained, evidence
