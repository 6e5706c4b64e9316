"""Memory of one user on a hub: JupyterLab's server, a notebook's kernel, and all that
the kernel starts.

usage: user_memory.py [NN ...]    notebook 00 by default, with ci's sizes

The kernel's own figure is its peak resident memory: VmHWM of proc(5), and elsewhere
that of getrusage, which on Linux would count the process that started the kernel too.
What it starts, ranks and workers, is looked at five times a second; pages that
processes share are divided among them, where the system says how.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.classroom import execute, peak_bytes
from labkit.core.paths import NOTEBOOKS
from labkit.core.units import GIB

# GiB: together the 3 that docs/teaching/setting-up.md asks of a hub for each user
NOTEBOOK = 2
ALL = 2
SERVER = 1
_LAST_CELL = r"""
import pathlib, re, resource, sys
status = pathlib.Path("/proc/self/status")
peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
kilobytes = int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(kilobytes * (1 if sys.platform == "darwin" else 1024))
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


def server() -> int:
    """Bytes of JupyterLab's server once it has answered, without kernels."""
    with tempfile.TemporaryDirectory(prefix="labkit-memory-") as folder:
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ServerApp.port=0",
        ]
        started = subprocess.Popen(
            command, cwd=NOTEBOOKS, env={**os.environ, "JUPYTER_RUNTIME_DIR": folder},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            about = _about(Path(folder, f"jpserver-{started.pid}.json"), started)
            for page in ("lab", "api/kernelspecs", "api/contents"):
                urllib.request.urlopen(
                    f"{about['url']}{page}?token={about['token']}", timeout=60
                ).read()
            return int(psutil.Process(started.pid).memory_info().rss)
        finally:
            started.terminate()
            started.wait()


def _about(file: Path, started: subprocess.Popen[bytes]) -> dict[str, str]:
    """What a server writes into its file once it listens: its address and its token."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and started.poll() is None:
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not there yet, or half written
            time.sleep(0.1)
    raise RuntimeError("JupyterLab's server didn't start: run `make lab` to see why.")


def rows(numbers: Sequence[str] = ("00",)) -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure."""
    for number in numbers:
        (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
        own, together = kernel(path)
        yield (
            f"notebook {number}, ci: its kernel's peak resident memory",
            NOTEBOOK,
            own / GIB,
            "GiB",
        )
        yield (
            f"notebook {number}, ci: with all that the kernel starts",
            ALL,
            together / GIB,
            "GiB",
        )
    yield "JupyterLab's server, without kernels", SERVER, server() / GIB, "GiB"


def main(*numbers: str) -> None:
    """Measure, and print each figure as it is there."""
    for name, target, value, unit in rows(numbers or ("00",)):
        print(
            f"{'pass' if value <= target else 'SHORT'}  {name}: {value:.3g} {unit} (<="
            f" {target:g})",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
