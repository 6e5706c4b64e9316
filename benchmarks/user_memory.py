"""Memory of one user on a hub: JupyterLab's server, a notebook's kernel, and all that
the kernel starts.

usage: user_memory.py [NN ...] [--users N] [--write]    notebook 00 by default, with
ci's sizes; N kernels are held open at once after they have run the first notebook;
--write keeps the figures for docs/teaching, where `python -m teaching docs` puts them
into the text

The kernel's own figure is its peak resident memory: VmHWM of proc(5), and elsewhere
that of getrusage, which on Linux would count the process that started the kernel too.
What it starts, ranks and workers, is looked at five times a second; pages that
processes share are divided among them, where the system says how.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.classroom import execute, peak_bytes
from labkit.core import results
from labkit.core.paths import NOTEBOOKS, ROOT
from labkit.core.units import GIB
from labkit.measure.machine import machine

# GiB: together the 3 that docs/teaching/setting-up.md asks of a hub for each user
NOTEBOOK = 2
ALL = 2
SERVER = 1
# of a kernel that waits for its reader: with these, 30 need less than the 24 GiB of
# benchmarks/classroom.py
OWN = 0.7
SHARED = 1
_SPARE = 2  # left to the machine's other programs
FIGURES = ROOT / "docs" / "teaching" / "memory.csv"
_LAST_CELL = r"""
import pathlib, re, resource, sys
status = pathlib.Path("/proc/self/status")
peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
kilobytes = int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(kilobytes * (1 if sys.platform == "darwin" else 1024))
"""
_HOLDING_CELL = """
import pathlib, time
pathlib.Path({ready!r}).touch()
while not pathlib.Path({end!r}).exists():
    time.sleep(0.2)
print(0)
"""


def kernel(path: Path) -> tuple[int, int]:
    """Peak bytes of a notebook's kernel, and of the kernel with all that it started.
    RuntimeError where it failed.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-memory-") as folder:
        output, most = asyncio.run(
            _watched(path, {"LABKIT_HOME": folder, "LABKIT_PROFILE": "ci"})
        )
    if output is None:
        raise RuntimeError(f"{path.name} did not run to its end.")
    return int(output), max(most, int(output))


async def _watched(path: Path, environment: dict[str, str]) -> tuple[str | None, int]:
    watching = asyncio.create_task(peak_bytes(0.2))
    output = await execute(path, environment, "pass", _LAST_CELL)
    watching.cancel()
    return output, await watching


class Held(NamedTuple):
    """Bytes of kernels that are open at once: what each has for itself, on average, and
    what they share, which counts once.
    """

    own: float
    shared: int


def held(path: Path, users: int) -> Held:
    """Memory of so many kernels that have all run the notebook and are still open.

    They run it one after another, in the profile smoke: memory is what it is about.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-memory-") as folder:
        return asyncio.run(_held(path, users, Path(folder)))


async def _held(path: Path, users: int, folder: Path) -> Held:
    end = folder / "end"
    tasks = []
    for user in range(users):
        if psutil.virtual_memory().available < _SPARE * GIB:
            raise RuntimeError(
                f"Less than {_SPARE} GiB are left after {user} kernels: this machine"
                f" doesn't hold {users}."
            )
        ready = folder / f"ready-{user}"
        environment = {"LABKIT_HOME": str(folder), "LABKIT_PROFILE": "smoke"}
        last_cell = _HOLDING_CELL.format(ready=str(ready), end=str(end))
        running = execute(path, environment, "pass", last_cell)
        tasks.append(asyncio.create_task(running))
        while not ready.exists() and not tasks[-1].done():
            await asyncio.sleep(0.2)
    kernels = [child.memory_full_info() for child in psutil.Process().children()]
    end.touch()
    outputs = await asyncio.gather(*tasks)
    if None in outputs:
        raise RuntimeError(f"{path.name} did not run to its end in each kernel.")
    own = statistics.mean(memory.uss for memory in kernels)
    return Held(own, max(memory.rss - memory.uss for memory in kernels))


def server() -> int:
    """Bytes of JupyterLab's server once it has answered, without kernels."""
    return started()[0]


def started() -> tuple[int, float]:
    """Bytes of JupyterLab's server once it has answered, without kernels, and the
    seconds of a core that it took until then.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-memory-") as folder:
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ServerApp.port=0",
        ]
        running = subprocess.Popen(
            command, cwd=NOTEBOOKS, env={**os.environ, "JUPYTER_RUNTIME_DIR": folder},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            about = _about(Path(folder, f"jpserver-{running.pid}.json"), running)
            for page in ("lab", "api/kernelspecs", "api/contents"):
                urllib.request.urlopen(
                    f"{about['url']}{page}?token={about['token']}", timeout=60
                ).read()
            process = psutil.Process(running.pid)
            return int(process.memory_info().rss), sum(process.cpu_times()[:4])
        finally:
            running.terminate()
            running.wait()


def _about(file: Path, running: subprocess.Popen[bytes]) -> dict[str, str]:
    """What a server writes into its file once it listens: its address and its token."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and running.poll() is None:
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not there yet, or half written
            time.sleep(0.1)
    raise RuntimeError("JupyterLab's server didn't start: run `make lab` to see why.")


class Figure(NamedTuple):
    """What was measured, by a short name and in words, its target, and its value in
    GiB.
    """

    part: str
    what: str
    target: float
    gib: float


def figures(numbers: Sequence[str] = ("00",), users: int = 0) -> Iterator[Figure]:
    """Each figure as it is there."""
    for number in numbers:
        own, together = kernel(_notebook(number))
        what = f"notebook {number}, ci: its kernel's peak resident memory"
        yield Figure(f"peak {number}", what, NOTEBOOK, own / GIB)
        what = f"notebook {number}, ci: with all that the kernel starts"
        yield Figure(f"all {number}", what, ALL, together / GIB)
    what = "JupyterLab's server, without kernels"
    yield Figure("server", what, SERVER, server() / GIB)
    if users:
        each = held(_notebook(numbers[0]), users)
        what = f"each of {users} kernels that have run notebook {numbers[0]}"
        yield Figure("own", what, OWN, each.own / GIB)
        what = "what these kernels share, once"
        yield Figure("shared", what, SHARED, each.shared / GIB)


def rows(
    numbers: Sequence[str] = ("00",), users: int = 0
) -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure."""
    for figure in figures(numbers, users):
        yield figure.what, figure.target, figure.gib, "GiB"


def _notebook(number: str) -> Path:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


def write(measured: Sequence[Figure]) -> None:
    """Keep the figures where docs/teaching takes them from."""
    here = (machine().name, results.now()[:10])
    with FIGURES.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("part", "what", "gib", "machine", "date"))
        for figure in measured:
            table.writerow((figure.part, figure.what, f"{figure.gib:.2g}", *here))


def main(*words: str) -> None:
    """Measure, and print each figure as it is there."""
    arguments = _parser().parse_args(words)
    measured = []
    for figure in figures(arguments.numbers or ("00",), arguments.users):
        measured.append(figure)
        print(
            f"{'pass' if figure.gib <= figure.target else 'SHORT'}  {figure.what}:"
            f" {figure.gib:.3g} GiB (<= {figure.target:g})",
            flush=True,
        )
    if arguments.write:
        write(measured)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Memory of a user on a hub.")
    parser.add_argument("numbers", nargs="*", metavar="NN")
    parser.add_argument("--users", type=int, default=0, metavar="N")
    parser.add_argument("--write", action="store_true")
    return parser


if __name__ == "__main__":
    main(*sys.argv[1:])
