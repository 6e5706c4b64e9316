"""Which function and line of Python a thread spends its time in, from samples of its
stack.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import opcode
import operator
import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType

import torch

# between samples: each wakes a thread, for which the one that is watched may have to
# wait
_EVERY_S = 2e-2
# until Python asks a thread to let another one run; by default it is 5 ms. The thread
# that waits looks this often whether it is let, at the cost of a core.
_AT_ONCE_S = 5e-5
_LIBRARIES = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    # wherever that lies: it may be in no site-packages (PYTHONPATH, pip --target)
    str(Path(torch.__file__).parent) + os.sep,
    "<frozen",
)
# pip's and Debian's names for a folder of installed packages, of any interpreter
_INSTALLED = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)
_COLLECTIVES = f"{os.sep}torch{os.sep}distributed{os.sep}"
WAITING = ", in a collective"
DRAWING = ", drawing a batch"
# in script_loop, through which a script's loop draws its batches
_DRAWS = "waited_for"
# the files of this package, which runs the experiments
_OWN = f"{Path(__file__).parents[1]}{os.sep}"

Place = tuple[str, str, int]  # function, file and line
Lines = Counter[Place]  # -> seconds
# where a frame of a stack is: its code, the index of its instruction, and its line
At = tuple[CodeType, int, int]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Within the block, Python's garbage collector doesn't start by itself.

    Python 3.11 may start it while it makes a frame object. What it runs can let another
    thread go on and return from that frame: to read it is then an error, or the end of
    the process (python/cpython#106883).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        else:
            gc.disable()


class StackSamples:
    """Where one thread spends its time, from samples of its stack: `seen` has when,
    where, and the seconds since.

    When is what stood in `now`, which its owner sets. A place is the innermost function
    that is part of no library: what a library does counts for the line that calls it.
    In a script's own loop, `in_script`, this package counts as one.
    """

    def __init__(self) -> None:
        self.now = 0
        self.in_script = False
        self.seen = list[tuple[int, Place, float]]()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take samples of the calling thread within the block, by another thread.

        It has to run at once: a thread that isn't asked to let it run goes on to the
        next call that does, mostly one of torch, which all samples of short work in
        Python would name. Where the loop has threads of its own, they aren't made to
        take turns more often than they do: there, work of less than 5 ms counts for
        that next call.
        """
        thread = threading.get_ident()
        taking = threading.Lock()

        def sample() -> None:
            # PR_SET_TIMERSLACK: each short wait would end 50 µs late, see prctl(2)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)
            last_s = perf_counter()
            # A call that lets no other thread run delays its sample, which counts more,
            # and which has to be taken at once. So each turn of this loop asks four
            # iterators in C for their next value, from left to right, without a turn
            # for others. iter(f, last) calls f() for each value, until that is `last`:
            # 1. wait until the time is over (False), or the block has ended (True)
            waits = iter(functools.partial(taking.acquire, timeout=_EVERY_S), True)
            # 2. note whether the garbage collector runs
            collects = iter(gc.isenabled, None)
            # 3. stop it
            stops = iter(gc.disable, "never")
            # 4. read the stack
            stacks = _stacks(thread)
            for _, collected, _, stack in zip(waits, collects, stops, stacks):  # noqa: B905  # the first ends
                if collected:
                    gc.enable()
                self.take(stack, perf_counter() - last_s)
                last_s = perf_counter()

        sampler = threading.Thread(target=sample, daemon=True)
        with no_collection():
            others = any(
                place_of(stack_of(frame))
                for other, frame in sys._current_frames().items()
                if other != thread
            )
        with contextlib.ExitStack() as after:
            usual_s = sys.getswitchinterval()
            if usual_s > _AT_ONCE_S and not others:
                after.callback(sys.setswitchinterval, usual_s)
                sys.setswitchinterval(_AT_ONCE_S)
            after.callback(sampler.join)
            after.enter_context(taking)
            sampler.start()
            yield

    def take(self, stack: Iterable[At], lasted_s: float) -> None:
        """Take one sample: of the thread's stack, innermost first, `lasted_s` seconds
        after the sample before.
        """
        place = place_of(stack, in_script=self.in_script)
        if place is not None:
            self.seen.append((self.now, place, lasted_s))


def stack_of(frame: FrameType | None) -> Iterator[At]:
    """Where a frame and its callers are, innermost first."""
    while frame is not None:
        yield frame.f_code, frame.f_lasti, frame.f_lineno
        frame = frame.f_back


def _stacks(thread: int) -> Iterator[list[At]]:
    """The same of a running thread, as it is when the next stack is asked for.

    This does, for each stack, what list(stack_of(frame)) does. Each step is an iterator
    of the standard library in C: after an instruction of Python, the thread may get its
    turn and go on, and its frames would then tell where it is by then.
    """
    repeat = itertools.repeat
    # the frames of all threads by thread, without end
    all_frames = iter(sys._current_frames, None)
    # of these, the thread's innermost frame
    innermost = map(operator.itemgetter(thread), all_frames)
    # frame, "f_back", "f_back", "f_back", ...
    names = map(itertools.chain, zip(innermost), repeat(repeat("f_back")))
    # getattr(frame, "f_back"), and the same of what that gave: each frame's caller
    callers = map(itertools.accumulate, names, repeat(getattr))
    # until the outermost frame's caller, which is None
    stacks = map(itertools.takewhile, repeat(bool), callers)
    # of each frame, an At
    at = operator.attrgetter("f_code", "f_lasti", "f_lineno")
    places = map(map, repeat(at), stacks)
    # all of these iterators take their steps here
    return map(list, places)


def longest(lines: Lines) -> str:
    """The function with the most seconds and its longest line, "name (file, line 3)";
    "" without any.
    """
    seconds_of_function = Counter[tuple[str, str]]()
    for (function, file, _), seconds in lines.items():
        seconds_of_function[function, file] += seconds

    def function_then_line(place: Place) -> tuple[float, float]:
        function, file, _ = place
        return seconds_of_function[function, file], lines[place]

    if not lines:
        return ""
    function, file, line = max(lines, key=function_then_line)
    return f"{function} ({file}, line {line})"


@functools.cache  # asked of each frame of each sample: a program has few files
def is_library(path: str) -> bool:
    """Whether a file is of Python's library, an installed package, or this one."""
    if path.startswith((*_LIBRARIES, _OWN)):
        return True
    return any(folder in path for folder in _INSTALLED)


def place_of(stack: Iterable[At], *, in_script: bool = False) -> Place | None:
    """The function, its file and the line; None if the thread is in no code that the
    experiment has called.

    `in_script`, where a script calls this package, that counts for the script's line;
    the function that draws a batch, which only libraries make, is named with DRAWING.

    A function that has called a collective, in which it waits for other ranks, is named
    with WAITING.
    """
    waits = ""
    for depth, (code, last, line) in enumerate(stack):
        path = code.co_filename
        if path.startswith(_OWN) and not in_script:
            return None
        if path.startswith(_OWN) and code.co_name == _DRAWS:
            waits = DRAWING
        # so far, its caller worked
        if depth == 0 and code.co_code[last] == opcode.opmap["RESUME"]:
            continue
        within_line = code.co_name.endswith(("comp>", "genexpr>"))
        if not within_line and not is_library(path):
            file = "a cell" if "ipykernel_" in path else Path(path).name
            in_no_function = code.co_name == "<module>"
            function = "module level" if in_no_function else code.co_name
            return function + waits, file, line
        if _COLLECTIVES in path:
            waits = WAITING
    return None
