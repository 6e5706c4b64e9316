"""What a process knows as a rank of a launch: its number, channel, clock and trace; and
what a function tells it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from ranks.arguments import as_float, check_text
from ranks.channel import Channel
from ranks.spans import Key, RankTrace, SpanKind

if TYPE_CHECKING:
    from ranks.inside.gpu_clock import GpuClock

_MOST = 200_000  # spans and arrivals each, so that a long run doesn't fill the memory


@dataclass(frozen=True)
class Report:
    """What one rank told the notebook: `metrics` by name, at `at_s` seconds after the
    launch began.
    """

    rank: int
    at_s: float
    metrics: dict[str, float]


@dataclass
class RankContext:
    """The rank that this process is. `channel` leads to the notebook."""

    rank: int
    channel: Channel
    start_s: float
    trace: RankTrace = field(default_factory=RankTrace)
    # set where collectives run on a GPU, which the processor's clock doesn't see
    gpu: GpuClock | None = None
    # a process that the rank forks has another
    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    spans_open: threading.local = field(default_factory=threading.local)

    def now_s(self) -> float:
        """Seconds since the launch began, on the clock that all processes of one
        computer share.
        """
        return time.monotonic() - self.start_s

    def stamp(self) -> Any:
        """The present moment: on the GPU's clock where there is one,
        else in seconds.
        """
        return self.now_s() if self.gpu is None else self.gpu.stamp()

    def send(self, *message: Any) -> None:
        """Send a message to the notebook, one thread at a time: what reports and what
        answers share the channel.
        """
        with self.lock:
            self.channel.send(message)

    def add_span(
        self, start: Any, end: Any, kind: str, label: str = "", key: Key | None = None
    ) -> None:
        """Keep a span in the trace; those beyond 200,000 are dropped."""
        if len(self.trace.spans) < _MOST:
            self.trace.spans.append((start, end, kind, label, key))

    def add_arrival(self, key: Key | None, at: Any) -> None:
        """Keep when this rank was ready for an exchange."""
        if key is not None and len(self.trace.arrivals) < _MOST:
            self.trace.arrivals.append((key, at))

    def settle_trace(self) -> None:
        """Turn the trace's stamps of the GPU's clock into seconds.
        Waits for the GPU.
        """
        if self.gpu is None:
            return
        self.gpu.synchronize()
        seconds = self.gpu.seconds
        trace = self.trace
        trace.spans = [
            (seconds(start), seconds(end), kind, label, key)
            for start, end, kind, label, key in trace.spans
        ]
        trace.arrivals = [(key, seconds(at)) for key, at in trace.arrivals]


_current: RankContext | None = None


def current() -> RankContext | None:
    """What this process is as a rank of `launch`; None in any other process."""
    return _current


def set_current(context: RankContext) -> None:
    """Make this process a rank."""
    global _current
    _current = context


def report(**metrics: float) -> None:
    """Send numbers from a rank to the process that launched it at once: `report(step=7,
    loss=0.3)`.

    Inside `launch` they reach `on_report` while the ranks run, and `.reports` after. In
    any other process, such as one that torchrun started, they are printed as one line.
    TypeError for what isn't a number.
    """
    numbers = {name: as_float(name, value) for name, value in metrics.items()}
    context = current()
    if context is not None and context.pid == os.getpid():
        context.send("report", context.now_s(), numbers)
        return
    rank = os.environ.get("RANK", "0")
    # in one piece: other processes may print to the same file
    print(f"rank {rank}: {json.dumps(numbers)}\n", end="", flush=True)


def span(
    kind: SpanKind, label: str = "", *, simulated: bool = False
) -> AbstractContextManager[None]:
    """Record what this rank does inside the `with` as a span of `kind`: one of Span's
    kinds.

    Communication inside it is cut out of it. Outside a launch nothing is recorded. With
    `simulated` something else stands in for the work, such as sleep: `Launched.origin`
    says so, and inside another span it is a part of that one. ValueError for another
    kind.
    """
    check_text("kind", kind, get_args(SpanKind))
    check_text("label", label)
    return _recorded(kind, label, simulated=simulated)


@contextmanager
def _recorded(kind: str, label: str, *, simulated: bool) -> Iterator[None]:
    context = current()
    if context is None:
        yield
        return
    if simulated:
        context.trace.simulated = True
    # a GPU's clock doesn't see what stands in for it
    stamp = context.now_s if simulated else context.stamp
    depth = getattr(context.spans_open, "depth", 0)
    context.spans_open.depth = depth + 1
    start = stamp()
    try:
        yield
    finally:
        context.spans_open.depth = depth
        if not simulated or depth == 0:
            context.add_span(start, stamp(), kind, label)


def now_s() -> float:
    """Seconds since the launch of this rank began: the clock of `Launched.spans` and
    of reports. RuntimeError in a process that is no rank.
    """
    context = current()
    if context is None:
        raise RuntimeError("now_s was called outside of a launch. Call it in a rank.")
    return context.now_s()
