"""Run a program as in a browser's Python: `python run_without.py FILE` refuses the
imports that a browser can't make, threads and processes.

It shows what is missing there, and not how fast or how large a browser is.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

# packages that aren't built for browsers, and modules that Pyodide leaves out
ABSENT = (
    *("torch", "numba", "cupy", "triton", "cloudpickle", "zmq", "steptime"),
    *("fcntl", "grp", "pwd", "resource", "syslog", "termios", "pty", "tty"),
    *("curses", "dbm", "ssl", "sqlite3", "_multiprocessing", "_posixshmem"),
)


class Without:
    """A finder of modules that finds those of ABSENT no more."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, *rest: Any) -> Any:
        """What the finder says; None for what is absent."""
        if name.partition(".")[0] in ABSENT:
            return None
        return self._finder.find_spec(name, *rest)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("can't start new thread")


def _no_process(*_: Any, **__: Any) -> NoReturn:
    raise OSError(138, "emscripten does not support processes.")


def main(program: str) -> None:
    """Run the program."""
    for name in ABSENT:
        sys.modules.pop(name, None)
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    sys.path[:0] = [str(Path(__file__).with_name("browser"))]
    threading.Thread.start = _refuse  # type: ignore[method-assign]
    subprocess.Popen.__init__ = _no_process  # type: ignore[method-assign]
    os.fork = _no_process
    del time.thread_time
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
