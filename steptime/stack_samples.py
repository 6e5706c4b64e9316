"""Which function and line of Python a thread spends its time in, from samples of its stack."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep
from types import FrameType

_EVERY_S = 1e-3
_SWITCH_S = 1e-4  # Python's own 5 ms would move most samples out of Python code, into calls that free the interpreter
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} - {None})
_OWN = f"{Path(__file__).parent}{os.sep}"  # of this package, which runs the experiments


class StackSamples:
    """Where one thread spends its time, from samples of its stack, each with the seconds since the one before.

    A place is the innermost function that is part of no library: what a library does counts for the line that calls it.
    Samples wait until `keep` or `drop` decides about them, so that only chosen stretches of time count.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._waiting: list[tuple[tuple[str, str], int, float]] = []

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take samples of the calling thread within the block, by another thread."""
        thread, taking = threading.get_ident(), [True]

        def sample() -> None:
            last_s = perf_counter()
            while taking:
                # A call that lets no other thread run delays its sample, which counts more, and which has to be taken
                # at once: waiting for an Event would run Python code first, and the thread could go on meanwhile.
                sleep(_EVERY_S)
                self.take(sys._current_frames().get(thread), perf_counter() - last_s)
                last_s = perf_counter()

        sampler, before = threading.Thread(target=sample, daemon=True), sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        sampler.start()
        try:
            yield
        finally:
            taking.clear()
            sampler.join()
            sys.setswitchinterval(before)

    def take(self, frame: FrameType | None, lasted_s: float) -> None:
        """Take one sample: `frame` is the thread's innermost, `lasted_s` the seconds since the sample before."""
        if place := _place(frame):
            self._waiting.append((*place, lasted_s))

    def keep(self, seconds: float) -> None:
        """Count the samples that wait: they share `seconds`, in which waits for a core are not included."""
        each_s = seconds / max(sum(lasted_s for *_, lasted_s in self._waiting), 1e-9)
        for function, line, lasted_s in self._waiting:
            self._lines[function][line] += each_s * lasted_s
        self.drop()

    def drop(self) -> None:
        """Forget the samples that wait."""
        self._waiting = []

    @property
    def most(self) -> tuple[str, float]:
        """The function with the most time and its longest line, "name (file, line 3)", and its share of all samples."""
        seconds = {function: sum(lines.values()) for function, lines in self._lines.items()}
        if not seconds:
            return "", 0.0
        function = max(seconds, key=lambda each: seconds[each])
        line = max(self._lines[function], key=lambda each: self._lines[function][each])
        return f"{function[0]} ({function[1]}, line {line})", seconds[function] / sum(seconds.values())


def _place(frame: FrameType | None) -> tuple[tuple[str, str], int] | None:
    """The function, its file and the line; None if the thread is in no code that the experiment has called."""
    while frame is not None and not (path := frame.f_code.co_filename).startswith(_OWN):
        name = frame.f_code.co_name
        if not path.startswith((*_LIBRARIES, "<frozen")) and not name.endswith(("comp>", "genexpr>")):
            return (name, "a cell" if "ipykernel_" in path else Path(path).name), frame.f_lineno
        frame = frame.f_back
    return None
