"""Who did what when: what each rank notes, and the spans of all on one clock that come
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

SpanKind = Literal["F", "B", "W", "compute", "communication", "idle", "optimizer"]
# what ranks that take part in one exchange have in common: its group, and its number
# there
Key = tuple[Any, ...]


@dataclass(frozen=True, order=True)
class Span:
    """`rank` did `kind` from `start_s` to `end_s`, in seconds on the one clock that all
    ranks share.

    `kind` is "F" (forward), "B" (backward), "W" (backward of the weights alone),
    "compute", "communication", "idle" or "optimizer"; `label` is what a picture writes
    on it, such as the micro-batch.
    """

    rank: int
    start_s: float
    end_s: float
    kind: str
    label: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


@dataclass
class RankTrace:
    """What a rank did: spans (start, end, kind, label, key), and when it arrived at
    each exchange (key, time).

    Times are seconds since the launch began or, until `RankContext.settle_trace`,
    stamps of the GPU's clock.
    """

    spans: list[tuple[Any, Any, str, str, Key | None]] = field(default_factory=list)
    arrivals: list[tuple[Key, Any]] = field(default_factory=list)
    simulated: bool = False  # a stand-in device took part
    # seconds of all its threads on a core, and waiting for one
    spent: tuple[float, float] = (0.0, 0.0)


def spans_of(traces: Sequence[RankTrace]) -> tuple[Span, ...]:
    """Spans of each rank, in order of time; no two of a rank overlap unless two threads
    of it made them.

    Within an exchange a rank first waits for the last to arrive, which is "idle", and
    then communicates. A rank that was done before the last arrived, as a sender may be,
    never waited.
    """
    last_arrival_s: dict[Key, float] = {}
    for trace in traces:
        for key, at_s in trace.arrivals:
            last_arrival_s[key] = max(last_arrival_s.get(key, at_s), at_s)
    spans: list[Span] = []
    for rank, trace in enumerate(traces):
        parts: list[Span] = []
        for start_s, end_s, kind, label, exchange in trace.spans:
            arrived_s = start_s
            if exchange is not None:
                arrived_s = last_arrival_s.get(exchange, start_s)
            if start_s < arrived_s < end_s:
                parts.append(Span(rank, start_s, arrived_s, "idle", label))
                start_s = arrived_s
            parts.append(Span(rank, start_s, end_s, kind, label))
        spans += _without_nesting(parts)
    return tuple(spans)


def _without_nesting(spans: list[Span]) -> list[Span]:
    """Cut spans that lie inside another one out of it."""
    pieces: list[Span] = []
    # open around the present moment, innermost last; each starts where it goes on
    outer: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start_s, -span.end_s)):
        while outer and outer[-1].end_s <= span.start_s:
            _close(outer, pieces)
        if outer:
            around = outer[-1]
            if around.start_s < span.start_s and span.end_s <= around.end_s:
                pieces.append(replace(around, end_s=span.start_s))
        outer.append(span)
    while outer:
        _close(outer, pieces)
    return sorted(pieces)


def _close(outer: list[Span], pieces: list[Span]) -> None:
    """End the innermost span; the one around it goes on from there."""
    span = outer.pop()
    if span.end_s > span.start_s:
        pieces.append(span)
    if outer and outer[-1].start_s < span.end_s <= outer[-1].end_s:
        outer[-1] = replace(outer[-1], start_s=span.end_s)
