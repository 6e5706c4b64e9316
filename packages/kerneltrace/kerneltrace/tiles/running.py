"""Run a Triton kernel's Python on NumPy, program by program, and note what it asks and
what it does wrong.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
import types
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.grid import Dim3, place, place_name
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.triton import python_of
from kerneltrace.tiles.arrays import SLOT, Pages, TileArray
from kerneltrace.tiles.binding import bound
from kerneltrace.tiles.language import TL
from kerneltrace.tiles.tensors import Refused, Tile, constant, pointer_to

KINDS = ("load", "store", "atomic")
_OF_ATOMIC = 300
"""Elements of a tile that take as long as an atomic's lane."""
MAX_DECISIONS = 10_000
"""Of a program by numbers that it computed: more are taken for an endless loop."""


class Ended(Exception):
    """A program goes on for ever, and a finding says so."""


class Access(NamedTuple):
    """A program's tl.load, tl.store or atomic."""

    program: int
    line: int
    kind: int
    """The number in KINDS."""
    array: int
    """The number of the array."""
    pattern: int
    """The number of its lanes' places, relative to the first lane's."""
    base: int
    """The place of the first lane."""


def _active(data: Array, active: Array) -> Array:
    """Numbers of the active lanes, in one row."""
    return data.ravel() if active.all() else data[active]


