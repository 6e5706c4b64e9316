"""What a process knows as a rank of a launch: its number, channel, clock and trace; and all traces on one clock."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from labkit.core.errors import BadMeasurement
from labkit.core.parameters import AnyNumber, checked
from labkit.core.spans import Span
from ranks.channel import Channel

if TYPE_CHECKING:
    from ranks.gpu_clock import GpuClock

SpanKind = Literal["F", "B", "W", "compute", "communication", "idle", "optimizer"]
_MOST = 200_000  # spans and arrivals each, so that a long run doesn't fill the memory

# What the ranks that take part in one exchange have in common: its group, and its number there.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Report:
    """What one rank told the notebook: `metrics` by name, at `at_s` seconds after the launch began."""

    rank: int
    at_s: float
    metrics: dict[str, float]


@dataclass
class RankTrace:
    """What a rank did: spans (start, end, kind, label, key), and when it arrived at each exchange (key, time).

    Times are seconds since the launch began or, until `RankContext.settle_trace`, stamps of the GPU's clock.
    """

    spans: list[tuple[Any, Any, str, str, Key | None]] = field(default_factory=list)
    arrivals: list[tuple[Key, Any]] = field(default_factory=list)
    simulated: bool = False  # a stand-in device took part
    spent: tuple[float, float] = (0.0, 0.0)  # seconds of all its threads on a core, and waiting for one


@dataclass
class RankContext:
    """The rank that this process is. `channel` leads to the notebook."""

    rank: int
    channel: Channel
    start_s: float
    trace: RankTrace = field(default_factory=RankTrace)
    gpu: GpuClock | None = None  # set where collectives run on a GPU, which the processor's clock doesn't see
    pid: int = field(default_factory=os.getpid)  # a process that the rank forks has another
    lock: threading.Lock = field(default_factory=threading.Lock)
    spans_open: threading.local = field(default_factory=threading.local)

    def now_s(self) -> float:
        """Seconds since the launch began, on the clock that all processes of one computer share."""
        return time.monotonic() - self.start_s

    def stamp(self) -> Any:
        """The present moment: on the GPU's clock where there is one, else in seconds."""
        return self.now_s() if self.gpu is None else self.gpu.stamp()

    def send(self, *message: Any) -> None:
        """Send a message to the notebook, one thread at a time: what reports and what answers share the channel."""
        with self.lock:
            self.channel.send(message)

    def add_span(self, start: Any, end: Any, kind: str, label: str = "", key: Key | None = None) -> None:
        """Keep a span in the trace; those beyond 200,000 are dropped."""
        if len(self.trace.spans) < _MOST:
            self.trace.spans.append((start, end, kind, label, key))

    def add_arrival(self, key: Key | None, at: Any) -> None:
        """Keep when this rank was ready for an exchange."""
        if key is not None and len(self.trace.arrivals) < _MOST:
            self.trace.arrivals.append((key, at))

    def settle_trace(self) -> None:
        """Turn the trace's stamps of the GPU's clock into seconds. Waits for the GPU."""
        if self.gpu is None:
            return
        self.gpu.synchronize()
        seconds, trace = self.gpu.seconds, self.trace
        # Tuples are made anew with the same fields.
        trace.spans = [(seconds(start), seconds(end), *rest) for start, end, *rest in trace.spans]  # type: ignore[misc]
        trace.arrivals = [(key, seconds(at)) for key, at in trace.arrivals]


_current: RankContext | None = None


def current() -> RankContext | None:
    """What this process is as a rank of `lab.launch`; None in any other process."""
    return _current


def set_current(context: RankContext) -> None:
    """Make this process a rank."""
    global _current
    _current = context


@checked(error=BadMeasurement)
def report(**metrics: AnyNumber) -> None:
    """Send numbers from a rank to the notebook at once: `lab.report(step=7, loss=0.3)`.

    Inside `lab.launch` they reach `on_report` while the ranks run, and `.reports` after. In any other process, such
    as one that torchrun started, they are printed as one line. BadMeasurement for what is not a number.
    """
    numbers = {name: float(value) for name, value in metrics.items()}
    context = current()
    if context is not None and context.pid == os.getpid():
        context.send("report", context.now_s(), numbers)
        return
    sys.stdout.write(f"rank {os.environ.get('RANK', '0')}: {json.dumps(numbers)}\n")
    sys.stdout.flush()


@checked(error=BadMeasurement)
@contextmanager
def span(kind: SpanKind, label: str = "") -> Iterator[None]:
    """Record what this rank does inside the `with` as a span of `kind`: one of Span's kinds.

    Communication inside it is cut out of it. Outside a launch nothing is recorded. BadMeasurement for another kind.
    """
    context = current()
    if context is None:
        yield
        return
    depth = getattr(context.spans_open, "depth", 0)
    context.spans_open.depth = depth + 1
    start = context.stamp()
    try:
        yield
    finally:
        context.spans_open.depth = depth
        context.add_span(start, context.stamp(), kind, label)


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
