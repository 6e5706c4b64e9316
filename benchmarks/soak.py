"""Run every planted fault of a launch many times, and count what stays behind.

usage: soak.py [TIMES]    20 unless given; exits with 1 if a process, a port or a file of shared memory is left
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import labkit as lab
from labkit.core.errors import RankFailed
from tests.test_dist.ranks_faults import FAULTS, launch_fault, reports_forever, works
from tests.test_dist.ranks_left import left, processes_of, running, strays

KERNEL = """
import labkit as lab
from tests.test_dist.ranks_faults import reports_forever
lab.launch(reports_forever, 2, on_report=lambda r: print(int(r.metrics["pid"]), flush=True))
"""


def main(times: int) -> int:
    """Run all; the number of things that are left or went otherwise than planned."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it behind takes it away
    lab.launch(works, 2)
    before, wrong = left(), 0
    planned = {fault.__name__: (lambda fault=fault: plant(fault)) for fault in FAULTS}
    for name, run in {**planned, "stop": stop, "two_kernels": two_kernels, "kernel_killed": kernel_killed}.items():
        start_s, failed = time.monotonic(), 0
        for _ in range(times):
            failed += not run()
        each_s = (time.monotonic() - start_s) / times
        found = strays(before)
        wrong += failed + len(found)
        sys.stdout.write(
            f"{name:24} {times} times, {each_s:5.2f} s each, {failed} unexplained, left: {found or 'nothing'}\n"
        )
        sys.stdout.flush()
    return wrong


def plant(fault: object) -> bool:
    """One fault; whether its message says what it should."""
    words = FAULTS[fault]
    try:
        launch_fault(fault)
    except RankFailed as error:
        return words is not None and all(word in str(error) for word in words)
    return words is None


def stop() -> bool:
    """A Stop while ranks run; whether it ends all within three seconds."""
    at_s: list[float] = []

    def once(report: object) -> None:
        if not at_s:
            at_s.append(time.monotonic())
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    try:
        lab.launch(reports_forever, 2, on_report=once)
    except KeyboardInterrupt:
        return time.monotonic() - at_s[0] < 3.05
    return False


def two_kernels() -> bool:
    """Two launches from two processes at once."""
    code = "import labkit as lab\nfrom tests.test_dist.ranks_faults import works\nlab.launch(works, 2)"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    return [process.wait() for process in both] == [0, 0]


def kernel_killed() -> bool:
    """A kernel that is killed with its process group while its ranks run; whether all of it goes."""
    with tempfile.TemporaryDirectory(prefix="labkit-soak-") as folder:
        more = {"env": {**os.environ, "TMPDIR": folder}, "start_new_session": True}
        process = subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, **more)
        seen: set[int] = set()
        while len(seen) < 2:
            seen.add(int(process.stdout.readline()))
        family = processes_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        end_s = time.monotonic() + 30
        while time.monotonic() < end_s:
            if not any(map(running, family)) and not list(Path(folder).glob("pymp-*")):
                return True
            time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 20) else 0)
