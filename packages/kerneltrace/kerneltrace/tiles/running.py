"""Run a Triton kernel's Python on NumPy, program by program, and note what it asks and
what it does wrong.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.grid import Dim3, place, place_name
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.values import narrowed, widened
from kerneltrace.tiles.binding import Names
from kerneltrace.tiles.language import Language
from kerneltrace.tiles.tensors import DTYPES, Refused, Tile, constant, pointer_to

SLOT = 40
"""Each array has 2**SLOT addresses of its own and lies in their middle, so that an
address tells its array.
"""
KINDS = ("load", "store", "atomic")
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


class TileArray:
    """An array of the launch: its memory from the first element to the last, and who
    touched each element.

    `last` has a row for each of KINDS, the earliest load, latest store and earliest
    atomic of each element: numbers of accesses, from 1, and 0 for none. `seen` are the
    kinds of access so far. Of bfloat16 `array` has the bits.
    """

    def __init__(
        self, name: str, source: Any, number: int, shared: dict[Any, Any]
    ) -> None:
        kind = str(source.dtype).removeprefix("torch.").replace("bool", "int1")
        if kind not in DTYPES:
            raise KernelError(
                f"{name} has elements of type {kind}, and known are"
                f" {', '.join(DTYPES)}."
            )
        self.name = name
        self.dtype = DTYPES[kind]
        self.base = (number << SLOT) + (1 << SLOT - 1)
        self.array = _as_array(name, source, kind)
        size = self.array.itemsize
        strides = self.array.strides
        if any(stride < 0 or stride % size for stride in strides):
            raise KernelError(
                f"{name} has strides {strides}: pass a copy, which has none below 0."
            )
        last = sum(
            (n - 1) * stride // size
            for n, stride in zip(self.array.shape, strides, strict=True)
        )
        self.span = last + 1 if self.array.size else 0
        self.flat = np.lib.stride_tricks.as_strided(self.array, (self.span,), (size,))
        self.inside = np.zeros(self.span, bool)
        self.shaped(self.inside)[...] = True
        is_float = self.array.dtype.kind == "f"
        self.unset = bool(self.span and is_float and np.isnan(self.array).all())
        """Whether nothing has written it: all of its elements are NaN."""
        key = self.array.__array_interface__["data"][0], self.span, size
        self.last, self.seen = shared.setdefault(
            key, (np.zeros((3, self.span), np.int32), set())
        )

    def shaped(self, flat: Array) -> Array:
        """Numbers for each place of the memory as a view with the array's shape."""
        steps = [
            stride // self.array.itemsize * flat.itemsize
            for stride in self.array.strides
        ]
        return np.lib.stride_tricks.as_strided(flat, self.array.shape, steps)

    def element(self, at: int) -> str:
        """The element at a place of the memory, as x[3, 4]."""
        index = np.argwhere(self.shaped(np.arange(self.span)) == at)[0]
        return f"{self.name}[{', '.join(map(str, index))}]"

    def read(self, at: Array) -> Array:
        """Values at places."""
        values: Array = self.flat[at]
        return np.asarray(widened(values)) if self.dtype.name == "bfloat16" else values

    def write(self, at: Array, values: Array) -> None:
        """Put values at places."""
        self.flat[at] = narrowed(values) if self.dtype.name == "bfloat16" else values


def _as_array(name: str, source: Any, kind: str) -> Array:
    """A tensor's memory, or the array itself; of bfloat16 the bits."""
    if type(source).__module__.partition(".")[0] == "torch":
        if source.device.type != "cpu":
            raise KernelError(
                f"{name} is on {source.device}: pass {name}.cpu(), since a trace runs"
                " on the CPU."
            )
        source = source.detach()
        if kind == "bfloat16":
            source = source.view(sys.modules["torch"].int16)
        source = source.numpy()
    array: Array = source.view(np.uint16) if kind == "bfloat16" else source
    return array


