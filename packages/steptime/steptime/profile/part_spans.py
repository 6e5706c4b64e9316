"""Divide a profiled interval of time into parts: every instant belongs
to exactly one.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from steptime.profile.chrome_trace import TraceEvent
from steptime.profile.parts import NAMED, PARTS, PREFIX

STEP = PREFIX + "step"
END = PREFIX + "end"
_ON_HOST = ("cpu_op", "user_annotation")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
# How torch's own names begin -> part; all else that runs an operator counts as forward.
_PART_OF = {
    "enumerate(DataLoader)#": "input",
    "Optimizer.": "optimizer",
    "autograd::engine::": "backward",
    "c10d::": "communication",
    "gloo:": "communication",
    "nccl:": "communication",
    "record_param_comms": "communication",
}
_EMPTY = PARTS.index("other")
_BACKWARD = PARTS.index("backward")


class Paint(NamedTuple):
    """An interval in microseconds, and its part's index in PARTS."""

    start: float
    end: float
    code: int


@dataclass(frozen=True)
class PartSpan:
    """An interval of one part on a lane, "host" or "device", in seconds since the step
    began.
    """

    lane: str
    part: str
    start_s: float
    end_s: float


class Strip:
    """An interval of time in which each instant has one part: later paints cover
    earlier ones.
    """

    def __init__(self, paints: Iterable[Paint], start: float, end: float) -> None:
        inside = [
            Paint(max(paint.start, start), min(paint.end, end), paint.code)
            for paint in paints
            if paint.end > start and paint.start < end
        ]
        edges = {start, end}
        for paint in inside:
            edges |= {paint.start, paint.end}
        self.edges = sorted(edges)
        self.codes = [_EMPTY] * (len(self.edges) - 1)  # between two edges each
        index_of = {edge: i for i, edge in enumerate(self.edges)}
        for paint in inside:
            # what is painted later covers the earlier
            first = index_of[paint.start]
            last = index_of[paint.end]
            self.codes[first:last] = [paint.code] * (last - first)

    def at(self, instant: float) -> int:
        """The index in PARTS of the part at an instant."""
        index = bisect.bisect_right(self.edges, instant) - 1  # -1 before the first edge
        return self.codes[index] if 0 <= index < len(self.codes) else _EMPTY

    def microseconds(self) -> dict[str, float]:
        """The duration of each part, in microseconds."""
        lengths = dict.fromkeys(PARTS, 0.0)
        for piece in self._pieces():
            lengths[PARTS[piece.code]] += piece.end - piece.start
        return lengths

    def runs(self, start: float, end: float) -> Iterator[Paint]:
        """The intervals of one part each between two instants, adjacent ones of the
        same part joined.
        """
        groups = itertools.groupby(self._pieces(), key=lambda piece: piece.code)
        for code, group in groups:
            pieces = list(group)
            run_start = max(pieces[0].start, start)
            run_end = min(pieces[-1].end, end)
            if run_start < run_end:
                yield Paint(run_start, run_end, code)

    def _pieces(self) -> Iterator[Paint]:
        """The intervals between two neighboring edges."""
        ends = itertools.pairwise(self.edges)
        for (start, end), code in zip(ends, self.codes, strict=True):
            yield Paint(start, end, code)


def host(events: list[TraceEvent], thread: object, start: float, end: float) -> Strip:
    """The parts of what a CPU thread did.

    An operator has the part of the innermost named range around it, else the part that
    torch's names imply. Time between two neighboring operators of backward is
    backward. Time without an operator, during which another thread communicates, is
    communication: the thread waits for it.
    """
    own: list[TraceEvent] = []
    communicated: list[Paint] = []  # by other threads
    for e in events:
        if e.get("cat") not in _ON_HOST:
            continue
        if e["tid"] != thread:
            if _part(e) == "communication":
                communicated.append(_paint(e, "communication"))
        elif not e["name"].startswith(STEP):
            own.append(e)
    own.sort(key=lambda e: (e["ts"], -e["dur"]))
    ranges: list[Paint] = []
    for e in own:
        name = e["name"].removeprefix(PREFIX)
        if name in NAMED:
            ranges.append(_paint(e, name))
    operators = _operators(own, Strip(ranges, start, end))
    gaps = _between_backward(own)
    return Strip([*gaps, *ranges, *communicated, *operators], start, end)


