"""How many of the planted loops find_bottleneck names rightly, alone and beside two
busy loops, and how long it takes.

Target: all of them alone, and none wrongly beside the busy loops, where an answer may
be in doubt. The tests judge the same loops in virtual time. Exit status 1 if the target
is missed.

usage: python -m benchmarks.bottlenecks [BUDGET_S] [WORDS]    seconds for each loop
(default 2); loops named so
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import spawn

import labkit as lab
from test_steptime import loops_communication as communication, planted_loops

Loop = tuple[str, Callable[[], tuple[Any, Any]], str | None, str]


def loops() -> Iterator[Loop]:
    """Name, maker, limit (None where nothing dominates) and the function to be named,
    of each loop.
    """
    real = planted_loops.RealTime()
    yield from (
        (loop.name, partial(loop.build, real), loop.limit, loop.cause)
        for loop in planted_loops.STEPS
        if loop.real
    )
    for kinds in planted_loops.BALANCED:
        make = partial(planted_loops.mixture, real, *kinds)
        yield f"balanced: {', '.join(kinds)}", make, None, ""


def judged(loop: Loop, budget_s: float) -> tuple[str, float]:
    """How the loop was judged, in a word, and the seconds it took; prints what was
    found.

    Right is who names the loop's limit and its function. In doubt is a wrong answer
    that says why it may be wrong.
    """
    name, make, limit, place = loop
    step, batches = make()
    start = time.perf_counter()
    bottleneck = lab.profiling.find_bottleneck(step, batches, budget_s=budget_s)
    took_s = time.perf_counter() - start
    right = bottleneck.dominant == limit and bottleneck.line.startswith(place)
    if right:
        word = "right"
    elif bottleneck.doubt:
        word = "in doubt"
    else:
        word = "WRONG"
    shares = ", ".join(
        f"{limit} {share:.0%}"
        for limit, share in bottleneck.shares.items()
        if share > 0.02
    )
    doubt = "; in doubt" * bool(bottleneck.doubt)
    print(f"{word}  {name}: {shares}{doubt}; {took_s:.1f} s", flush=True)
    return word, took_s


@contextlib.contextmanager
def busy(n: int) -> Iterator[None]:
    """Let n programs loop within the block, strangers to this one: what it started
    itself wouldn't count as busy.
    """
    # Their CPU time is limited: a benchmark that is killed leaves them running.
    start = (
        f"ulimit -t 900; {sys.executable} -c 'while True: pass' >/dev/null & echo $!"
    )
    programs = [
        int(
            subprocess.run(
                ["sh", "-c", start], stdout=subprocess.PIPE, check=True
            ).stdout
        )
        for _ in range(n)
    ]
    try:
        yield
    finally:
        for program in programs:
            os.kill(program, signal.SIGKILL)


def exchange_judged(planted: str) -> tuple[str, float]:
    """The same for two ranks whose step is almost nothing but communication."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        arguments = f"{folder}/meeting", f"{folder}/limit", planted
        spawn(communication.exchange, arguments, nprocs=2)
        limits = [
            json.loads(Path(f"{folder}/limit-{rank}").read_text()) for rank in range(2)
        ]
    took_s = time.perf_counter() - start
    busy = any(limit["busy"] for limit in limits)
    right = all(limit["dominant"] == "communication" for limit in limits)
    if right:
        word = "right"
    elif busy:
        word = "in doubt"
    else:
        word = "WRONG"
    shares = ", ".join(f"{limit['shares']['communication']:.0%}" for limit in limits)
    print(
        f"{word}  {planted} of two ranks: communication {shares}{'; busy' * busy};"
        f" {took_s:.1f} s",
        flush=True,
    )
    return word, took_s


def main() -> int:
    """Judge all loops twice; the exit status."""
    budget_s = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    lab.measure_ceilings()
    chosen = [loop for loop in loops() if all(word in loop[0] for word in sys.argv[2:])]
    exchanges = [
        name
        for name in communication.EXCHANGES
        if all(word in name for word in sys.argv[2:])
    ]
    missed = 0
    for n in (0, 2):
        with busy(n):
            results = [judged(loop, budget_s) for loop in chosen] + [
                exchange_judged(name) for name in exchanges
            ]
        counted = Counter(word for word, _ in results)
        longest_s = max(took_s for _, took_s in results)
        words = ", ".join(f"{count} {word}" for word, count in counted.items())
        missed += counted["WRONG"] + (counted["in doubt"] if n == 0 else 0)
        print(f"Beside {n} busy loops: {words}; at most {longest_s:.1f} s each\n")
    print("The target is missed." if missed else "The target is met.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
