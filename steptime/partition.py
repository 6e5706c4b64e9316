"""Divide a profiled interval of time into parts: every instant belongs
to exactly one.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from steptime.chrome_trace import TraceEvent
from steptime.parts import NAMED, PARTS, PREFIX

STEP = PREFIX + "step"
END = PREFIX + "end"
_OPERATORS = ("cpu_op", "user_annotation")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
# How torch's own names begin -> part; all else that runs an operator counts as forward.
_PART_OF = {
    "enumerate(DataLoader)#": "input",
    "Optimizer.": "optimizer",
    "autograd::engine::": "backward",
}
_PART_OF |= dict.fromkeys(
    ("c10d::", "gloo:", "nccl:", "record_param_comms"), "communication"
)
_EMPTY = PARTS.index("other")

# start and end in microseconds, and the part's index in PARTS
Paint = tuple[float, float, int]


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
            (max(a, start), min(b, end), code)
            for a, b, code in paints
            if b > start and a < end
        ]
        self.edges = sorted(
            {start, end, *(a for a, _, _ in inside), *(b for _, b, _ in inside)}
        )
        self.codes = [_EMPTY] * (len(self.edges) - 1)
        place = {edge: i for i, edge in enumerate(self.edges)}
        for a, b, code in inside:
            # what is painted later covers the earlier
            self.codes[place[a] : place[b]] = [code] * (place[b] - place[a])

    def at(self, instant: float) -> int:
        """The index in PARTS of the part at an instant."""
        index = bisect.bisect_right(self.edges, instant) - 1  # -1 before the first edge
        return self.codes[index] if 0 <= index < len(self.codes) else _EMPTY

    def microseconds(self) -> dict[str, float]:
        """The duration of each part, in microseconds."""
        lengths = dict.fromkeys(PARTS, 0.0)
        for code, (a, b) in zip(
            self.codes, itertools.pairwise(self.edges), strict=True
        ):
            lengths[PARTS[code]] += b - a
        return lengths

    def runs(self, start: float, end: float) -> Iterator[Paint]:
        """The intervals of one part each between two instants, adjacent ones of the
        same part joined.
        """
        pieces = zip(self.codes, itertools.pairwise(self.edges), strict=True)
        for code, alike in itertools.groupby(pieces, key=lambda piece: piece[0]):
            bounds = [edge for _, piece in alike for edge in piece]
            if (a := max(bounds[0], start)) < (b := min(bounds[-1], end)):
                yield a, b, code


def host(events: list[TraceEvent], thread: object, start: float, end: float) -> Strip:
    """The parts of what a CPU thread did.

    An operator has the part of the innermost named range around it, else the part that
    torch's names imply. Time between two neighbouring operators of backward is
    backward. Time without an operator, during which another thread communicates, is
    communication: the thread waits for it.
    """
    own = [
        e
        for e in events
        if e["tid"] == thread
        and e.get("cat") in _OPERATORS
        and not e["name"].startswith(STEP)
    ]
    own.sort(key=lambda e: (e["ts"], -e["dur"]))
    others = (e for e in events if e["tid"] != thread and e.get("cat") in _OPERATORS)
    flying = [e for e in others if _part(e) == "communication"]
    names = [(e, e["name"].removeprefix(PREFIX)) for e in own]
    ranges = [_paint(e, name) for e, name in names if name in NAMED]
    # A named range overrides torch's names for its operators, except for input and
    # communication, which are certain.
    inner = Strip(ranges, start, end)
    paints = [(a, b, PARTS.index("backward")) for a, b in _between_backward(own)]
    paints += [*ranges, *(_paint(e, "communication") for e in flying)]
    known = []
    covered = float("-inf")
    for e in own:
        if (kind := _part(e)) in ("input", "communication"):
            known.append(_paint(e, kind))
        elif (
            e["ts"] >= covered and not e["name"].startswith(PREFIX) and not _foreign(e)
        ):
            code = inner.at(e["ts"])
            paints.append((*_ends(e), code if code != _EMPTY else PARTS.index(kind)))
            covered = e["ts"] + e["dur"]
    return Strip([*paints, *known], start, end)


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
    gap = PARTS.index("gaps")
    why = {PARTS.index(name): PARTS.index(name) for name in ("input", "communication")}
    idle = [(a, b, why.get(code, gap)) for a, b, code in main.runs(start, end)]
    order = ("communication", "copies", "other", "optimizer", "backward", "forward")
    return Strip(
        [*idle, *(paint for name in order for paint in layers[name])], start, end
    )


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
    name = (
        PARTS[strip.at(launch["ts"])]
        if strip is not None and launch is not None
        else "other"
    )
    return (
        name
        if name in ("forward", "backward", "optimizer", "communication", "copies")
        else "other"
    )


def spans(lanes: dict[str, Strip], start: float, end: float) -> Iterator[PartSpan]:
    """The intervals of one step on each lane."""
    for lane, strip in lanes.items():
        for a, b, code in strip.runs(start, end):
            yield PartSpan(lane, PARTS[code], (a - start) * 1e-6, (b - start) * 1e-6)


def _part(e: TraceEvent) -> str:
    """The part that the name of a CPU event implies."""
    name = e["name"]
    if name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
        return name if name in NAMED else "other"
    return next(
        (part for begin, part in _PART_OF.items() if name.startswith(begin)), "forward"
    )


def _foreign(e: TraceEvent) -> bool:
    """Whether the event is a range that the user named, which implies no part."""
    return e.get("cat") == "user_annotation" and _part(e) == "forward"


def _ends(e: TraceEvent) -> tuple[float, float]:
    return float(e["ts"]), float(e["ts"]) + float(e["dur"])


def _paint(e: TraceEvent, part: str) -> Paint:
    return (*_ends(e), PARTS.index(part))


def _between_backward(own: list[TraceEvent]) -> Iterator[tuple[float, float]]:
    """The gaps between two consecutive operators of backward."""
    last: float | None = None
    covered = 0.0
    for e in own:
        start, end = _ends(e)
        if start < covered or _foreign(e):
            continue
        if _part(e) == "backward":
            if last is not None:
                yield last, start
            last = end
        else:
            last = None
        covered = end
