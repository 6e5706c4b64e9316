"""Run a Triton kernel's Python on NumPy, program by program, and note what it asks and what it does wrong."""

from __future__ import annotations

import inspect
import math
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.arguments import as_number, brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.judge.findings import Finding
from kerneltrace.log.grid import Dim3, place, place_name
from kerneltrace.log.traced_memory import Array
from kerneltrace.tiles.binding import Names
from kerneltrace.tiles.language import Language
from kerneltrace.tiles.memory import KINDS, SLOT, Log, TileArray
from kerneltrace.tiles.tensors import Refused, Tile, constant, pointer_to

MAX_DECISIONS = 10_000
"""Of a program by numbers that it computed: more are taken for an endless loop."""


class Ended(Exception):
    """The run ended early, and a finding says why."""


class Run:
    """One launch: the arrays, the place in the grid, the log, and the mistakes met."""

    def __init__(self, function: Any, grid: Dim3) -> None:
        self.name, self.grid, self.programs = function.__name__, grid, math.prod(grid)
        self.tl, self.log = Language(self), Log()
        self.arrays: list[TileArray] = []
        self.names = Names(self.tl)
        self.found: dict[tuple[str, int, str], list[Any]] = {}
        self.flop = self.special = self.decisions = self.widest = self.staged = 0
        self.dot_flop: Counter[str] = Counter()
        self.program, self.place, self.began = 0, Dim3(0, 0, 0), 0
        self.births: list[tuple[int, str]] = []
        self.clocks: dict[tuple[int, int], dict[int, int]] = {}
        self.known: dict[int, int] = {}
        self.first_access: list[int] = []

    def line(self) -> int:
        """The line of the kernel that runs."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code not in self.names.functions:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    # -- one program after another

    def all(self, function: Any, args: dict[str, Any], programs: int) -> None:
        """Run the first `programs` programs."""
        with np.errstate(all="ignore"):
            try:
                bound = self.names.bound(function)
            except Refused as refused:
                self.mistake("refused", str(refused), refused.line)
                raise Ended from None
            for program in range(programs):
                self.program, self.place = program, place(program, self.grid)
                self.began = len(self.log.rows)
                self.first_access.append(self.began)
                self.known, self.births, self.decisions = {}, [], 0
                try:
                    bound(**args)
                except Refused as refused:
                    self.mistake("refused", str(refused), self._line_of(refused))
                    raise Ended from None
                except (KernelError, Ended):
                    raise
                except Exception as error:
                    line = self._line_of(error)
                    words = str(error).replace("_load()", "tl.load").replace("_store()", "tl.store").rstrip(".")
                    raise KernelError(f"line {line} of {self.name} can't be traced: {words}.") from error

    def _line_of(self, error: BaseException) -> int:
        trace, line = error.__traceback__, 0
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code in self.names.functions else line
            trace = trace.tb_next
        return line

    def where(self) -> str:
        """The program that runs, in words."""
        return f"program {place_name(self.place, self.grid)}"

    def mistake(self, kind: str, words: str, line: int, array: str = "") -> None:
        """Note a mistake: the first of its kind in its line has the words."""
        self.found.setdefault((kind, line, array), [0, words, self.program])[0] += 1

    def decided(self) -> None:
        """Count a decision of Python by a number of the kernel."""
        self.decisions += 1
        if self.decisions > MAX_DECISIONS:
            words = f"{self.where()} loops without end: it may wait for a program that runs after it."
            self.mistake("endless", words, self.line())
            raise Ended

    def computed(self, name: str, out: Tile, *sources: Tile, flop: int = -1, special: bool = False) -> None:
        """Count an operation on floats, and note where NaN comes from."""
        self.flop += out.numel if flop < 0 else flop
        self.widest = max(self.widest, out.data.nbytes)
        self.special += out.numel * special
        if np.isnan(out.data).any() and not any(np.isnan(source.data).any() for source in sources):
            self.births.append((self.line(), name))

    def multiplied(self, dtype: str, flop: int, staged: int) -> None:
        """Count a product of tiles, whose operands have `staged` bytes."""
        self.dot_flop[dtype] += flop
        self.staged = max(self.staged, staged)

    # -- memory

    def load(self, pointer: Tile, active: Array) -> Array:
        """Values for the active lanes; 0 outside of arrays."""
        array, at, good = self._reached("load", pointer, active)
        values = np.zeros(len(at), pointer.dtype.element_ty.numpy)
        if array:
            values[good] = array.read(at[good])
        return values

    def store(self, pointer: Tile, value: Tile, active: Array) -> None:
        """Store the values of the active lanes."""
        array, at, good = self._reached("store", pointer, active)
        if array:
            self._judge(array, value, active)
            at, values = at[good], value.data[active][good]
            array.write(at, values)
            kept = array.read(at)
            if ((kept != values) & ~np.isnan(values) if value.dtype.is_floating() else kept != values).any():
                words = (
                    f"lanes of one tl.store in {self.where()} store different values to one element of {array.name}."
                )
                self.mistake("race", words, self.line(), array.name)

    def atomic(self, pointer: Tile, value: Tile, active: Array, change: Callable[..., Any], sem: Any) -> Array:
        """Change elements, and return what they were."""
        array, at, good = self._reached("atomic", pointer, active)
        old = np.zeros(len(at), value.dtype.numpy)
        if array:
            self._judge(array, value, active)
            new = value.data[active]
            for lane in np.flatnonzero(good):
                old[lane] = array.read(at[lane])
                array.write(at[lane], np.asarray(change(old[lane], new[lane]), value.dtype.numpy))
            if not pointer.shape and sem != "relaxed" and good.all():
                clock = self.clocks.setdefault((array.base, int(at[0])), {})
                for program, time in clock.items():
                    self.known[program] = max(self.known.get(program, 0), time)
                clock.update(self.known)
                clock[self.program] = len(self.log.rows)
        return old

    def _judge(self, array: TileArray, value: Tile, active: Array) -> None:
        """Note values that no load made, and NaN that the kernel made."""
        if value.undefined is not None and (np.broadcast_to(value.undefined, active.shape) & active).any():
            words = (
                f"{self.where()} stores to {array.name} what a masked load left undefined: give that tl.load"
                " other=..., or mask this store."
            )
            self.mistake("undefined", words, self.line(), array.name)
        elif self.births and value.dtype.is_floating() and np.isnan(value.data[active]).any():
            line, name = self.births[0]
            words = f"{name} makes NaN of numbers that are none, and {self.where()} stores it in line {self.line()}."
            self.mistake("nan", words, line, array.name)

    def _reached(self, kind: str, pointer: Tile, active: Array) -> tuple[TileArray | None, Array, Array]:
        """The array that a tile's active lanes reach, their places in it, and which of them lie in it."""
        addresses, line = pointer.data[active], self.line()
        if not addresses.size:
            return None, addresses, addresses == 0
        slot = int(addresses.min()) >> SLOT
        if slot != int(addresses.max()) >> SLOT or not 0 <= slot < len(self.arrays):
            raise Refused(f"This {kind} has pointers that belong to no array, or to several.")
        array = self.arrays[slot]
        at = (addresses - array.base) // array.array.itemsize
        good = (at >= 0) & (at < array.span)
        good[good] = array.inside[at[good]]
        if pointer.wrapped:
            words = f"a number of type int32 leaves its range, and {kind}s of {array.name} in line {line} depend on it:"
            self.mistake("overflow", f"{words} cast to tl.int64 before.", pointer.wrapped, array.name)
        if not good.all():
            words = f"{self.where()} {kind}s {int((~good).sum()):,} elements outside of {array.name}, the first at"
            words += f" {int(at[~good][0]):,} of {array.span:,}: mask them out."
            self.mistake("outside", words, line, array.name)
        if kind != "store" and array.unset and (n := int((array.last[0, at[good]] == 0).sum())):
            words = f"{self.where()} reads {n:,} elements of {array.name} before anything wrote them."
            self.mistake("unset", words, line, array.name)
        self._order(kind, array, at[good], line)
        self.log.add(self.program, line, kind, array.base >> SLOT, at[good])
        return array, at, good

    def _order(self, kind: str, array: TileArray, at: Array, line: int) -> None:
        """Find accesses of other programs that conflict with this one and that nothing orders, and note this one."""
        now = len(self.log.rows) + 1
        others = {"load": ("store", "atomic"), "store": KINDS, "atomic": ("load", "store")}[kind]
        rows = {"store": 0, "load": 1, "atomic": 2}
        for other in others:
            if other not in array.seen:
                continue
            last = array.last[rows[other], at]
            clash = (last > 0) & (last <= self.began)
            if clash.any() and self.known:
                programs = np.searchsorted(self.first_access, last, side="left") - 1
                clash &= last > np.array([self.known.get(program, 0) for program in programs.tolist()])
            if clash.any():
                i = int(np.flatnonzero(clash)[0])
                program, before = self.log.rows[int(last[i]) - 1][:2]
                words = (
                    f"program {place_name(place(program, self.grid), self.grid)} {other}s {array.element(int(at[i]))}"
                    f" (line {before}), {self.where()} {kind}s it (line {line}); programs run in any order."
                )
                self.mistake("race", words, line, array.name)
        array.seen.add(kind)
        row = array.last[rows[kind]]
        row[at] = now if kind == "store" else np.where(row[at], row[at], now)


