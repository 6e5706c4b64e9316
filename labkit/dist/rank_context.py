"""What a process knows of being a rank of a launch: its number, its line to the notebook, its clock and its spans."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.dist.channel import Channel

if TYPE_CHECKING:
    from labkit.dist.gpu_clock import GpuClock

KINDS = ("F", "B", "W", "compute", "communication", "idle", "optimizer")
_MOST = 200_000  # spans and arrivals each, so that a long run doesn't fill the memory

# What ranks have in common when they take part in one exchange: its group, and its number there.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Report:
    """What one rank told the notebook: `metrics` by name, at `at_s` seconds after the launch began."""

    rank: int
    at_s: float
    metrics: dict[str, float]


@dataclass
class RankTrace:
    """What a rank did: spans (start, end, kind, label, key), and when it arrived at each exchange (key, seconds)."""

    spans: list[tuple[Any, Any, str, str, Key | None]] = field(default_factory=list)
    arrivals: list[tuple[Key, Any]] = field(default_factory=list)
    simulated: bool = False  # a stand-in device took part


@dataclass
class RankContext:
    """The rank that this process is. `line` leads to the notebook."""

    rank: int
    line: Channel
    start_s: float
    trail: RankTrace = field(default_factory=RankTrace)
    gpu: GpuClock | None = None  # set where collectives run on a GPU, which the processor's clock doesn't see
    lock: threading.Lock = field(default_factory=threading.Lock)
    spanned: threading.local = field(default_factory=threading.local)

    def now_s(self) -> float:
        """Seconds since the launch began, on the clock that all processes of one computer share."""
        return time.monotonic() - self.start_s

    def stamp(self) -> Any:
        """The present moment: on the GPU's clock where there is one, else in seconds."""
        return self.now_s() if self.gpu is None else self.gpu.stamp()

    def send(self, *message: Any) -> None:
        """Tell the notebook; messages of several threads don't mix."""
        with self.lock:
            self.line.send(message)

    def add(self, start: Any, end: Any, kind: str, label: str = "", key: Key | None = None) -> None:
        """Keep a span; more than 200,000 are dropped."""
        if len(self.trail.spans) < _MOST:
            self.trail.spans.append((start, end, kind, label, key))

    def arrive(self, key: Key | None, at: Any) -> None:
        """Keep when this rank was ready for an exchange."""
        if key is not None and len(self.trail.arrivals) < _MOST:
            self.trail.arrivals.append((key, at))


_me: RankContext | None = None


def me() -> RankContext | None:
    """What this process is as a rank of `lab.launch`; None anywhere else."""
    return _me


def enter(rank: RankContext | None) -> None:
    """Make this process a rank."""
    global _me
    _me = rank


def report(**metrics: float) -> None:
    """Send numbers from a rank to the notebook at once: `lab.report(step=7, loss=0.3)`.

    RankContext `lab.launch` they reach `on_report` while the ranks run, and `.reports` after. In any other process, such
    as one that torchrun started, they are printed as one line. BadArgument for what is no number.
    """
    numbers = {}
    for name, value in metrics.items():
        number = as_float(value)
        if number is None:
            raise BadArgument(f"Expected a number for {name!r} in lab.report, got {brief_repr(value)}.")
        numbers[name] = number
    rank = me()
    if rank is not None:
        rank.send("report", rank.now_s(), numbers)
        return
    sys.stdout.write(f"rank {os.environ.get('RANK', '0')}: {json.dumps(numbers)}\n")
    sys.stdout.flush()


@contextmanager
def span(kind: str, label: str = "") -> Iterator[None]:
    """Record what this rank does inside the `with` as a span of `kind`: one of Span's kinds.

    Communication inside it is cut out of it. Outside a launch nothing is recorded. BadArgument for another kind.
    """
    if kind not in KINDS:
        raise BadArgument(f"Expected a kind of span out of {', '.join(KINDS)}, got {brief_repr(kind)}.")
    rank = me()
    if rank is None:
        yield
        return
    outer = getattr(rank.spanned, "depth", 0)
    rank.spanned.depth = outer + 1
    start = rank.stamp()
    try:
        yield
    finally:
        rank.spanned.depth = outer
        rank.add(start, rank.stamp(), kind, str(label))
