"""Run a Triton kernel's Python on NumPy, program by program, and note what it asks and
what it does wrong.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections import Counter
from typing import Any

import numpy as np

from kerneltrace.arguments import as_number, brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.log.grid import Dim3, place, place_name
from kerneltrace.log.traced_memory import Array
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


class TileArray:
    """An array of the launch: its memory from the first element to the last, and who
    touched each element.

    `last` has a row for each of KINDS, the earliest load, latest store and earliest
    atomic of each element: numbers of accesses, from 1, and 0 for none. `seen` are the
    kinds of access so far. Of bfloat16 `array` has the bits.
    """

    def __init__(
        self, name: str, given: Any, number: int, shared: dict[Any, Any]
    ) -> None:
        kind = str(given.dtype).removeprefix("torch.").replace("bool", "int1")
        if kind not in DTYPES:
            raise KernelError(
                f"{name} has elements of type {kind}, and known are"
                f" {', '.join(DTYPES)}."
            )
        if type(given).__module__.partition(".")[0] == "torch":
            if given.device.type != "cpu":
                raise KernelError(
                    f"{name} is on {given.device}: pass {name}.cpu(), since a trace"
                    " runs on the CPU."
                )
            given = given.detach()
            given = (
                given.view(sys.modules["torch"].int16) if kind == "bfloat16" else given
            ).numpy()
        self.name = name
        self.dtype = DTYPES[kind]
        self.base = (number << SLOT) + (1 << SLOT - 1)
        self.array: Array = given.view(np.uint16) if kind == "bfloat16" else given
        size = self.array.itemsize
        if any(stride < 0 or stride % size for stride in self.array.strides):
            raise KernelError(
                f"{name} has strides {self.array.strides}: pass a copy, which has none"
                " below 0."
            )
        span = 1 + sum(
            (n - 1) * step // size
            for n, step in zip(self.array.shape, self.array.strides, strict=True)
        )
        self.span = span if self.array.size else 0
        self.flat = np.lib.stride_tricks.as_strided(self.array, (self.span,), (size,))
        self.inside = np.zeros(self.span, bool)
        self.shaped(self.inside)[...] = True
        self.unset = (
            bool(self.array.size)
            and self.array.dtype.kind == "f"
            and bool(np.isnan(self.array).all())
        )
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


class Run:
    """One launch: the arrays, the place in the grid, the accesses of its programs, and
    the mistakes met.

    An access is one tl.load, tl.store or atomic of a program. It has a row (program,
    line, number in KINDS, number of the array), and the `places` of its elements in the
    array's memory, each as often as lanes touch it.
    """

    def __init__(self, function: Any, grid: Dim3) -> None:
        self.name = function.__name__
        self.grid = grid
        self.programs = math.prod(grid)
        self.tl = Language(self)
        self.arrays: list[TileArray] = []
        self.rows: list[tuple[int, int, int, int]] = []
        self.places: list[Array] = []
        self.names = Names(self.tl)
        self.found: dict[tuple[str, int, str], list[Any]] = {}
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
        frames = traceback.walk_stack(sys._getframe(1))
        return next(
            (n for frame, n in frames if frame.f_code in self.names.functions), 0
        )

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
            except Exception as error:
                frames = traceback.walk_tb(error.__traceback__)
                lines = [
                    n for frame, n in frames if frame.f_code in self.names.functions
                ]
                line = getattr(error, "line", 0) or (lines or [0])[-1]
                if isinstance(error, Refused):
                    self.mistake("refused", str(error), line)
                    return False
                words = (
                    str(error)
                    .replace("_load()", "tl.load")
                    .replace("_store()", "tl.store")
                    .rstrip(".")
                )
                words = f"{type(error).__name__}: {words}"
                raise KernelError(
                    f"line {line} of {self.name} can't be traced: {words}."
                ) from error
        return True

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
        self.special += out.numel * special
        if np.isnan(out.data).any() and not any(
            np.isnan(source.data).any() for source in sources
        ):
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
        old = np.zeros(len(addresses), pointer.dtype.element_ty.numpy)
        if not addresses.size:
            return old
        array, at, good = self._found(kind, pointer, addresses)
        if value is not None:
            self._judge(array, value, active)
        if kind == "load":
            old[good] = array.read(at)
        elif kind == "store":
            values = value.data[active][good]
            array.write(at, values)
            if not np.array_equal(
                array.read(at), values, equal_nan=values.dtype.kind == "f"
            ):
                words = (
                    "lanes of one tl.store in {} store different values to one element"
                    " of {}."
                )
                self.mistake(
                    "race",
                    words.format(self.where(), array.name),
                    self.line(),
                    array.name,
                )
        else:
            for place_of, lane in zip(at, np.flatnonzero(good), strict=True):
                old[lane] = array.read(place_of)
                array.write(
                    place_of,
                    np.asarray(change(old[lane], value.data[active][lane]), old.dtype),
                )
            if not pointer.shape and sem != "relaxed" and good.all():
                element = array.base, int(at[0])
                self.ordered = max(self.ordered, self.released.get(element, 0))
                self.released[element] = len(self.rows)
        return old

    def _judge(self, array: TileArray, value: Tile, active: Array) -> None:
        """Note values that no load made, and NaN that the kernel made."""
        if (value.undefined & active).any():
            words = (
                f"{self.where()} stores to {array.name} what a masked load left"
                " undefined: give that tl.load"
            )
            self.mistake(
                "undefined",
                f"{words} other=..., or mask this store.",
                self.line(),
                array.name,
            )
        elif (
            self.births and value.dtype.kind == 2 and np.isnan(value.data[active]).any()
        ):
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
                f" in line {line} depend on it:"
            )
            self.mistake(
                "overflow",
                f"{words} cast to tl.int64 before.",
                pointer.wrapped,
                array.name,
            )
        if not good.all():
            words = (
                f"{self.where()} {kind}s {int((~good).sum()):,} elements outside of"
                f" {array.name}, the first at"
            )
            words += f" {int(at[~good][0]):,} of {array.span:,}: mask them out."
            self.mistake("outside", words, line, array.name)
        at = at[good]
        if (
            kind != "store"
            and array.unset
            and (n := int((array.last[1, at] == 0).sum()))
        ):
            words = (
                f"{self.where()} reads {n:,} elements of {array.name} before anything"
                " wrote them."
            )
            self.mistake("unset", words, line, array.name)
        self._order(kind, array, at, line)
        self.rows.append((self.program, line, KINDS.index(kind), slot))
        self.places.append(at.astype(np.int32))
        return array, at, good

    def _order(self, kind: str, array: TileArray, at: Array, line: int) -> None:
        """Find accesses of other programs that conflict with this one and that nothing
        orders, and note this one.
        """
        now = len(self.rows) + 1
        for other in (
            one
            for one in KINDS
            if one in array.seen and (one != kind or one == "store")
        ):
            last = array.last[KINDS.index(other), at]
            clash = np.flatnonzero((last > self.ordered) & (last <= self.began))
            if clash.size:
                first = int(clash[0])
                program, before = self.rows[int(last[first]) - 1][:2]
                words = (
                    f"program {place_name(place(program, self.grid), self.grid)}"
                    f" {other}s {array.element(int(at[first]))} (line {before}),"
                    f" {self.where()} {kind}s it (line {line}); programs run in any"
                    " order."
                )
                self.mistake("race", words, line, array.name)
        array.seen.add(kind)
        row = array.last[KINDS.index(kind)]
        row[at] = now if kind == "store" else np.where(row[at], row[at], now)


def arguments(
    run: Run, function: Any, args: tuple[Any, ...], named: dict[str, Any]
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
    made: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if "constexpr" in str(signature.parameters[name].annotation).lower():
            value = getattr(value, "value", value)
            known = type(value).__module__.startswith("triton.language") and getattr(
                run.tl, f"{value}", None
            )
            made[name] = known or value
        elif getattr(value, "shape", None):
            run.arrays.append(TileArray(name, value, len(run.arrays), shared))
            made[name] = Tile(
                run.tl, run.arrays[-1].base, pointer_to(run.arrays[-1].dtype)
            )
        elif value is None:
            made[name] = value
        elif (
            isinstance(value, bool) or (value := as_number(given := value)) is not None
        ):
            made[name] = constant(run.tl, value)
        else:
            raise KernelError(
                f"A kernel takes arrays, numbers and tl.constexpr; {name} is"
                f" {brief_repr(given)}."
            )
    return made
