"""What a launch could leave behind: processes, ports, files, shared memory. Reads
Linux's /proc.
"""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path


def processes_of(pid):
    """Numbers of all processes that descend from one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue
        state, parent = rest.rpartition(") ")[2].split()[:2]
        if state != "Z":
            parents.setdefault(int(parent), set()).add(int(number))
    descendants = set()
    new = {pid}
    while new:
        new = set().union(*(parents.get(p, set()) for p in new)) - descendants
        descendants |= new
    return descendants


def open_files(pid="self"):
    """What a process has open, and how often."""
    files = Counter()
    try:
        for number in Path(f"/proc/{pid}/fd").iterdir():
            try:
                files[str(number.readlink())] += 1
            except OSError:  # another thread has closed it
                continue
    except OSError:  # it has ended
        pass
    return files


def listening(*pids):
    """Addresses (in hexadecimal) and ports at which processes wait for calls; this
    process unless some are named.
    """
    own = sum(map(open_files, pids or ("self",)), Counter())
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {
        line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own
    }


def used_by_others(name):
    """Whether a process that doesn't descend from this one uses a file of shared
    memory.
    """
    own = {os.getpid()} | processes_of(os.getpid())
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if (
                int(maps.parent.name) not in own
                and f"/dev/shm/{name}" in maps.read_text()
            ):
                return True
        except OSError:
            continue
    return False


def left():
    """Everything that a launch could leave."""
    return {
        "processes": processes_of(os.getpid()),
        "ports": listening(),
        "files": open_files(),
        "threads": threading.active_count(),
        "shared": {path.name for path in Path("/dev/shm").iterdir()},
        "handlers": [
            signal.getsignal(s)
            for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
        ],
        "environment": dict(os.environ),
    }


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def marked(mark):
    """Numbers of the processes that have an argument."""
    processes = set()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in line.read_text().split("\0"):
                processes.add(int(line.parent.name))
        except OSError:
            continue
    return processes


def strays(before, within_s=60):
    """What is there now and was not in `before`, an earlier `left()`, and is not gone
    `within_s` seconds later.

    What ends meanwhile is something else's end: of an earlier test's process, say. And
    others' files of shared memory come and go.
    """
    end_s = time.monotonic() + within_s
    while True:
        now = left()
        shared = {
            name
            for name in now["shared"] - before["shared"]
            if not used_by_others(name)
        }
        changed = [
            key for key in ("processes", "ports", "files") if now[key] - before[key]
        ]
        changed += [
            key for key in ("handlers", "environment") if now[key] != before[key]
        ]
        changed += ["threads"] if now["threads"] > before["threads"] else []
        if not (shared or changed) or time.monotonic() > end_s:
            return [*changed, *sorted(shared)]
        time.sleep(0.05)
