"""How long the parts of a benchmark take: by the clock, and on the processors, which
other programs hardly change.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

import psutil

from labkit.core.display import Table


def processor_s() -> float:
    """Seconds of processors so far: this process's, and its descendants' that have
    ended and were waited for.
    """
    return sum(os.times()[:4])


class Stopwatch:
    """Parts that were measured one after the other."""

    def __init__(self) -> None:
        self._parts = [
            ("imports", time.time() - psutil.Process().create_time(), processor_s())
        ]

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the block, and say on stderr that it is done."""
        start_s = time.perf_counter()
        processors_s = processor_s()
        yield
        self._parts.append(
            (name, time.perf_counter() - start_s, processor_s() - processors_s)
        )
        print(f"{name}: {self._parts[-1][1]:.0f} s", file=sys.stderr)

    def table(self) -> Table:
        """Seconds of each part, and of all."""
        total = (
            "total",
            *(sum(column) for column in list(zip(*self._parts, strict=True))[1:]),
        )
        rows = [
            (name, f"{took_s:.0f} s", f"{used_s:.0f} s")
            for name, took_s, used_s in (*self._parts, total)
        ]
        return Table(
            tuple(rows),
            ("part", "took", "on processors"),
            "How long the benchmarks took",
        )
