"""Speed figures of labkit with their targets, measured side by side in one run, on a
machine that is otherwise calm.

usage: python -m benchmarks.run [WORDS]    only the figures whose name contains WORDS
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# a benchmark must not add to the reader's results
os.environ["LABKIT_HOME"] = tempfile.mkdtemp(prefix="labkit-bench-")

import torch
import torch.utils.benchmark

import labkit as lab
from benchmarks import (
    frames_alone,
    layouts,
    pipelines,
    planner,
    profiles,
    ranks,
    tracer,
)
from benchmarks.stopwatch import Stopwatch
from exercises.nb23 import counting, puzzles, scores
from labkit.core import results
from labkit.core.display import Table
from labkit.core.paths import RECORDED
from labkit.lesson import boards
from labkit.measure import bench
from trainplan import Layout

ROUNDS = 15


@dataclass(frozen=True)
class Figure:
    """What was measured, its target (None: it has none), and its value in the same
    unit.
    """

    name: str
    target: float | None
    value: float
    unit: str

    def row(self) -> tuple[str, str, str, str]:
        """The cells of the table."""
        value = f"{self.value:.3g} {self.unit}"
        if self.target is None:
            return self.name, "", value, "no target"
        verdict = "pass" if self.value <= self.target else "SHORT"
        return self.name, f"<= {self.target:.3g} {self.unit}", value, verdict


def import_time() -> Iterator[Figure]:
    """Seconds of `import labkit` in a fresh interpreter, and how many heavy packages it
    loads.
    """
    code = (
        "import time; start = time.perf_counter(); import labkit; took ="
        " time.perf_counter() - start; import sys\nheavy = {'torch', 'matplotlib',"
        " 'ipywidgets', 'numba', 'cupy', 'numpy'} & set(sys.modules)\nprint(took,"
        " len(heavy))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        for _ in range(9)
    ]
    pairs = [run.stdout.split() for run in runs]
    yield Figure(
        "import labkit", 0.15, statistics.median(float(took) for took, _ in pairs), "s"
    )
    yield Figure(
        "import labkit: torch, matplotlib, ipywidgets, ... loaded",
        0,
        max(int(n) for _, n in pairs),
        "packages",
    )


def doors() -> Iterator[Figure]:
    """What a constructor costs that judges its arguments, of one that doesn't."""
    samples_s = (0.001,) * 100
    timing = functools.partial(_door_ratio, bench.Timing, "a", 0.001, samples_s, 2)
    layout = functools.partial(_door_ratio, Layout, 64, 8, 2, zero=1)
    yield Figure("a Timing, of one that isn't judged", 5, timing(), "x")
    yield Figure("a Layout, of one that isn't judged", 5, layout(), "x")


def _door_ratio(checked: type, *args: object, **kwargs: object) -> float:
    plain_init = inspect.unwrap(vars(checked)["__init__"])
    unjudged = type(checked.__name__, (checked,), {"__init__": plain_init})
    seconds = [
        min(timeit.repeat(functools.partial(cls, *args, **kwargs), number=5_000))
        for cls in (checked, unjudged)
    ]
    return seconds[0] / seconds[1]


def puzzle_tries() -> Iterator[Figure]:
    """A try at a puzzle of notebook 23, check and score: the slowest of all."""
    lab.check("23.1", counting.solved("23.1"))  # loads numba and the tracer
    seconds = {}
    for number in puzzles.PUZZLES:
        answer = counting.solved(number)
        start = time.perf_counter()
        scores.score(lab.check(number, answer), "T4")
        seconds[number] = time.perf_counter() - start
    slowest = max(seconds, key=lambda number: seconds[number])
    yield Figure(
        f"a try at a puzzle, the slowest ({slowest})", 1, seconds[slowest], "s"
    )


def frames() -> Iterator[Figure]:
    """A frame of a board with three rows, and one of growing curves, each against the
    same picture by matplotlib alone.
    """
    board = boards.SpeedBoard("00.2", "Three rows", unit="images/s")
    for i, name in enumerate(("one", "two", "three"), start=1):
        board.add(name, bench.Timing(name, 1.0, (0.1 * i, 0.11 * i)), items=64)
        board.limit(name, 1000.0)
    board.redraw()
    board_alone = functools.partial(frames_alone.board, *board._frame.size)
    yield _frame_figure("a board", board.redraw, board_alone)
    losses = [1 / (1 + i) for i in range(1000)]
    curves = boards.Curves("A thousand steps")
    curves.series["loss"] = losses
    curves.redraw()
    curves_alone = functools.partial(frames_alone.curves, losses, *curves._frame.size)
    yield _frame_figure("curves", curves.redraw, curves_alone)


