"""How many of the planted loops find_bottleneck names rightly, alone and beside two busy loops, and how long it takes.

usage: python -m benchmarks.bottlenecks [BUDGET_S] [WORDS]    seconds for each loop (default 2); loops named so
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import labkit as lab
from tests.test_measure import planted_loops
from tests.test_measure.planted_loops import BALANCED, PLANTED, REAL, RealTime

Loop = tuple[str, Callable[[], tuple[Any, Any]], str | None, str]


def loops() -> Iterator[Loop]:
    """Name, maker, limit (None where nothing dominates) and the function to be named, of each loop."""
    real = RealTime()
    for limit, made in PLANTED.items():
        yield from ((loop.__name__, lambda loop=loop: loop(real), limit, "") for loop in made)
    for limit, named in REAL.items():
        yield from ((loop.__name__, lambda loop=loop: loop(real), limit, place) for loop, place in named.items())
    for name, kinds in BALANCED.items():
        yield f"balanced: {name}", lambda kinds=kinds: planted_loops.mixture(real, *kinds), None, ""


def judged(loop: Loop, budget_s: float) -> tuple[str, float]:
    """How the loop was judged, in a word, and the seconds it took; prints what was found.

    Right is who names the loop's limit and its function. In doubt is a wrong answer that says that the machine was
    busy, and why it may be wrong.
    """
    name, make, limit, place = loop
    step, batches = make()
    start = time.perf_counter()
    found = lab.profiling.find_bottleneck(step, batches, budget_s=budget_s)
    took_s = time.perf_counter() - start
    right = found.dominant == limit and found.where.startswith(place)
    word = "right" if right else "in doubt" if found.busy else "WRONG"
    shares = ", ".join(f"{limit} {share:.0%}" for limit, share in found.shares.items() if share > 0.02)
    print(f"{word}  {name}: {shares}{'; busy' * bool(found.busy)}; {took_s:.1f} s", flush=True)
    return word, took_s


@contextlib.contextmanager
def busy(n: int) -> Iterator[None]:
    """Let n programs loop within the block, strangers to this one: what it started itself wouldn't count as busy."""
    # Their CPU time is limited: a benchmark that is killed leaves them running.
    start = f"ulimit -t 900; {sys.executable} -c 'while True: pass' >/dev/null & echo $!"
    programs = [int(subprocess.run(["sh", "-c", start], stdout=subprocess.PIPE, check=True).stdout) for _ in range(n)]
    try:
        yield
    finally:
        for program in programs:
            os.kill(program, signal.SIGKILL)


def main() -> None:
    """Judge all loops twice."""
    budget_s = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    lab.measure_ceilings()
    chosen = [loop for loop in loops() if all(word in loop[0] for word in sys.argv[2:])]
    for n in (0, 2):
        with busy(n):
            found = [judged(loop, budget_s) for loop in chosen]
        counted, longest_s = Counter(word for word, _ in found), max(took_s for _, took_s in found)
        words = ", ".join(f"{count} {word}" for word, count in counted.items())
        print(f"Beside {n} busy loops: {words}; at most {longest_s:.1f} s each\n")


if __name__ == "__main__":
    main()
