"""A class on one machine: many kernels run notebook 00 at once. What they measure is
right or marked, and none is lost.

usage: classroom.py [ci] [full] [KERNELS ...]    both profiles, 12 and 30 by default, as
`make bench-class` does

A small class shares a folder of results, and takes turns through a folder as a hub's
containers do (LABKIT_TURNS). In a larger one each kernel has results of its own, and
turns go through the machine's own file. Lost is a line that a kernel has appended, as
`Results.append` told it, and that its results file doesn't hold. How many lines a
kernel appends depends on the others: of those that share a folder, only the first keeps
a hint that it shows. One process starts all kernels: Jupyter's own search for free
ports collides when several processes do it at once.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbclient
import nbformat
import psutil

from labkit.core.paths import NOTEBOOKS
from labkit.core.results import Measurement, from_line
from labkit.core.units import GIB, format_seconds

NOTEBOOK = NOTEBOOKS / "00_start_here.ipynb"
COUNTED = "00.5 accuracy"  # no clock is read for it, so it is the same on every machine
# one kernel alone, so many times: the median of each reading is what a class is held
# against
CALM_RUNS = 3
CLOSE = 0.2  # of a calm run's
CLASSES = (12, 30)
# docs/teaching/setting-up.md recommends the first for a class
PROFILES = ("ci", "full")
MARKED = 0.5  # of the readings, at most
_SHARE = 12  # kernels: up to so many share folders of results and of turns
# the environment variable with the file in which a kernel notes what it has appended
LOG = "LABKIT_BENCHLOG"
FIRST_CELL = f"""
import os
from labkit.core import results

def _append(log, entry, append=results.Results.append):
    append(log, entry)
    with open(os.environ["{LOG}"], "a", encoding="utf-8") as file:
        file.write(results.to_line(entry) + "\\n")

results.Results.append = _append

import time
from labkit.measure import turns

_waited_s = []

def _wait(*given, wait=turns._wait):
    start_s = time.monotonic()
    try:
        return wait(*given)
    finally:
        _waited_s.append(time.monotonic() - start_s)

turns._wait = _wait
"""
_LAST_CELL = "print(sum(_waited_s))"


@dataclass(frozen=True)
class Class:
    """What kernels did: lines they appended, those in their files, each wait for turns
    (None where a kernel failed).
    """

    appended: tuple[str, ...]
    lines: tuple[str, ...]
    waited_s: tuple[float | None, ...]
    took_s: float
    peak_bytes: int

    def readings(self) -> list[Measurement]:
        """What a clock was read for, of all kernels."""
        # what is damaged counts as lost
        entries = [from_line(line) for line in self.lines if line in self.appended]
        return [
            m
            for m in entries
            if isinstance(m, Measurement)
            and m.origin == "measured"
            and m.key != COUNTED
        ]

    @property
    def failed(self) -> int:
        """Kernels that died, or in which a cell raised."""
        return self.waited_s.count(None)

    @property
    def lost(self) -> int:
        """Lines that were appended, more often than the files hold them."""
        return (Counter(self.appended) - Counter(self.lines)).total()


def attend(
    kernels: int,
    *,
    shared: bool,
    profile: str = PROFILES[0],
    path: Path = NOTEBOOK,
) -> Class:
    """Run a notebook with a profile's sizes in so many kernels at once, with shared
    folders or each with its own.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-class-") as folder:
        homes = [Path(folder, "all" if shared else str(i)) for i in range(kernels)]
        logs = [Path(folder, f"{i}.jsonl") for i in range(kernels)]
        turns = {"LABKIT_TURNS": folder} if shared else {}
        own = [
            {"LABKIT_HOME": str(home), LOG: str(log)}
            for home, log in zip(homes, logs, strict=True)
        ]
        start_s = time.monotonic()
        waited_s, peak_bytes = asyncio.run(
            _all(
                path,
                [
                    {**turns, **environment, "LABKIT_PROFILE": profile}
                    for environment in own
                ],
            )
        )
        took_s = time.monotonic() - start_s
        lines = lines_of(home / "results.jsonl" for home in dict.fromkeys(homes))
        return Class(lines_of(logs), lines, tuple(waited_s), took_s, peak_bytes)


def lines_of(files: Iterable[Path]) -> tuple[str, ...]:
    """The lines of those files that exist, as JSON."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    return tuple(line for text in texts for line in text.split("\n") if line)


async def _all(
    path: Path,
    environments: Sequence[Mapping[str, str]],
) -> tuple[list[float | None], int]:
    """Each kernel's wait for turns, and the most memory that all had together."""
    watching = asyncio.create_task(peak_bytes())
    outputs = await asyncio.gather(
        *(execute(path, each, FIRST_CELL, _LAST_CELL) for each in environments)
    )
    watching.cancel()
    return [None if text is None else float(text) for text in outputs], await watching


