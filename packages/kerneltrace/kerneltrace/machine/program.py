"""What a traced kernel and its device functions are made of: places in their source
that report, and counters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.event_log import EventLog
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.needs import Waits

INTEGER_DIVISION = 20
"""Instructions of a division of integers by what the compiler doesn't know (CUDA C++
Programming Guide, "Integer Arithmetic").
"""


class Operations(NamedTuple):
    """Numbers of operations, and of the machine instructions that they are expected to
    become.
    """

    flop: int = 0
    integer: int = 0
    instructions: int = 0
    """A product and the sum it goes into are one. Arithmetic on indices is none: most
    of it is part of an address.
    """
    double: int = 0
    """Of the instructions, those on float64."""
    special: int = 0
    """Of the instructions, divisions and mathematical functions of float32."""
    tensor: int = 0
    """FLOP of matrix instructions, as float16 takes as long for: 1 of TF32 counts as 2,
    and 2 of 8 bits as 1. Those on float64 are in the next.
    """
    tensor_double: int = 0
    """FLOP of matrix instructions on float64."""
    products: int = 0
    """Products of matrix instructions, of whatever type, each with its sum."""
    divisions: int = 0
    """Of the instructions, those of divisions of integers by what no compiler knows."""
    local: int = 0
    """Loads and stores of local memory."""

    def plus(self, other: Operations, times: int = 1) -> Operations:
        """These and `times` as many as `other` has."""
        return Operations(*(a + times * b for a, b in zip(self, other, strict=True)))


NOTED = ("double", "divisions", "local")
"""The fields of Operations of which a program notes the lines."""


def issues(block: Any, warp: Any) -> Any:
    """How many threads execute something, in how many warps, and in how few those of
    each block would fit.

    `block` and `warp` are the numbers of theirs, ascending.
    """
    warps = np.count_nonzero(np.diff(warp, prepend=-1))
    fewest = (-(-np.bincount(block) // WARP)).sum()
    return np.array([len(warp), warps, fewest])


@dataclass(frozen=True)
class Site:
    """A place in a kernel's source that logs events."""

    kind: str
    """load, store, atomic, branch, for, while, call, barrier, warp, fence or array."""
    line: int
    function: str
    """The kernel's name, or a device function's name followed by ()."""
    text: str
    """The source of the expression."""
    operations: Operations
    """Operations done each time the site logs: those of a branch's condition."""
    call: str = ""
    """The function of `cuda` that is called here, whatever name it has in the source:
    atomic.add, shfl_sync.
    """
    used: bool = True
    """Whether the source uses what that call returns."""
    waits: Waits = (0, False)
    file: str = ""
    """Where the source of Python is."""


class Program:
    """A kernel and the device functions it calls, instrumented for one run."""

    def __init__(
        self,
        log: EventLog,
        constant: Callable[[Any, str], Any],
        divided_by_zero: Callable[[int, int], None],
    ) -> None:
        """`constant(array, name)` places an array that the kernel takes from its
        surroundings in constant memory.

        `divided_by_zero(key, dividend)` reports a division of integers.
        """
        self.log = log
        self.constant = constant
        self.rewritten: dict[Any, Any] = {}
        """As reuse.Rewritten, functions by their Python function and types; None while
        one is being rewritten.
        """
        self.divided_by_zero = divided_by_zero
        # numbers start at 1: a key of 0 means a paused thread
        self.sites = [Site("none", 0, "", "", Operations())]
        self.counters: list[Any] = []
        """How often threads executed each straight run of statements, warps did, and as
        few warps as possible would.
        """
        self.counted: list[Operations] = []
        """Operations of each such run."""
        self.counted_at: list[tuple[str, int]] = []  # the function and the line of each
        self.files: set[str] = set()
        self.functions: dict[Any, Callable[..., Any] | None] = {}
        """Those of the run."""
        self.lines: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """By a field of Operations (double, divisions, local) the lines that have such
        operations, and the first such expression of each.
        """
        self.in_memory: set[str] = set()
        """Local arrays that are in memory, and not in registers."""
        self.names_float64 = False
        """Whether a function of the kernel names the type float64."""
        self.is_typed = True
        """Whether numba typed the functions, without which operations
        are not counted.
        """
        self.lanes: Any = None
        """The threads, where they run in lockstep."""
        self.pauses = False
        """As in LaunchSettings."""
        self.registers = 0
        """A thread's, as the compiler says, or 0."""
        self.spill_bytes = 0
        """Bytes a thread of spilled registers that the compiler stores and loads."""
        self.is_triton = False
        """Whether Triton compiled the kernel."""
        self.votes = False
        """Whether a barrier of the kernel carries a predicate."""

    def note(self, lines: Mapping[str, dict[int, str]]) -> None:
        """Add to `lines`."""
        for kind, texts in lines.items():
            self.lines[kind] |= texts

    def counter(self, operations: Operations, function: str, line: int) -> int:
        """The number of a new counter, for a run of statements that are executed
        together and begin in that line.
        """
        self.counters.append(np.zeros(3, int))
        self.counted.append(operations)
        self.counted_at.append((function, line))
        return len(self.counters) - 1

    def count_block(self, times: list[list[int]]) -> None:
        """Count what the threads of a block executed, each `times` for each counter,
        lanes together where they can.
        """
        by_thread = np.array(times)  # (threads, counters)
        by_warp = np.maximum.reduceat(by_thread, np.arange(0, len(times), WARP))
        threads = by_thread.sum(axis=0)
        warps = by_warp.sum(axis=0)
        fewest = np.maximum(by_thread.max(axis=0), -(-threads // WARP))
        rows = np.stack([threads, warps, fewest], axis=1)  # (counters, 3)
        for counter, row in zip(self.counters, rows, strict=True):
            counter += row
