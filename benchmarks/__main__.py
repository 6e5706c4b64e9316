"""`make bench`: the figures of run.py, gpu.py, bottlenecks.py and tiles.py, and at the
end how long each part took.

usage: python -m benchmarks
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks import run
from benchmarks.stopwatch import Stopwatch

OTHERS = ("gpu", "bottlenecks", "tiles")


def main() -> int:
    """Measure one after the other, whatever becomes of the one before; 1 if a program
    failed.
    """
    watch = Stopwatch()
    run.main("", watch)
    failed = False
    for name in OTHERS:
        with watch.part(f"{name}.py"):
            failed |= (
                subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode
                != 0
            )
    print(watch.table())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