class TileRun:
    """One launch: the arrays, the place in the grid, the accesses of its programs, and
    the mistakes met.

    An access has a row. Its lanes' places in the array's memory are its base and one of
    the `patterns`, which are few, since a loop's turns touch tiles of one form.
    """

    def __init__(self, function: Any, grid: Dim3) -> None:
        self.name = function.__name__
        self.file = function.__code__.co_filename
        self.grid = grid
        self.programs = math.prod(grid)
        self.tl = TL
        self.arrays: list[TileArray] = []
        self.rows: list[Access] = []
        self.patterns: list[Array] = []
        self._pattern_numbers: dict[bytes, int] = {}
        self.functions: dict[types.CodeType, Any] = {}
        self.mistakes: dict[tuple[str, int, str], list[Any]] = {}
        self._raced: dict[tuple[int, str], Pages] = {}
        self.decisions = 0
        self.line_of_end: int | None = None
        """Where a program goes on for ever."""
        self.elements = 0
        """Of all tiles made so far: what a run costs."""
        self.widest = 0
        """Bytes of the largest tile."""
        self.staged = 0
        """Bytes of the operands of the largest tl.dot."""
        self.work: Counter[str] = Counter()
        """The running program's "flop" and "special", and FLOP of tl.dot by type."""
        self.works: dict[int, Counter[str]] = {}
        """The same of each program that ran."""
        self.program = 0
        self.place = Dim3(0, 0, 0)
        self.ordered = 0
        """Accesses that the running program comes after, by its place or by atomics on
        single elements.
        """
        self.births: list[tuple[int, str]] = []
        self.released: dict[tuple[int, int], int] = {}

    def line(self) -> int:
        """The line of the kernel that runs."""
        for frame, line in traceback.walk_stack(sys._getframe(1)):
            if frame.f_code in self.functions:
                return line
        return 0

    def all(self, function: Any, args: dict[str, Any], programs: Iterable[int]) -> bool:
        """Run programs; False where a mistake ended them early."""
        for program in programs:
            self.program = program
            self.work = self.works[program] = Counter()
            self.place = place(program, self.grid)
            self.began = len(self.rows)
            self.ordered = 0
            self.births = []
            self.decisions = 0
            try:
                with np.errstate(all="ignore"):
                    named = {name: self._usable(arg) for name, arg in args.items()}
                    bound(function, self.functions)(**named)
            except Ended:
                return False
            except Refused as error:
                line = error.line or self._line_of(error)
                self.mistake("refused", str(error), line)
                return False
            except Exception as error:
                words = str(error).rstrip(".")
                if not isinstance(error, KernelError):
                    words = f"{type(error).__name__}: {words}"
                raise KernelError(
                    f"line {self._line_of(error)} of {self.name} can't be traced:"
                    f" {words}."
                ) from error
        return True

    def _usable(self, argument: Any) -> Any:
        """An argument as a program sees it: a function under @triton.jit, alone or in a
        tuple, is one that it calls.
        """
        if isinstance(argument, tuple):
            return tuple(map(self._usable, argument))
        called = python_of(argument)
        is_jitted = called is not argument and inspect.isfunction(called)
        return bound(called, self.functions) if is_jitted else argument

    def _line_of(self, error: Exception) -> int:
        """The innermost line of the kernel's functions that an error passed."""
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code in self.functions
        ]
        return lines[-1] if lines else 0

    def where(self) -> str:
        """The program that runs, in words."""
        return f"program {place_name(self.place, self.grid)}"

    def mistake(
        self, kind: str, words: str, line: int, array: str = "", times: int = 1
    ) -> None:
        """Note a mistake: the first of its kind in its line has the words."""
        key = kind, line, array
        self.mistakes.setdefault(key, [0, words, self.program])[0] += times

    def _race(self, words: str, line: int, array: TileArray, at: Array) -> None:
        """Note a race at places of an array, each of which counts once."""
        key = line, array.name
        if key not in self._raced:
            self._raced[key] = Pages(array.span)
        new = np.unique(at[self._raced[key].read(at) == 0])
        self._raced[key].write(new, 1)
        self.mistake("race", words, line, array.name, len(new))

    def decided(self) -> None:
        """Count a decision of Python by a number of the kernel."""
        self.decisions += 1
        if self.decisions > MAX_DECISIONS:
            words = (
                f"{self.where()} loops without end: it may wait for a program that runs"
                " after it."
            )
            self.line_of_end = self.line()
            self.mistake("endless", words, self.line_of_end)
            raise Ended

    def keep(self, programs: int) -> None:
        """Forget what ended a program, and all programs but the first `programs`."""
        self.mistakes.pop(("endless", self.line_of_end or 0, ""))
        self.line_of_end = None
        self.rows = [row for row in self.rows if row.program < programs]

    def computed(
        self,
        name: str,
        out: Tile,
        *sources: Tile,
        flop: int = -1,
        special: bool = False,
    ) -> None:
        """Count an operation on floats, and note where NaN comes from."""
        self.work["flop"] += out.numel if flop < 0 else flop
        self.widest = max(self.widest, out.data.nbytes)
        if special:
            self.work["special"] += out.numel
        has_nan = bool(np.isnan(out.data).any())
        if has_nan and not any(np.isnan(source.data).any() for source in sources):
            self.births.append((self.line(), name))

    def access(
        self,
        kind: str,
        pointer: Tile,
        active: Array,
        value: Any = None,
        change: Any = None,
        sem: Any = None,
    ) -> Array:
        """Load, store or change the elements of the active lanes, and return what they
        were; 0 outside of arrays.

        `change` makes an element's new value of its old one and the lane's; on a single
        element it orders programs.
        """
        addresses = _active(pointer.data, active)
        old = np.zeros(
            len(addresses), pointer.dtype.element_ty.numpy
        )  # (active lanes,)
        if not addresses.size:
            return old
        array, at, good = self._found(kind, pointer, addresses)
        if value is not None:
            self._judge(array, value, active)
        if kind == "load":
            old[good] = array.read(at)
        elif kind == "store":
            self._store(array, at, _active(value.data, active)[good])
        else:
            new = _active(value.data, active)
            self.elements += _OF_ATOMIC * at.size
            for element, lane in zip(at, np.flatnonzero(good), strict=True):
                old[lane] = array.read(element)
                changed = np.asarray(change(old[lane], new[lane]), old.dtype)
                array.write(element, changed)
            if not pointer.shape and sem != "relaxed" and good.all():
                key = array.base, int(at[0])
                self.ordered = max(self.ordered, self.released.get(key, 0))
                self.released[key] = len(self.rows)
        return old

    def _store(self, array: TileArray, at: Array, values: Array) -> None:
        array.write(at, values)
        stored = array.read(at)
        lost = stored != values
        if values.dtype.kind == "f":
            lost &= ~(np.isnan(stored) & np.isnan(values))
        if lost.any():
            words = (
                f"lanes of one tl.store in {self.where()} store different values to one"
                f" element of {array.name}."
            )
            self._race(words, self.line(), array, at[lost])

    def _judge(self, array: TileArray, value: Tile, active: Array) -> None:
        """Note values that no load made, and NaN that the kernel made."""
        if not value.is_defined and (value.undefined & active).any():
            words = (
                f"{self.where()} stores to {array.name} what a masked load left"
                " undefined: give that tl.load other=..., or mask this store."
            )
            self.mistake("undefined", words, self.line(), array.name)
            return
        is_float = value.dtype.kind == 2
        if self.births and is_float and np.isnan(value.data[active]).any():
            line, name = self.births[0]
            words = (
                f"{name} makes NaN of numbers that aren't NaN, and {self.where()}"
                f" stores it in line {self.line()}."
            )
            self.mistake("nan", words, line, array.name)

    def _found(
        self, kind: str, pointer: Tile, addresses: Array
    ) -> tuple[TileArray, Array, Array]:
        """The array that addresses reach, their places in it, and which of the
        addresses lie in it.
        """
        slot = int(addresses.min()) >> SLOT
        line = self.line()
        if slot != int(addresses.max()) >> SLOT or not 0 <= slot < len(self.arrays):
            raise Refused(
                f"This {kind} has pointers that belong to no array, or to several."
            )
        array = self.arrays[slot]
        at = (addresses - array.base) // array.array.itemsize
        good = array.has(at)
        if pointer.wrapped:
            words = (
                f"a number of type int32 leaves its range, and {kind}s of {array.name}"
                f" in line {line} depend on it: cast to tl.int64 before."
            )
            self.mistake("overflow", words, pointer.wrapped, array.name)
        is_inside = good.all()
        if not is_inside:
            words = (
                f"{self.where()} {kind}s {int((~good).sum()):,} elements outside of"
                f" {array.name}, the first at {int(at[~good][0]):,} of"
                f" {array.span:,}: mask them out."
            )
            self.mistake("outside", words, line, array.name)
        at = at if is_inside else at[good]
        if kind != "store" and array.unset:
            n = len(at)
            if "store" in array.last:
                n = int((array.last["store"].read(at) == 0).sum())
            if n:
                words = (
                    f"{self.where()} reads {n:,} elements of {array.name} before"
                    " anything wrote them."
                )
                self.mistake("unset", words, line, array.name)
        self._order(kind, array, at, line)
        pattern, base = self._pattern(at)
        row = Access(self.program, line, KINDS.index(kind), slot, pattern, base)
        self.rows.append(row)
        return array, at, good

    def _pattern(self, at: Array) -> tuple[int, int]:
        """The number of the pattern of places, and their base."""
        base = int(at[0]) if at.size else 0
        offsets = at - base
        key = offsets.tobytes()
        number = self._pattern_numbers.setdefault(key, len(self.patterns))
        if number == len(self.patterns):
            self.patterns.append(offsets)
        return number, base

    def _order(self, kind: str, array: TileArray, at: Array, line: int) -> None:
        """Find accesses of other programs that conflict with this one and that nothing
        orders, and note this one.
        """
        if kind not in array.last:
            array.last[kind] = Pages(array.span)
        if list(array.last) == ["load"]:
            return  # noted when something is written
        if array.last.keys() == {"load", kind} and not array.last[kind].count():
            self._note_loads(array)
        for other_kind in KINDS:
            is_harmless = other_kind == kind and kind != "store"
            if is_harmless or other_kind not in array.last:
                continue
            last = array.last[other_kind].read(at)
            clash = np.flatnonzero((last > self.ordered) & (last <= self.began))
            if clash.size:
                first = int(clash[0])
                other = self.rows[int(last[first]) - 1]
                where = place_name(place(other.program, self.grid), self.grid)
                element = array.element(int(at[first]))
                words = (
                    f"program {where} {other_kind}s {element} (line {other.line}),"
                    f" {self.where()} {kind}s it (line {line}); programs run in any"
                    " order."
                )
                self._race(words, line, array, at[clash])
        note = array.last[kind].write if kind == "store" else array.last[kind].fill
        note(at, len(self.rows) + 1)

    def _note_loads(self, array: TileArray) -> None:
        """Note the loads of an array that nothing was written to before."""
        for number, row in enumerate(self.rows, 1):
            if self.arrays[row.array].last is array.last:
                at = self.patterns[row.pattern] + row.base
                array.last["load"].fill(at, number)


