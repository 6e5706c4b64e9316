"""How long the planner's page takes to open in Chromium, with Pyodide in its cache.

usage, in the repository's folder: python -m benchmarks.planner_page

It needs `make programs`. "Ready" is when Python and the planner are loaded, "plan" when
a link's plan is drawn, both from when the page was asked for; seconds of the processor
are those of all of Chromium's processes until then. The target is 5 s.
"""

from __future__ import annotations

import functools
import http.server
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from playwright.sync_api import BrowserContext, sync_playwright

from labkit.core.display import Table
from scripts import programs

TARGET_S = 5.0
OPENINGS = 5
QUESTION = "#model=llama3.1-8b&gpu=H100&gpus=64"
PATIENCE_MS = 120_000


class Opening(NamedTuple):
    """Seconds from asking for the page, and of the processor."""

    ready_s: float
    plan_s: float
    processor_s: float


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and Pyodide's files below /pyodide/ to be kept for long."""

    def translate_path(self, path: str) -> str:
        if path.startswith("/pyodide/"):
            return f"{programs.path_of('pyodide')}/{path.removeprefix('/pyodide/')}"
        return super().translate_path(path)

    def end_headers(self) -> None:
        if self.path.startswith("/pyodide/"):
            self.send_header("Cache-Control", "public, max-age=31536000, immutable")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _served() -> Iterator[str]:
    """The address of the page on a server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        handler = functools.partial(_Handler, directory=folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}/"
            file = Path(folder, "planner.html")
            command = [sys.executable, "-m", "trainplan.page", "-o", str(file)]
            command += ["--pyodide", f"{address}pyodide/"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            yield f"{address}{file.name}{QUESTION}"
            server.shutdown()


def _processor_s() -> float:
    """Seconds of the processor that this process's children have taken."""
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        seconds += times.user + times.system
    return seconds


def _opening(context: BrowserContext, address: str) -> Opening:
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    before_s = _processor_s()
    start_s = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    ready_s = time.perf_counter() - start_s
    page.wait_for_selector("#answer .layouts")
    plan_s = time.perf_counter() - start_s
    processor_s = _processor_s() - before_s
    page.close()
    return Opening(ready_s, plan_s, processor_s)


def openings() -> list[Opening]:
    """Several openings of the page in one profile of Chromium, after one that fills its
    cache.
    """
    with (
        tempfile.TemporaryDirectory() as profile,
        _served() as address,
        sync_playwright() as started,
    ):
        context = started.chromium.launch_persistent_context(
            profile,
            executable_path=programs.path_of("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        first, *others = (_opening(context, address) for _ in range(OPENINGS + 1))
        context.close()
    return [first, *others]


def main() -> None:
    """Print how long the first opening took, and the others in the middle."""
    first, *warm = openings()
    middle = Opening(*map(statistics.median, zip(*warm, strict=True)))
    rows = [
        (name, *(f"{seconds:.1f} s" for seconds in opening))
        for name, opening in (("empty cache", first), ("warm cache", middle))
    ]
    headings = ("the planner's page", "ready", "plan", "processor")
    print(Table(tuple(rows), headings))
    verdict = "met" if middle.plan_s <= TARGET_S else "missed"
    busy = psutil.getloadavg()[0]
    print(f"Target of {TARGET_S:g} s to the plan: {verdict}; {busy:.1f} programs run.")


if __name__ == "__main__":
    main()
