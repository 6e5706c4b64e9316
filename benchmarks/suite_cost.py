"""What the tests cost: the processors' seconds of a whole `make test`, beside those of a fixed piece of work.

usage: python -m benchmarks.suite_cost COMMAND ...    run a command, note what it cost, and end with its exit status

Seconds differ from machine to machine, and their ratio much less: on any machine it tells that the tests became slower.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

NOTED = Path(__file__).parents[1] / "build" / "test_cost.json"
# `make test` may take 12 minutes on two cores, of an AMD EPYC (Zen 4) with Python 3.11: there the piece takes 0.78 s.
BUDGET = 12 * 60 * 2 / 0.78
_STEPS = 12_000_000
_CHILD_SUBREAPER = 36  # prctl(2): this process becomes the parent of descendants whose own parent has ended


@dataclass(frozen=True)
class Cost:
    """Processors' seconds of the tests and of the piece, both of one run, and its date."""

    suite_s: float
    piece_s: float
    date: str

    @property
    def ratio(self) -> float:
        """How often the piece fits into the tests."""
        return self.suite_s / self.piece_s


def piece_s() -> float:
    """Processor seconds of a fixed piece of work, float operations in Python on one thread: the median of three."""
    readings = []
    for _ in range(3):
        start_s, x = time.thread_time(), 0.5
        for _ in range(_STEPS):
            x = 3.7 * x * (1 - x)
        readings.append(time.thread_time() - start_s)
    return statistics.median(readings)


def run(command: list[str]) -> tuple[int, float]:
    """Exit status of a command, and processors' seconds of it and of all that it started and that has ended.

    Where there is no Linux, what outlived the process that started it isn't counted.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    status = subprocess.run(command, check=False).returncode
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return status, sum(os.times()[2:4])


def noted(path: Path = NOTED) -> Cost | None:
    """What the last whole `make test` on this machine cost; None where there was none."""
    return Cost(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def main(command: list[str], path: Path = NOTED) -> int:
    """Run the command and write what it cost; its exit status."""
    status, suite_s = run(command)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(Cost(round(suite_s, 1), round(piece_s(), 3), today))) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
