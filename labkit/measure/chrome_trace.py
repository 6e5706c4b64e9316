"""Run work under torch's profiler, and read what it wrote as a Chrome trace: the one format with every event in it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TraceEvent = dict[str, Any]


def profiled(
    work: Callable[[], object], path: Path, *, cuda: bool = False, quiet: bool = False, **options: Any
) -> list[TraceEvent]:
    """Call `work` once under torch.profiler, write the Chrome trace to `path`, and return its events.

    Times in it, `ts` and `dur`, are in microseconds. `options` go to torch.profiler.profile, such as
    profile_memory=True. What `work` returns is alive until the profiler has stopped. `quiet` also holds back what C++
    code writes to stderr meanwhile.
    Format: Trace Event Format (Google, 2016), as torch's Kineto writes it.
    """
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    profiler = profile(activities=activities, acc_events=True, **options)
    with _quiet():
        profiler.start()
    try:
        with _quiet() if quiet else contextlib.nullcontext():
            result = work()
    finally:
        with _quiet():
            profiler.stop()
    del result
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.stem}.{os.getpid()}.json")  # another process may profile to the same path
    profiler.export_chrome_trace(str(written))
    events: list[TraceEvent] = json.loads(written.read_text(encoding="utf-8"))["traceEvents"]
    written.replace(path)
    return events


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that the profiler's C++ part writes to stderr, which no log level turns off."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
