"""What the operating system says of memory and cores, and the end of all processes that
descend from one.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

import psutil

_POLL_S = 0.01
_AT_MOST_S = 2.0
# bytes: the address of a Unix socket has at most 104 to 108, and its name is added to
# the folder
_LONGEST_TEMP = 60


def memory_bytes(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of main memory that this process may use: those installed, or its cgroup's
    limit if that is lower.

    A container often sees its own cgroup at the mount, while its path is the host's: so
    the mount's limit counts too.
    """
    limits = [int(psutil.virtual_memory().total)]
    lines = own.read_text().splitlines() if own.exists() else []
    for line in lines:
        _, controllers, inner = line.split(":", 2)
        version_1 = "memory" in controllers.split(",")
        mount = root / "memory" if version_1 else root
        group = mount / inner.lstrip("/")
        for folder in (group, *group.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with suppress(OSError, ValueError):  # no such file, or no limit
                    limits.append(int((folder / name).read_text()))
    return min(limits)


def seconds_on_cores() -> tuple[float, float]:
    """Seconds that this process's threads have been on a core, and have waited for one;
    0 where it isn't said.

    Source: Linux, Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    """
    ran_s = waited_s = 0.0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended meanwhile
            ran, waited = thread.read_text().split()[:2]
            ran_s += int(ran) * 1e-9
            waited_s += int(waited) * 1e-9
    return ran_s, waited_s


def use_short_socket_paths() -> None:
    """Let multiprocessing make its Unix sockets in /tmp where the usual folder's path
    is too long for their addresses.

    It makes its folder once, private to the user, where `tempfile.tempdir` says at that
    moment.
    """
    usual = tempfile.tempdir
    long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMP
    if long and os.name == "posix":
        tempfile.tempdir = "/tmp"
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = usual


def adopt_orphans() -> None:
    """Let orphans among this process's descendants become its own children, and not
    init's: they stay in the tree.
    """
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>; prctl(2)
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def end_descendants(pid: int, *, spare: Collection[int] = ()) -> None:
    """Kill all that descends from `pid`, and what that starts meanwhile; not `spare`
    and what descends from it.
    """
    end_s = time.monotonic() + _AT_MOST_S
    while True:
        descendants = _descendants(pid, spare)
        if not descendants or time.monotonic() >= end_s:
            return
        for process in descendants:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_S)


def _descendants(pid: int, spare: Collection[int]) -> list[psutil.Process]:
    """Those that run: what has ended and waits for its parent's notice
    isn't counted.
    """
    running = []
    with suppress(psutil.Error):
        spared = set(spare)
        for ancestor in spare:
            spared.update(process.pid for process in _descendants(ancestor, ()))
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                ended = process.status() == psutil.STATUS_ZOMBIE
                if process.pid not in spared and not ended:
                    running.append(process)
    return running
