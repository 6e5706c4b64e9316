"""A class on one machine: many kernels run notebook 00 at once. What they measure is right or marked, and none is lost.

usage: classroom.py [KERNELS ...]    12 and 30 by default, as `make bench-class` does

Lost is a line that a kernel has appended, as `Results.append` told it, and that its results file doesn't hold. How many
lines a kernel appends depends on the others: of those that share a folder, only the first keeps a hint that it shows.
One process starts all kernels: Jupyter's own search for free ports collides when several processes do it at once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbclient
import nbformat
import psutil

from labkit.core.paths import NOTEBOOKS
from labkit.core.results import Measurement, from_line
from labkit.core.units import GIB, format_seconds

NOTEBOOK = NOTEBOOKS / "00_start_here.ipynb"
RATE = "00.2 one thread"
CLOSE = 0.2  # of a calm run's rate
CLASSES = (12, 30)
PROFILES = ("ci", "full")  # docs/teaching/setting-up.md recommends the first for a class
MARKED = 0.5  # of the readings, at most
_ONE_READER = 12  # kernels: up to so many share a folder of results, in larger classes each has its own
LOG = "LABKIT_BENCHLOG"  # the environment variable with the file in which a kernel notes what it has appended
FIRST_CELL = f"""
import os
from labkit.core import results

def _append(log, entry, append=results.Results.append):
    append(log, entry)
    with open(os.environ["{LOG}"], "a", encoding="utf-8") as file:
        file.write(results.to_line(entry) + "\\n")

results.Results.append = _append
"""
_LAST_CELL = "from labkit.measure import turns; print(turns.waited_s)"


@dataclass(frozen=True)
class Class:
    """What kernels did: lines they appended, those in their files, each wait for turns (None where a kernel failed)."""

    appended: tuple[str, ...]
    lines: tuple[str, ...]
    waited_s: tuple[float | None, ...]
    took_s: float
    peak_bytes: int

    def rates(self, key: str = RATE) -> list[tuple[float, str]]:
        """Value and mark of each measurement under a key."""
        entries = [from_line(line) for line in self.lines if line in self.appended]  # what is damaged counts as lost
        return [(m.value, m.busy) for m in entries if isinstance(m, Measurement) and m.key == key]

    @property
    def failed(self) -> int:
        """Kernels that died, or in which a cell raised."""
        return self.waited_s.count(None)

    @property
    def lost(self) -> int:
        """Lines that were appended, more often than the files hold them."""
        return (Counter(self.appended) - Counter(self.lines)).total()


def attend(kernels: int, *, shared: bool, profile: str = PROFILES[0]) -> Class:
    """Run notebook 00 with a profile's sizes in so many kernels at once, with one folder of results or one for each."""
    with tempfile.TemporaryDirectory(prefix="labkit-class-") as folder:
        homes = [Path(folder, "all" if shared else str(i)) for i in range(kernels)]
        logs = [Path(folder, f"{i}.jsonl") for i in range(kernels)]
        start_s = time.monotonic()
        waited_s, peak_bytes = asyncio.run(_all(homes, logs, profile))
        took_s = time.monotonic() - start_s
        lines = lines_of(home / "results.jsonl" for home in dict.fromkeys(homes))
        return Class(lines_of(logs), lines, tuple(waited_s), took_s, peak_bytes)


def lines_of(files: Iterable[Path]) -> tuple[str, ...]:
    """The lines of those files that exist, as JSON."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    return tuple(line for text in texts for line in text.split("\n") if line)


async def _all(homes: list[Path], logs: list[Path], profile: str) -> tuple[list[float | None], int]:
    """Each kernel's wait for turns, and the most memory that all had together."""
    watching = asyncio.create_task(_peak_bytes())
    waited_s = await asyncio.gather(*map(_run, homes, logs, itertools.repeat(profile)))
    watching.cancel()
    return list(waited_s), await watching


async def _run(home: Path, log: Path, profile: str) -> float | None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FIRST_CELL))
    notebook.cells.append(nbformat.v4.new_code_cell(_LAST_CELL))
    client = nbclient.NotebookClient(
        notebook, timeout=1200, startup_timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}
    )
    environment = {**os.environ, "LABKIT_HOME": str(home), "LABKIT_PROFILE": profile, LOG: str(log)}
    try:
        await client.async_execute(env=environment)
    except Exception as error:  # whatever a kernel dies of is what this is to find
        print(f"A kernel failed: {' '.join(str(error).split())[-300:]}", file=sys.stderr)
        return None
    return float(notebook.cells[-1].outputs[0].text)


async def _peak_bytes() -> int:
    """The most memory of this process's children, shared pages divided among them, until it is cancelled."""
    most = 0
    try:
        while True:
            each = [_bytes(child) for child in psutil.Process().children(recursive=True)]
            most = max(most, sum(each))
            await asyncio.sleep(3)
    except asyncio.CancelledError:
        return most


def _bytes(process: psutil.Process) -> int:
    try:
        used = process.memory_full_info()
    except psutil.Error:  # it has ended
        return 0
    return int(getattr(used, "pss", used.rss))  # pss is Linux's


def rows(classes: tuple[int, ...] = CLASSES) -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure; what was measured goes to stderr."""
    calm = {profile: attend(1, shared=False, profile=profile) for profile in PROFILES}
    for profile, kernels in itertools.product(PROFILES, classes):
        ((calm_rate, busy),) = calm[profile].rates()
        took = format_seconds(calm[profile].took_s)
        print(f"{profile}, alone: {calm_rate:.0f} images/s in {took}{busy and ', ' + busy}", file=sys.stderr)
        shared = kernels <= _ONE_READER
        one = attend(kernels, shared=shared, profile=profile)
        name = f"{profile}, {kernels} kernels, results {'shared' if shared else 'apart'}"
        print(_words(name, one, calm_rate), file=sys.stderr, flush=True)
        marked = [bool(mark) for _, mark in one.rates()]
        yield f"{name}: readings marked", MARKED, sum(marked) / max(len(marked), 1), "of them"
        wrong = [rate for rate, mark in one.rates() if not mark and abs(rate / calm_rate - 1) > CLOSE]
        yield f"{name}: rates over 20 % off and not marked", 0, len(wrong), "kernels"
        yield f"{name}: dead or with an error", 0, one.failed, "kernels"
        yield f"{name}: results lost", 0, one.lost, "lines"
        yield f"{name}: memory", 24, one.peak_bytes / GIB, "GiB"


def _words(name: str, one: Class, calm_rate: float) -> str:
    rates = one.rates()
    shares = sorted(rate / calm_rate for rate, _ in rates)
    waits = [wait for wait in one.waited_s if wait is not None] or [0.0]
    middle = f"{shares[0]:.2f} to {shares[-1]:.2f}, median {statistics.median(shares):.2f}" if shares else "none"
    return (
        f"{name}: {format_seconds(one.took_s)}; of a calm rate {middle}; {sum(bool(mark) for _, mark in rates)} of "
        f"{len(rates)} marked; waited for turns {format_seconds(statistics.median(waits))} (median), at most "
        f"{format_seconds(max(waits))}; {len(one.appended)} lines appended; {one.peak_bytes / GIB:.1f} GiB"
    )


def main(classes: tuple[int, ...]) -> None:
    """Measure, and print each figure as it is there: a class takes minutes."""
    for name, target, value, unit in rows(classes):
        print(f"{'pass' if value <= target else 'SHORT'}  {name}: {value:.3g} {unit} (<= {target:g})", flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or CLASSES)
