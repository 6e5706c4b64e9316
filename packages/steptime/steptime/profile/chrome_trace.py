"""Run work under torch's profiler and read its Chrome trace, the only output that has
every event.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TraceEvent = dict[str, Any]


def profiled(
    work: Callable[[], object],
    path: Path,
    *,
    cuda: bool = False,
    quiet: bool = False,
    **options: Any,
) -> list[TraceEvent]:
    """Call `work` once under torch.profiler, write the Chrome trace to `path`, and
    return its events.

    `ts` and `dur` of an event are in microseconds. `options` go to
    torch.profiler.profile, such as profile_memory=True. The result of `work` is kept
    alive until the profiler has stopped. `quiet` discards what C++ code writes to
    stderr during `work`. Raises OSError where the trace can't be written.
    Format: Trace Event Format (Google, 2016), as torch's Kineto writes it.
    """
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if cuda:
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities, acc_events=True, **options)
    with quiet_profiler():
        profiler.start()
    try:
        with quiet_profiler() if quiet else contextlib.nullcontext():
            result = work()
    finally:
        with quiet_profiler():
            profiler.stop()
    del result
    # another process may profile to the same path
    written = path.with_name(f"{path.stem}.{os.getpid()}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(written))
        trace = json.loads(written.read_text(encoding="utf-8"))
        events: list[TraceEvent] = trace["traceEvents"]
        written.replace(path)
    except (OSError, ValueError, RuntimeError) as error:
        # what torch says, or leaves behind, where the disk is full
        with contextlib.suppress(OSError):
            written.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or error
        raise OSError(
            f"{path} can't be written ({why}). Choose a folder of yours with free"
            " space."
        ) from error
    return events


def trace_events(
    work: Callable[[], object], *, quiet: bool = False
) -> list[TraceEvent]:
    """Run `work` once under torch's profiler; return its trace events, "[memory]"
    events among them.

    Only the host is traced, since allocators report from there, a GPU's too. `quiet`
    discards what C++ code writes to stderr: torch warns there of every free whose
    allocation came before the profiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        return profiled(
            work, Path(folder) / "trace.json", quiet=quiet, profile_memory=True
        )


@contextlib.contextmanager
def quiet_profiler() -> Iterator[None]:
    """Within the block, discard what the profiler's C++ code writes to stderr; no log
    level turns that off.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
