"""The traces of all ranks on one clock: waiting told apart from communication, inner spans cut out of outer ones."""

from __future__ import annotations

from collections.abc import Sequence

from ranks.inside.rank_context import Key, RankTrace
from ranks.spans import Span


def spans_of(traces: Sequence[RankTrace]) -> tuple[Span, ...]:
    """Spans of each rank, in order of time; no two of a rank overlap unless two threads of it made them.

    Within an exchange a rank first waits for the last to arrive, which is "idle", and then communicates. A rank that
    was done before the last arrived, as a sender may be, never waited.
    """
    last_arrival_s = _last_arrivals(traces)
    spans: list[Span] = []
    for rank, trace in enumerate(traces):
        parts: list[Span] = []
        for start_s, end_s, kind, label, key in trace.spans:
            arrived_s = last_arrival_s.get(key, start_s) if key is not None else start_s
            if start_s < arrived_s < end_s:
                parts.append(Span(rank, start_s, arrived_s, "idle", label))
                start_s = arrived_s
            parts.append(Span(rank, start_s, end_s, kind, label))
        spans += _without_nesting(parts)
    return tuple(spans)


def _last_arrivals(traces: Sequence[RankTrace]) -> dict[Key, float]:
    last: dict[Key, float] = {}
    for trace in traces:
        for key, at_s in trace.arrivals:
            last[key] = max(last.get(key, at_s), at_s)
    return last


def _without_nesting(spans: list[Span]) -> list[Span]:
    """Cut spans that lie inside another one out of it."""
    done: list[Span] = []
    outer: list[Span] = []  # open around the present moment, innermost last; each starts where it goes on
    for span in sorted(spans, key=lambda s: (s.start_s, -s.end_s)):
        while outer and outer[-1].end_s <= span.start_s:
            _close(outer, done)
        if outer and span.end_s <= outer[-1].end_s:
            around = outer[-1]
            if span.start_s > around.start_s:
                done.append(Span(around.rank, around.start_s, span.start_s, around.kind, around.label))
        outer.append(span)
    while outer:
        _close(outer, done)
    return sorted(done)


def _close(outer: list[Span], done: list[Span]) -> None:
    """End the innermost span; the one around it goes on from there."""
    span = outer.pop()
    if span.end_s > span.start_s:
        done.append(span)
    if outer and outer[-1].start_s < span.end_s <= outer[-1].end_s:
        around = outer.pop()
        outer.append(Span(around.rank, span.end_s, around.end_s, around.kind, around.label))