def _frame_figure(
    what: str, drawn: Callable[[], object], alone: Callable[[], object]
) -> Figure:
    race = lab.compare({"labkit": drawn, "matplotlib alone": alone})
    own, plain = race.timings
    name = f"a frame of {what} ({1e3 * own.median_s:.0f} ms), of matplotlib's time"
    return Figure(name, 1, own.median_s / plain.median_s, "x")


def board_disturbs() -> Iterator[Figure]:
    """How much a board that redraws during a measured loop changes the loop's median,
    in percent.
    """
    a = torch.randn(512, 512)

    def work() -> None:
        for _ in range(4):
            a @ a

    with lab.threads(1):
        plain = []
        shown = []
        for _ in range(ROUNDS):
            plain.append(lab.time_call(work, label="x", budget_s=0.4).median_s)
            shown.append(
                boards.SpeedBoard("00.2", "x").time("x", work, budget_s=0.4).median_s
            )
    change = statistics.median(s / p for s, p in zip(shown, plain, strict=True)) - 1
    yield Figure(
        "a live board's change of the measured median", 2, 100 * abs(change), "%"
    )


def agreement() -> Iterator[Figure]:
    """Difference of time_call's median from torch.utils.benchmark's, in turn, on calls
    of three lengths, in percent.
    """
    for name, target_s in (("1 ms", 1e-3), ("100 µs", 1e-4), ("10 µs", 1e-5)):
        with lab.threads(1):
            call = _call_of(target_s)
            timer = torch.utils.benchmark.Timer(
                "call()", globals={"call": call}, num_threads=1
            )
            ours = []
            theirs = []
            for _ in range(ROUNDS):
                ours.append(
                    lab.time_call(call, label=name, budget_s=0.1, min_runs=20).median_s
                )
                theirs.append(timer.blocked_autorange(min_run_time=0.1).median)
        ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
        yield Figure(
            f"time_call against torch.utils.benchmark, {name} call",
            5,
            100 * abs(ratio - 1),
            "%",
        )


def _call_of(target_s: float) -> Callable[[], object]:
    """Elementwise work of about `target_s` seconds on one thread."""
    n = 1024
    while True:
        x = torch.ones(n)
        taken_s = lab.time_call(x.exp, label="size", budget_s=0.02).median_s
        if taken_s >= target_s:
            return x.exp
        n = max(n + 64, int(n * min(2.0, target_s / taken_s)))


def false_alarms() -> Iterator[Figure]:
    """Share of comparisons of a function with itself that are called faster or slower,
    in percent.
    """
    a = torch.randn(128, 128)
    with lab.threads(1):
        races = [
            lab.compare(
                {"a": lambda: a @ a, "b": lambda: a @ a}, budget_s=0.1, min_runs=15
            ).ratio("b")
            for _ in range(60)
        ]
    wrong = sum(race.verdict != "no difference seen" for race in races)
    yield Figure(
        "the same function twice called a difference", 10, 100 * wrong / len(races), "%"
    )


def ceilings() -> Iterator[Figure]:
    """Seconds to measure this machine's ceilings from nothing."""
    start = time.perf_counter()
    lab.measure_ceilings(remeasure=True)
    yield Figure("the ceilings of this machine", 10, time.perf_counter() - start, "s")


