"""Which function and line of Python a thread spends its time in, from samples of its stack."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import opcode
import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import FrameType

_EVERY_S = 2e-2  # between samples: each wakes a thread, for which the one that is watched may have to wait
_AT_ONCE_S = 5e-6  # until Python asks a thread to let another one run; by default it is 5 ms
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} - {None})
_COLLECTIVES = f"{os.sep}torch{os.sep}distributed{os.sep}"
WAITING = ", in a collective"
_OWN = f"{Path(__file__).parent}{os.sep}"  # of this package, which runs the experiments

Lines = Counter[tuple[str, str, int]]  # function, file and line -> seconds


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Within the block, Python's garbage collector doesn't start by itself.

    Python 3.11 may start it while it makes a frame object. What it runs can let another thread go on and return from
    that frame: to read it is then an error, or the end of the process (python/cpython#106883).
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        (gc.enable if was else gc.disable)()


class StackSamples:
    """Where one thread spends its time, from samples of its stack: `seen` has when, where, and the seconds since.

    When is what stood in `now`, which its owner sets. A place is the innermost function that is part of no library:
    what a library does counts for the line that calls it.
    """

    def __init__(self) -> None:
        self.now, self.seen = 0, list[tuple[int, tuple[str, str, int], float]]()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take samples of the calling thread within the block, by another thread.

        It has to run at once: a thread that isn't asked to let it run goes on to the next call that does, mostly one of
        torch, which all samples of short work in Python would name. Where the loop has threads of its own, they aren't
        made to take turns more often than they do: there, work of less than 5 ms counts for that next call.
        """
        thread, taking = threading.get_ident(), threading.Lock()

        def sample() -> None:
            if sys.platform == "linux":  # PR_SET_TIMERSLACK: each short wait would end 50 µs late, see prctl(2)
                ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)
            last_s = perf_counter()
            # A call that lets no other thread run delays its sample, which counts more, and which has to be taken at
            # once: waiting for an Event would run Python code first, and the thread could go on meanwhile.
            while not taking.acquire(timeout=_EVERY_S):
                with no_collection():
                    self.take(sys._current_frames().get(thread), perf_counter() - last_s)
                last_s = perf_counter()

        sampler = threading.Thread(target=sample, daemon=True)
        with no_collection():
            others = any(place_of(frame) for one, frame in sys._current_frames().items() if one != thread)
        with contextlib.ExitStack() as after:
            if (usual_s := sys.getswitchinterval()) > _AT_ONCE_S and not others:
                after.callback(sys.setswitchinterval, usual_s)
                sys.setswitchinterval(_AT_ONCE_S)
            after.callback(sampler.join)
            after.enter_context(taking)
            sampler.start()
            yield

    def take(self, frame: FrameType | None, lasted_s: float) -> None:
        """Take one sample: `frame` is the thread's innermost, `lasted_s` the seconds since the sample before."""
        if place := place_of(frame):
            self.seen.append((self.now, place, lasted_s))


def longest(lines: Lines) -> str:
    """The function with the most seconds and its longest line, "name (file, line 3)"; "" without any."""
    seconds = lambda at: (sum(lines[each] for each in lines if each[:2] == at[:2]), lines[at])  # noqa: E731
    name, file, line = max(lines, key=seconds, default=("", "", 0))
    return f"{name} ({file}, line {line})" if file else ""


def place_of(frame: FrameType | None) -> tuple[str, str, int] | None:
    """The function, its file and the line; None if the thread is in no code that the experiment has called.

    A function that has called a collective, in which it waits for other ranks, is named with WAITING.
    """
    waiting = ""
    if frame is not None and frame.f_code.co_code[frame.f_lasti] == opcode.opmap["RESUME"]:  # so far, its caller worked
        frame = frame.f_back
    while frame is not None and not (path := frame.f_code.co_filename).startswith(_OWN):
        name = frame.f_code.co_name
        if not path.startswith((*_LIBRARIES, "<frozen")) and not name.endswith(("comp>", "genexpr>")):
            return name + waiting, "a cell" if "ipykernel_" in path else Path(path).name, frame.f_lineno
        waiting = waiting or WAITING * (_COLLECTIVES in path)
        frame = frame.f_back
    return None
