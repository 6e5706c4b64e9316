"""What the operating system says of memory and cores, and where it lets multiprocessing make its sockets."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
_LONGEST_TEMP = 60  # bytes: the address of a Unix socket has at most 104 to 108, and its name is added to the folder


def memory_bytes() -> int:
    """Bytes of main memory that this process may use: those installed, or its cgroup's limit if that is lower."""
    return min([int(psutil.virtual_memory().total), *_memory_limits(CGROUPS, _text(Path("/proc/self/cgroup")))])


def _memory_limits(root: Path, own: str) -> list[int]:
    """Limits in bytes of a process's cgroups: `root` is where they are mounted, `own` its /proc/self/cgroup.

    A container often sees its own cgroup at the mount, while its path is the host's: so the mount's limit counts too.
    """
    found = []
    for line in own.splitlines():
        _, controllers, inner = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in (root / controllers, root / "memory") if controllers else (root, root / "unified"):
            folder = mount / inner.lstrip("/")
            for each in (folder, *folder.parents):
                if each == mount or mount in each.parents:
                    found += [_text(each / "memory.max"), _text(each / "memory.limit_in_bytes")]  # version 2, version 1
    return [int(limit) for limit in found if limit.isdigit() and int(limit) > 0]


def seconds_on_cores(tasks: Path = Path("/proc/self/task")) -> tuple[float, float]:
    """Seconds that this process's threads have been on a core, and have waited for one; 0 where it isn't said.

    Source: Linux, Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    """
    ran_s = waited_s = 0.0
    for one in tasks.glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended meanwhile
            ran, waited = one.read_text().split()[:2]
            ran_s, waited_s = ran_s + int(ran) * 1e-9, waited_s + int(waited) * 1e-9
    return ran_s, waited_s


def use_short_socket_paths() -> None:
    """Let multiprocessing make its Unix sockets in /tmp where the usual folder's path is too long for their addresses.

    It makes its folder once, private to the user, where `tempfile.tempdir` says at that moment.
    """
    before, usual = tempfile.tempdir, tempfile.gettempdir()
    fits = not any(map(str.isspace, usual)) and len(os.fsencode(usual)) <= _LONGEST_TEMP
    tempfile.tempdir = usual if fits or os.name != "posix" else "/tmp"
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def _text(file: Path) -> str:
    """The text of a system file; empty if it can't be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