def results_file() -> Iterator[Figure]:
    """Reading a results file of 20 MB: against json.loads of its lines, a second look,
    and memory.
    """
    text = "".join(
        path.read_text(encoding="utf-8") for path in sorted(RECORDED.glob("*.jsonl"))
    )
    text *= 20_000_000 // len(text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        path.write_text(text, encoding="utf-8")
        start = time.perf_counter()
        for line in text.splitlines():
            json.loads(line)
        json_s = time.perf_counter() - start
        log = results.Results(path)
        start = time.perf_counter()
        log.entries()
        first_s = time.perf_counter() - start
        yield Figure("20 MB of results against json.loads", 8, first_s / json_s, "x")
        again = lab.time_call(log.entries, label="again").median_s
        yield Figure(
            "a second look at them against the first", 0.01, again / first_s, "x"
        )
        # The entries themselves take what their numbers take, and the file repeats
        # them: what a reader pays for is the reading.
        tracemalloc.start()
        fresh_log = results.Results(path)
        entries = fresh_log.entries()
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield Figure(
            f"memory to read them, beyond the {len(entries):,} entries, against the"
            " file",
            0.1,
            (peak_bytes - kept_bytes) / len(text),
            "x",
        )


def traces() -> Iterator[Figure]:
    """Time of lab.trace as a share of numba's simulator's, in percent, and the most
    memory it takes for each access.
    """
    for (name, share), target in zip(
        tracer.shares().items(), (3.3, 3.3, 3.3, 3.3, 20), strict=True
    ):
        yield Figure(
            f"trace of a {name}, of numba's simulator's time", target, 100 * share, "%"
        )
    for name, share in tracer.simulator_shares().items():
        yield Figure(
            f"launch of a {name} under simulate, of numba's simulator's time",
            100,
            100 * share,
            "%",
        )
    for name, share in tracer.compiled_shares().items():
        yield Figure(
            f"trace of a compiled {name}, of its Python source's time",
            3,
            share,
            "times",
        )
    for name, used in tracer.bytes_an_access().items():
        yield Figure(f"memory of a trace, {name}", 100, used, "bytes an access")


def profiling() -> Iterator[Figure]:
    """What profile_step adds to a step of 20 ms, in percent, and the seconds that a
    verdict takes.
    """
    for name, target, value, unit in profiles.rows():
        yield Figure(name, target, value, unit)


def input_pipeline() -> Iterator[Figure]:
    """What the pipeline of notebook 08 lacks to its ceiling, and its time as a share of
    the naive one's, in percent.
    """
    share, gain = pipelines.shares()
    yield Figure(
        "the input pipeline falls short of the synthetic ceiling by",
        10,
        100 * (1 - share),
        "%",
    )
    yield Figure("the input pipeline's time, of the naive one's", 20, 100 / gain, "%")


def schedules() -> Iterator[Figure]:
    """Seconds to check and play the interleaved schedule of 64 ranks, 512 micro-batches
    and 4 chunks: 262,144 steps.
    """
    order = lab.schedule.interleaved(64, 512, 4)
    took = lab.time_call(
        lambda: lab.schedule.simulate(order), label="simulate", budget_s=10
    ).median_s
    yield Figure("simulate 64 ranks x 512 micro-batches x 4 chunks", 1, took, "s")


def searches() -> Iterator[Figure]:
    """Seconds to find the best layout of a trillion parameters on 4,096 GPUs, and what
    its choices lose, in percent.
    """
    for name, target, value, unit in layouts.figures():
        yield Figure(name, target, value, unit)


def cluster_planner() -> Iterator[Figure]:
    """The planner's errors on published runs, in percent; the targets are other
    planners' errors on the same runs.
    """
    for name, target, value, unit in planner.rows():
        yield Figure(name, target, value, unit)


def launches() -> Iterator[Figure]:
    """Seconds of a launch after the first, and its share of spawn's
    time, in percent.
    """
    for name, target, value, unit in ranks.rows():
        yield Figure(name, target, value, unit)


GROUPS = (
    import_time,
    doors,
    puzzle_tries,
    frames,
    board_disturbs,
    agreement,
    false_alarms,
    ceilings,
    results_file,
    traces,
    profiling,
    input_pipeline,
    schedules,
    searches,
    cluster_planner,
    launches,
)


def main(words: str, watch: Stopwatch) -> None:
    """Measure and print the table."""
    with watch.part("start"):
        machine = lab.start()
    rows = []
    for group in GROUPS:
        if words in group.__name__:
            with watch.part(group.__name__):
                rows += [figure.row() for figure in group()]
    print(
        Table(
            tuple(rows),
            ("figure", "target", "this machine", ""),
            f"Benchmarks on {machine.name}",
        )
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", Stopwatch())