async def execute(
    path: Path, environment: Mapping[str, str], first: str, last: str
) -> str | None:
    """Run a notebook in a kernel of its own, between two cells of code: what the last
    printed; None where it failed.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    client = nbclient.NotebookClient(
        notebook,
        timeout=1200,
        startup_timeout=600,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    try:
        await client.async_execute(env={**os.environ, **environment})
    except Exception as error:  # whatever a kernel dies of is what this is to find
        print(
            f"A kernel failed: {' '.join(str(error).split())[-300:]}", file=sys.stderr
        )
        return None
    return str(notebook.cells[-1].outputs[0].text)


async def peak_bytes(every_s: float = 3.0) -> int:
    """The most memory of this process's children, shared pages divided among them,
    until it is canceled.
    """
    most = 0
    try:
        while True:
            each = [
                _bytes(child) for child in psutil.Process().children(recursive=True)
            ]
            most = max(most, sum(each))
            await asyncio.sleep(every_s)
    except asyncio.CancelledError:
        return most


def _bytes(process: psutil.Process) -> int:
    try:
        used = process.memory_full_info()
    except psutil.Error:  # it has ended
        return 0
    return int(getattr(used, "pss", used.rss))  # pss is Linux's


@dataclass(frozen=True)
class Judged:
    """Each reading's share of a calm run's, by what was read, and
    whether it is marked.
    """

    shares: Mapping[str, Sequence[tuple[float, bool]]]

    @property
    def _all(self) -> list[tuple[float, bool]]:
        return [share for shares in self.shares.values() for share in shares]

    @property
    def close(self) -> float:
        """Which share of the readings is within 20 % of a calm run's."""
        return sum(map(_is_close, self._all)) / max(len(self._all), 1)

    @property
    def marked(self) -> float:
        """Which share of the readings is marked."""
        return sum(mark for _, mark in self._all) / max(len(self._all), 1)

    @property
    def wrong(self) -> int:
        """How many are neither close nor marked."""
        return sum(not (mark or _is_close((share, mark))) for share, mark in self._all)

    def __str__(self) -> str:
        lines = [
            f"{len(self._all)} readings: {self.close:.0%} within 20 % of a calm run's,"
            f" {self.marked:.0%} marked"
        ]
        for key, each in self.shares.items():
            shares = [share for share, _ in each]
            marked = sum(mark for _, mark in each)
            lines.append(
                f"  {key}: {min(shares):.2f} to {max(shares):.2f} of a calm run's,"
                f" median {statistics.median(shares):.2f}; {marked} of {len(each)}"
                " marked"
            )
        return "\n".join(lines)


def _is_close(reading: tuple[float, bool]) -> bool:
    return abs(reading[0] - 1) <= CLOSE


def calm(runs: Sequence[Class]) -> dict[str, float]:
    """The median of each reading over runs of one kernel alone; readings that are
    marked count where all are.
    """
    readings = [m for run in runs for m in run.readings()]
    values: dict[str, list[tuple[bool, float]]] = {}
    for m in readings:
        values.setdefault(m.key, []).append((bool(m.busy), m.value))
    return {
        key: statistics.median(
            [value for mark, value in each if not mark] or [value for _, value in each]
        )
        for key, each in values.items()
    }


def judge(readings: Iterable[Measurement], alone: Mapping[str, float]) -> Judged:
    """Readings held against those of one kernel alone."""
    shares: dict[str, list[tuple[float, bool]]] = {}
    for m in readings:
        shares.setdefault(m.key, []).append((m.value / alone[m.key], bool(m.busy)))
    return Judged(shares)


def rows(
    classes: Sequence[int] = CLASSES, profiles: Sequence[str] = PROFILES
) -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure; what was measured goes to stderr."""
    alone = {}
    for profile in profiles:
        runs = [attend(1, shared=False, profile=profile) for _ in range(CALM_RUNS)]
        if any(run.failed for run in runs):
            raise RuntimeError(
                "One kernel alone did not run notebook 00 to its end: mend that first."
            )
        alone[profile] = calm(runs)
        took = format_seconds(statistics.median(run.took_s for run in runs))
        own = judge([m for run in runs for m in run.readings()], alone[profile])
        print(
            f"{profile}, one kernel alone, {CALM_RUNS} times, {took} each: {own}",
            file=sys.stderr,
            flush=True,
        )
        if own.marked > MARKED:
            print(
                "Other programs run on this machine: repeat it when they have ended.",
                file=sys.stderr,
                flush=True,
            )
    for profile, kernels in itertools.product(profiles, classes):
        shared = kernels <= _SHARE
        group = attend(kernels, shared=shared, profile=profile)
        judged = judge(group.readings(), alone[profile])
        name = (
            f"{profile}, {kernels} kernels,"
            f" {'shared folders' if shared else 'folders of their own'}"
        )
        print(f"{name}: {_words(group)}; {judged}", file=sys.stderr, flush=True)
        yield f"{name}: readings marked", MARKED, judged.marked, "of them"
        yield (
            f"{name}: readings over 20 % off and not marked",
            0,
            judged.wrong,
            "readings",
        )
        yield f"{name}: dead or with an error", 0, group.failed, "kernels"
        yield f"{name}: results lost", 0, group.lost, "lines"
        yield f"{name}: memory", 24, group.peak_bytes / GIB, "GiB"


def _words(run: Class) -> str:
    waits = [wait for wait in run.waited_s if wait is not None]
    middle = format_seconds(statistics.median(waits or [0.0]))
    most = format_seconds(max(waits, default=0.0))
    return (
        f"{len(waits)} of {len(run.waited_s)} kernels finished in"
        f" {format_seconds(run.took_s)}; waited for turns {middle} (median), at most"
        f" {most}; {len(run.appended)} lines appended; {run.peak_bytes / GIB:.1f} GiB"
    )


def main(*words: str) -> None:
    """Measure, and print each figure as it is there: a class takes minutes."""
    profiles = [word for word in words if word in PROFILES] or PROFILES
    classes = [int(word) for word in words if word not in PROFILES] or CLASSES
    for name, target, value, unit in rows(classes, profiles):
        print(
            f"{'pass' if value <= target else 'SHORT'}  {name}: {value:.3g} {unit} (<="
            f" {target:g})",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
