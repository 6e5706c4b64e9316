"""Run every planted fault of a launch many times, and count what stays behind.

usage: python -m benchmarks.soak [TIMES [NAME]]    20 unless given, of those with NAME
in theirs; exits with 1 if a process, a port or a file of shared memory is left
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import labkit as lab
from benchmarks import TEST_FOLDERS
from ranks.errors import RankFailed
from test_ranks import ranks_faults as faults, ranks_left as remains

WORKS = f"""
import sys
sys.path[:0] = {TEST_FOLDERS!r}
import labkit as lab
from test_ranks.ranks_faults import works
lab.launch(works, 2)
"""
KERNEL = f"""
import sys
sys.path[:0] = {TEST_FOLDERS!r}
import labkit as lab
from test_ranks.ranks_faults import reports_forever
show = lambda r: print(int(r.metrics["pid"]), flush=True)
lab.launch(reports_forever, 2, on_report=show)
"""


def main(times: int, wanted: str = "") -> int:
    """Run all with `wanted` in their name; the number of things that are left or went
    otherwise than planned.
    """
    # a shell that starts it behind takes it away
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lab.launch(faults.works, 2)
    before = remains.left()
    wrong = 0
    planned: dict[str, Callable[[], bool]] = {
        fault.__name__: partial(plant, fault) for fault in faults.FAULTS
    }
    planned |= {leaves.__name__: partial(leave, leaves) for leaves in faults.LEAVE}
    planned |= {
        "stop": stop,
        "two_kernels": two_kernels,
        "kernel_killed": kernel_killed,
    }
    planned |= {
        f"killed_after_{s}_s": partial(killed_early, s) for s in (0.5, 1, 2, 3, 5)
    }
    for name, run in planned.items():
        if wanted not in name:
            continue
        start_s = time.monotonic()
        failed = 0
        for _ in range(times):
            failed += not run()
        each_s = (time.monotonic() - start_s) / times
        stays = [*remains.strays(before), *remains.marked(faults.MARK)]
        wrong += failed + len(stays)
        sys.stdout.write(
            f"{name:24} {times} times, {each_s:5.2f} s each, {failed} unexplained,"
            f" left: {stays or 'nothing'}\n"
        )
        sys.stdout.flush()
    return wrong


def plant(fault: Callable[[], Any]) -> bool:
    """One fault; whether its message says what it should."""
    words = faults.FAULTS[fault]
    try:
        faults.launch_fault(fault)
    except RankFailed as error:
        return words is not None and all(word in str(error) for word in words)
    return words is None


def leave(leaves: Callable[[], Any]) -> bool:
    """Ranks that leave processes; whether each returned its own value, and all of them
    have ended.
    """
    results = list(lab.launch(leaves, 2))
    ended = not any(remains.running(pid) for _, *pids in results for pid in pids)
    return ended and [rank for rank, *_ in results] == [0, 1]


def stop() -> bool:
    """A Stop while ranks run; whether it ends all within three seconds."""
    at_s: list[float] = []

    def once(report: object) -> None:
        if not at_s:
            at_s.append(time.monotonic())
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    try:
        lab.launch(faults.reports_forever, 2, on_report=once)
    except KeyboardInterrupt:
        return time.monotonic() - at_s[0] < 3.05
    return False


def two_kernels() -> bool:
    """Two launches from two processes at once."""
    both = [subprocess.Popen([sys.executable, "-c", WORKS]) for _ in range(2)]
    return [process.wait() for process in both] == [0, 0]


def kernel_killed() -> bool:
    """A kernel that is killed with its process group while its ranks run; whether all
    of it goes.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-soak-") as folder:
        more: dict[str, Any] = {
            "env": {**os.environ, "TMPDIR": folder},
            "start_new_session": True,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, **more
        )
        assert process.stdout is not None
        seen: set[int] = set()
        while len(seen) < 2:
            seen.add(int(process.stdout.readline()))
        family = remains.processes_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        end_s = time.monotonic() + 30
        while time.monotonic() < end_s:
            if not any(map(remains.running, family)) and not list(
                Path(folder).glob("pymp-*")
            ):
                return True
            time.sleep(0.05)
    return False


def killed_early(after_s: float) -> bool:
    """A kernel that is killed with its process group as it starts; whether the next
    launch finds or leaves nothing.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-soak-") as folder:
        more: dict[str, Any] = {
            "env": {**os.environ, "TMPDIR": folder},
            "start_new_session": True,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", KERNEL], stdout=subprocess.DEVNULL, **more
        )
        time.sleep(after_s)
        family = remains.processes_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_s = time.monotonic() + 60
        while any(map(remains.running, family)) and time.monotonic() < end_s:
            time.sleep(0.05)
        command = [sys.executable, "-c", WORKS]
        again = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, **more)
        return (
            again.returncode == 0
            and not any(map(remains.running, family))
            and not list(Path(folder).glob("pymp-*"))
        )


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    sys.exit(1 if main(times, *sys.argv[2:3]) else 0)