def _operators(own: list[TraceEvent], named: Strip) -> list[Paint]:
    """The outermost operators of a thread, whose ranges have the parts `named`.

    A named range overrides torch's names for its operators, except for input and
    communication, which are certain.
    """
    operators: list[Paint] = []
    certain: list[Paint] = []
    covered = float("-inf")
    for e in own:
        kind = _part(e)
        if kind in ("input", "communication"):
            certain.append(_paint(e, kind))
        elif e["name"].startswith(PREFIX) or _foreign(e):
            continue
        elif e["ts"] >= covered:
            operator = _paint(e, kind)
            code = named.at(e["ts"])
            if code != _EMPTY:
                operator = operator._replace(code=code)
            operators.append(operator)
            covered = operator.end
    return operators + certain


def device(
    events: list[TraceEvent],
    main: Strip,
    threads: dict[object, Strip],
    start: float,
    end: float,
) -> Strip:
    """The parts of what the GPU did: a kernel has the part that launched it, idle time
    is gaps, input or communication.

    Communication and copies count only while no other kernel runs: hidden behind one,
    they cost nothing.
    """
    launched = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in _LAUNCHES and "correlation" in e["args"]
    }
    work = [e for e in events if e.get("cat") in DEVICE]
    layers: dict[str, list[Paint]] = defaultdict(list)
    for e in work:
        part = _kernel_part(e, launched, threads)
        layers[part].append(_paint(e, part))
    # while nothing runs, the host loads a batch, communicates, or is too slow
    paints: list[Paint] = []
    for run in main.runs(start, end):
        if PARTS[run.code] in ("input", "communication"):
            paints.append(run)
        else:
            paints.append(run._replace(code=PARTS.index("gaps")))
    order = ("communication", "copies", "other", "optimizer", "backward", "forward")
    for part in order:
        paints += layers[part]
    return Strip(paints, start, end)


def _kernel_part(
    e: TraceEvent, launched: dict[object, TraceEvent], threads: dict[object, Strip]
) -> str:
    """The part of a kernel, a copy or a fill on the GPU."""
    if "nccl" in e["name"].lower():
        return "communication"
    if e.get("cat") == "gpu_memcpy" and "HtoD" in e["name"]:
        return "copies"
    launch = launched.get(e["args"].get("correlation"))
    strip = threads.get(launch["tid"]) if launch is not None else None
    if launch is None or strip is None:
        return "other"
    part = PARTS[strip.at(launch["ts"])]
    # the rest are parts of the host's time
    on_device = ("forward", "backward", "optimizer", "communication", "copies")
    return part if part in on_device else "other"


def spans(lanes: dict[str, Strip], start: float, end: float) -> Iterator[PartSpan]:
    """The intervals of one step on each lane."""
    for lane, strip in lanes.items():
        for run in strip.runs(start, end):
            start_s = (run.start - start) * 1e-6
            end_s = (run.end - start) * 1e-6
            yield PartSpan(lane, PARTS[run.code], start_s, end_s)


def _part(e: TraceEvent) -> str:
    """The part that the name of a CPU event implies."""
    name = e["name"]
    if name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
        return name if name in NAMED else "other"
    for begin, part in _PART_OF.items():
        if name.startswith(begin):
            return part
    return "forward"


def _foreign(e: TraceEvent) -> bool:
    """Whether the event is a range that the user named, which implies no part."""
    return e.get("cat") == "user_annotation" and _part(e) == "forward"


def _paint(e: TraceEvent, part: str) -> Paint:
    start = float(e["ts"])
    return Paint(start, start + float(e["dur"]), PARTS.index(part))


def _between_backward(own: list[TraceEvent]) -> Iterator[Paint]:
    """The gaps between two consecutive operators of backward."""
    last_end: float | None = None
    covered = 0.0
    for e in own:
        part = _part(e)
        start, end, _ = _paint(e, part)
        if start < covered or _foreign(e):
            continue
        if part == "backward":
            if last_end is not None:
                yield Paint(last_end, start, _BACKWARD)
            last_end = end
        else:
            last_end = None
        covered = end