def arguments(run: Run, function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The kernel's arguments as its programs see them: pointers, numbers as tiles, constants as they are."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        raise KernelError(f"{run.name} takes {', '.join(signature.parameters)}: {error}.") from error
    bound.apply_defaults()
    shared: dict[Any, Any] = {}
    made: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if "constexpr" in str(signature.parameters[name].annotation).lower():
            value = getattr(value, "value", value)
            known = type(value).__module__.startswith("triton.language") and getattr(run.tl, f"{value}", None)
            made[name] = known or value
        elif getattr(value, "shape", None):
            run.arrays.append(TileArray(name, value, len(run.arrays), shared))
            made[name] = Tile(run.tl, run.arrays[-1].base, pointer_to(run.arrays[-1].dtype))
        elif value is None or isinstance(value, bool):
            made[name] = value if value is None else constant(run.tl, value)
        elif (number := as_number(value)) is not None:
            made[name] = constant(run.tl, number)
        else:
            raise KernelError(f"A kernel takes arrays, numbers and tl.constexpr; {name} is {brief_repr(value)}.")
    return made


def findings(run: Run) -> tuple[Finding, ...]:
    """The mistakes met, in the order of their first times; an array that is only read may be NaN."""
    written = {array.name for array in run.arrays if array.seen - {"load"}}
    return tuple(
        Finding(kind, line, words, n, program, array)
        for (kind, line, array), (n, words, program) in run.found.items()
        if kind != "unset" or array in written
    )
