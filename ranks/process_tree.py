"""End what ranks have started: processes in a session of their own and orphans too, by Linux's tree of processes."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Collection
from contextlib import suppress

import psutil

_POLL_S, _AT_MOST_S = 0.01, 2.0


def adopt_orphans() -> None:
    """Let orphans among this process's descendants become its own children, and not init's: they stay in the tree."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>; prctl(2)


def end_descendants(pid: int, *, spare: Collection[int] = ()) -> None:
    """Kill all that descends from `pid`, and what that starts meanwhile; not `spare` and what descends from it."""
    end_s = time.monotonic() + _AT_MOST_S
    while (found := _descendants(pid, spare)) and time.monotonic() < end_s:
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_S)


def _descendants(pid: int, spare: Collection[int]) -> list[psutil.Process]:
    """Those that run: what has ended and waits for its parent's notice isn't counted."""
    running = []
    with suppress(psutil.Error):
        others = {process.pid for each in spare for process in _descendants(each, ())} | set(spare)
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if process.pid not in others and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
    return running