def arguments(
    run: TileRun, function: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """The kernel's arguments as its programs see them: pointers, numbers as tiles,
    constants as they are.
    """
    signature = inspect.signature(function)
    try:
        passed = signature.bind(*args, **named)
    except TypeError as error:
        raise KernelError(
            f"{run.name} takes {', '.join(signature.parameters)}: {error}."
        ) from error
    passed.apply_defaults()
    shared: dict[Any, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in passed.arguments.items():
        annotation = str(signature.parameters[name].annotation)
        if "constexpr" in annotation.lower() or hasattr(value, "fn"):
            arguments[name] = _constant_argument(value)
        elif value is None:
            arguments[name] = None
        elif getattr(value, "shape", None):
            array = TileArray(name, value, len(run.arrays), shared)
            run.arrays.append(array)
            arguments[name] = Tile(array.base, pointer_to(array.dtype))
        else:
            number = value.item() if isinstance(value, np.generic) else value
            if not isinstance(number, bool | int | float):
                raise KernelError(
                    f"A kernel takes arrays, numbers and tl.constexpr; {name} is"
                    f" {brief_repr(value)}."
                )
            arguments[name] = constant(number)
    return arguments


def _constant_argument(value: Any) -> Any:
    """A tl.constexpr; one of Triton's types, such as tl.float32, as that of the run."""
    value = getattr(value, "value", value)
    if type(value).__module__.startswith("triton.language"):
        return getattr(TL, str(value), None) or value
    return value