class TileRun:
    """One launch: the arrays, the place in the grid, the accesses of its programs, and
    the mistakes met.

    An access has a row, and the `places` of its elements in the array's memory, each as
    often as lanes touch it.
    """

    def __init__(self, function: Any, grid: Dim3) -> None:
        self.name = function.__name__
        self.grid = grid
        self.programs = math.prod(grid)
        self.tl = Language(self)
        self.arrays: list[TileArray] = []
        self.rows: list[Access] = []
        self.places: list[Array] = []
        self.names = Names(self.tl)
        self.mistakes: dict[tuple[str, int, str], list[Any]] = {}
        self.flop = self.special = self.decisions = self.widest = self.staged = 0
        self.dot_flop: Counter[str] = Counter()
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
            if frame.f_code in self.names.functions:
                return line
        return 0

    def all(self, function: Any, args: dict[str, Any], programs: int) -> bool:
        """Run the first `programs` programs; False where a mistake ended them early."""
        for program in range(programs):
            self.program = program
            self.place = place(program, self.grid)
            self.began = len(self.rows)
            self.ordered = 0
            self.births = []
            self.decisions = 0
            try:
                with np.errstate(all="ignore"):
                    self.names.bound(function)(**args)
            except KernelError:
                raise
            except Ended:
                return False
            except Refused as error:
                line = error.line or self._line_of(error)
                self.mistake("refused", str(error), line)
                return False
            except Exception as error:
                words = str(error).replace("_load()", "tl.load").rstrip(".")
                words = words.replace("_store()", "tl.store")
                raise KernelError(
                    f"line {self._line_of(error)} of {self.name} can't be traced:"
                    f" {type(error).__name__}: {words}."
                ) from error
        return True

    def _line_of(self, error: Exception) -> int:
        """The innermost line of the kernel's functions that an error passed."""
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code in self.names.functions
        ]
        return lines[-1] if lines else 0

    def where(self) -> str:
        """The program that runs, in words."""
        return f"program {place_name(self.place, self.grid)}"

    def mistake(self, kind: str, words: str, line: int, array: str = "") -> None:
        """Note a mistake: the first of its kind in its line has the words."""
        self.mistakes.setdefault((kind, line, array), [0, words, self.program])[0] += 1

    def decided(self) -> None:
        """Count a decision of Python by a number of the kernel."""
        self.decisions += 1
        if self.decisions > MAX_DECISIONS:
            words = (
                f"{self.where()} loops without end: it may wait for a program that runs"
                " after it."
            )
            self.mistake("endless", words, self.line())
            raise Ended

    def computed(
        self,
        name: str,
        out: Tile,
        *sources: Tile,
        flop: int = -1,
        special: bool = False,
    ) -> None:
        """Count an operation on floats, and note where NaN comes from."""
        self.flop += out.numel if flop < 0 else flop
        self.widest = max(self.widest, out.data.nbytes)
        if special:
            self.special += out.numel
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
        addresses = pointer.data[active]
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
            self._store(array, at, value.data[active][good])
        else:
            new = value.data[active]
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
        is_float = values.dtype.kind == "f"
        if not np.array_equal(array.read(at), values, equal_nan=is_float):
            words = (
                f"lanes of one tl.store in {self.where()} store different values to one"
                f" element of {array.name}."
            )
            self.mistake("race", words, self.line(), array.name)

    def _judge(self, array: TileArray, value: Tile, active: Array) -> None:
        """Note values that no load made, and NaN that the kernel made."""
        if (value.undefined & active).any():
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
                f"{name} makes NaN of numbers that are none, and {self.where()} stores"
                f" it in line {self.line()}."
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
        good = (at >= 0) & (at < array.span)
        good[good] = array.inside[at[good]]
        if pointer.wrapped:
            words = (
                f"a number of type int32 leaves its range, and {kind}s of {array.name}"
                f" in line {line} depend on it: cast to tl.int64 before."
            )
            self.mistake("overflow", words, pointer.wrapped, array.name)
        if not good.all():
            words = (
                f"{self.where()} {kind}s {int((~good).sum()):,} elements outside of"
                f" {array.name}, the first at {int(at[~good][0]):,} of"
                f" {array.span:,}: mask them out."
            )
            self.mistake("outside", words, line, array.name)
        at = at[good]
        if kind != "store" and array.unset:
            n = int((array.last[KINDS.index("store"), at] == 0).sum())
            if n:
                words = (
                    f"{self.where()} reads {n:,} elements of {array.name} before"
                    " anything wrote them."
                )
                self.mistake("unset", words, line, array.name)
        self._order(kind, array, at, line)
        self.rows.append(Access(self.program, line, KINDS.index(kind), slot))
        self.places.append(at.astype(np.int32))
        return array, at, good

    def _order(self, kind: str, array: TileArray, at: Array, line: int) -> None:
        """Find accesses of other programs that conflict with this one and that nothing
        orders, and note this one.
        """
        now = len(self.rows) + 1
        for other_kind in KINDS:
            is_harmless = other_kind == kind and kind != "store"
            if is_harmless or other_kind not in array.seen:
                continue
            last = array.last[KINDS.index(other_kind), at]
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
                self.mistake("race", words, line, array.name)
        array.seen.add(kind)
        row = array.last[KINDS.index(kind)]
        row[at] = now if kind == "store" else np.where(row[at], row[at], now)


def arguments(
    run: TileRun, function: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """The kernel's arguments as its programs see them: pointers, numbers as tiles,
    constants as they are.
    """
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        raise KernelError(
            f"{run.name} takes {', '.join(signature.parameters)}: {error}."
        ) from error
    bound.apply_defaults()
    shared: dict[Any, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if "constexpr" in str(signature.parameters[name].annotation).lower():
            arguments[name] = _constant_argument(run, value)
        elif value is None:
            arguments[name] = None
        elif getattr(value, "shape", None):
            array = TileArray(name, value, len(run.arrays), shared)
            run.arrays.append(array)
            arguments[name] = Tile(run.tl, array.base, pointer_to(array.dtype))
        else:
            number = value.item() if isinstance(value, np.generic) else value
            if not isinstance(number, bool | int | float):
                raise KernelError(
                    f"A kernel takes arrays, numbers and tl.constexpr; {name} is"
                    f" {brief_repr(value)}."
                )
            arguments[name] = constant(run.tl, number)
    return arguments


def _constant_argument(run: TileRun, value: Any) -> Any:
    """A tl.constexpr; one of Triton's types, such as tl.float32, as that of the run."""
    value = getattr(value, "value", value)
    if type(value).__module__.startswith("triton.language"):
        return getattr(run.tl, str(value), None) or value
    return value
