"""Memory allocations in a Chrome trace: when each was made and freed, in which phase of
a step, for what purpose.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from steptime.profile.chrome_trace import TraceEvent
from steptime.profile.parts import PREFIX

MEMORY_CATEGORIES = (
    "parameters",
    "optimizer state",
    "gradients",
    "activations",
    "temporary and other",
)
PARAMETERS, STATE, GRADIENTS, ACTIVATIONS, OTHER = MEMORY_CATEGORIES
BEGIN = f"{PREFIX}step begins"
END = f"{PREFIX}step ends"
GRADIENT = f"{PREFIX}gradient at "
DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # c10::DeviceType, as the trace writes it
_BACKWARD = "autograd::engine::evaluate_function: "
_UPDATE = "Optimizer.step#"

# address -> category and bytes of memory that model or optimizer holds
Held = Mapping[int, tuple[str, int]]


@dataclass(frozen=True)
class Phase:
    """A phase of the step: 'forward', 'backward' or 'optimizer', in seconds since the
    step began.
    """

    name: str
    start_s: float
    end_s: float


def phase_at(phases: Sequence[Phase], at_s: float) -> str:
    """The name of the phase at a time; empty between phases."""
    for phase in phases:
        if phase.start_s <= at_s <= phase.end_s:
            return phase.name
    return ""


@dataclass
class Allocation:
    """`n_bytes` at an address from `start` until `end`, in the trace's microseconds;
    infinite if outside the trace.
    """

    address: int
    n_bytes: int
    start: float = -math.inf
    end: float = math.inf
    category: str = OTHER

    def lives(self, at: float) -> bool:
        """Whether the memory is in use at a time."""
        return self.start <= at < self.end


class StepTrace:
    """One step between the marks BEGIN and END of a trace: its operators, phases and
    allocations on one device.
    """

    def __init__(self, events: Sequence[TraceEvent], device: str) -> None:
        timed = sorted((e for e in events if "ts" in e), key=lambda e: float(e["ts"]))
        marks = {
            e["name"]: _end(e) for e in reversed(timed) if e["name"] in (BEGIN, END)
        }
        self.begin = marks[BEGIN]
        self.end = marks[END]
        inside = [e for e in timed if self.begin <= float(e["ts"]) <= self.end]
        self.operators = _outermost([e for e in inside if e.get("cat") == "cpu_op"])
        self._starts = [float(e["ts"]) for e in self.operators]
        self.phases = _phases(inside, self.operators, self.begin)
        self._kept_phases: list[Phase] = []
        # without a backward pass, nothing is kept for one
        if any(phase.name == "backward" for phase in self.phases):
            self._kept_phases = [p for p in self.phases if p.name == "forward"]
        # when, and at which address
        self.gradients = [
            (float(e["ts"]), int(e["name"].removeprefix(GRADIENT)))
            for e in timed
            if e["name"].startswith(GRADIENT)
        ]
        memory = [e for e in timed if e["name"] == "[memory]"]
        device_type = DEVICE_TYPES[device]
        own = [e for e in memory if e["args"].get("Device Type") == device_type]
        self.allocations, self._frees = _allocations(own)

    def operator_at(self, at: float) -> str:
        """The name of the outermost operator running at a time; empty between
        operators.
        """
        last = bisect.bisect_right(self._starts, at) - 1
        if last < 0 or at > _end(self.operators[last]):
            return ""
        return str(self.operators[last]["name"]).removeprefix(_BACKWARD)

    def sort(self, before: Held, after: Held) -> list[Allocation]:
        """All allocations in use during the step, older ones included, each with its
        category.

        `before` and `after` are what model and optimizer held at BEGIN and at END.
        """
        # an address may be given out several times
        by_address: dict[int, list[Allocation]] = {}
        for allocation in self.allocations:
            by_address.setdefault(allocation.address, []).append(allocation)
            if self._is_activation(allocation):
                allocation.category = ACTIVATIONS
        # Addresses are reused, so a claim goes to the allocation that is at the address
        # at the time of the claim.
        claims = [(at, address, GRADIENTS) for at, address in self.gradients]
        for at, held in ((self.begin, before), (self.end, after)):
            claims += [(at, address, held[address][0]) for address in held]
        for at, address, category in claims:
            for allocation in by_address.get(address, []):
                if allocation.lives(at):
                    allocation.category = category
        # The first time that each address was freed; a CPU's allocator reports none for
        # what is older than the trace.
        freed = {
            address: at for at, address in reversed(self._frees) if at > self.begin
        }
        older: list[Allocation] = []
        for address, (category, n_bytes) in before.items():
            at_address = by_address.get(address, [])
            if not any(allocation.lives(self.begin) for allocation in at_address):
                end = freed.get(address, math.inf)
                older.append(Allocation(address, n_bytes, end=end, category=category))
        return [
            a
            for a in (*older, *self.allocations)
            if a.n_bytes and a.end > self.begin and a.start <= self.end
        ]

    def _is_activation(self, allocation: Allocation) -> bool:
        """Whether it was made in a forward phase, and is still in use when the backward
        phase after that begins.
        """
        start_s = (allocation.start - self.begin) / 1e6
        end_s = (allocation.end - self.begin) / 1e6
        return start_s > 0 and any(
            phase.start_s <= start_s <= phase.end_s <= end_s
            for phase in self._kept_phases
        )


def series(
    allocations: Sequence[Allocation], begin: float, end: float
) -> tuple[list[float], dict[str, list[int]]]:
    """The times from `begin` to `end` at which memory changes, and each category's
    bytes from then on.
    """
    changes = [(max(a.start, begin), a.category, a.n_bytes) for a in allocations]
    changes += [(a.end, a.category, -a.n_bytes) for a in allocations if a.end <= end]
    now = dict.fromkeys(MEMORY_CATEGORIES, 0)
    rows = [(begin, *now.values())]
    for at, category, n_bytes in sorted(changes, key=lambda change: change[0]):
        now[category] += n_bytes
        if at == begin:  # allocations older than the step make up its first row
            rows.clear()
        rows.append((at, *now.values()))
    times, *columns = zip(*rows, strict=True)
    return list(times), {
        name: list(values)
        for name, values in zip(MEMORY_CATEGORIES, columns, strict=True)
    }


class _Span(NamedTuple):
    name: str
    start: float
    end: float


def _end(event: TraceEvent) -> float:
    return float(event["ts"]) + float(event.get("dur", 0.0))


def _outermost(operators: Sequence[TraceEvent]) -> list[TraceEvent]:
    """Operators, sorted by start, that lie within no other."""
    outer: list[TraceEvent] = []
    for operator in operators:
        if not outer or float(operator["ts"]) >= _end(outer[-1]):
            outer.append(operator)
    return outer


def _allocations(
    memory: Sequence[TraceEvent],
) -> tuple[list[Allocation], list[tuple[float, int]]]:
    """Allocations in order, and the times and addresses of frees whose allocation is
    not in the trace.
    """
    alive: dict[int, Allocation] = {}
    blocks: list[Allocation] = []
    frees: list[tuple[float, int]] = []
    for event in memory:
        at = float(event["ts"])
        address = int(event["args"]["Addr"])
        n_bytes = int(event["args"]["Bytes"])
        if n_bytes > 0:
            alive[address] = Allocation(address, n_bytes, at)
            blocks.append(alive[address])
        elif address in alive:
            alive.pop(address).end = at
        else:
            frees.append((at, address))
    return blocks, frees


def _phases(
    inside: Sequence[TraceEvent], operators: Sequence[TraceEvent], begin: float
) -> tuple[Phase, ...]:
    """Backward passes and updates as torch marks them; operators that run before a
    backward pass are forward.
    """
    spans = [
        _Span("backward", float(e["ts"]), _end(e))
        for e in operators
        if e["name"].startswith(_BACKWARD)
    ]
    spans += [
        _Span("optimizer", float(e["ts"]), _end(e))
        for e in inside
        if e["name"].startswith(_UPDATE)
    ]
    others = [float(e["ts"]) for e in operators if not e["name"].startswith(_BACKWARD)]
    phases: list[Phase] = []
    before = begin
    for name, start, end in _merged(spans, others):
        forward = any(before < other < start for other in others)
        if name == "backward" and forward:
            phases.append(
                Phase("forward", (before - begin) / 1e6, (start - begin) / 1e6)
            )
        phases.append(Phase(name, (start - begin) / 1e6, (end - begin) / 1e6))
        before = end
    if not any(phase.name == "backward" for phase in phases) and operators:
        stop = phases[0].start_s if phases else (_end(operators[-1]) - begin) / 1e6
        phases.insert(0, Phase("forward", 0.0, stop))
    return tuple(phases)


def _merged(spans: Sequence[_Span], others: Sequence[float]) -> list[_Span]:
    """One span for each backward pass, which is marked as many operators, where none of
    the `others` begins in between.
    """
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        last = merged[-1] if merged else None
        if last is not None and last.name == span.name == "backward":
            n_between = bisect.bisect(others, span.start) - bisect.bisect(
                others, last.end
            )
            if n_between <= 0:
                merged[-1] = last._replace(end=span.end)
                continue
        merged.append(span)
    return merged
