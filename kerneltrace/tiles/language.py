"""`tl` as a traced kernel sees it: programs, loops, new tiles and their shapes; arithmetic and memory add theirs.

Source: triton/language/core.py and standard.py of Triton 3.9.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from kerneltrace.tiles.tensors import DTYPES, INT32, Refused, Tile, constant, number_type, pointer_to

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions of tl by name; each takes the language of its run first."""
MAX_ELEMENTS = 2**20
"""Of a tile (TRITON_MAX_TENSOR_NUMEL)."""
_SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


class Constexpr:
    """A constant of the module that kernels may use, SIZE = tl.constexpr(64); parameters are marked with it, too."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Language:
    """The names of triton.language; with a `run` they work."""

    def __init__(self, run: Any = None) -> None:
        self.run = run
        self.math = self.libdevice = self.extra = self.cuda = self  # functions have one name wherever they stand
        self.constexpr: Any = Constexpr if run is None else lambda value: value
        self.tensor, self.pointer_type = Tile, pointer_to

    def __getattr__(self, name: str) -> Any:
        if (kind := _SHORT.get(name, name)) in DTYPES:
            return DTYPES[kind]
        if name in FUNCTIONS:
            return functools.partial(FUNCTIONS[name], self)
        raise AttributeError(f"tl.{name} is not known here")


def as_function(function: F) -> F:
    """Enter a function under its name without the underscore."""
    FUNCTIONS[function.__name__[1:]] = function
    return function


def plain(value: Any) -> Any:
    """The number, or numbers, of a tile; a Python number as it is."""
    return value.data if isinstance(value, Tile) else value


def extents(shape: Any) -> tuple[int, ...]:
    """The shape of a new tile, judged."""
    shape = (*shape,) if isinstance(shape, tuple | list) else (shape,)
    for extent in shape:
        if isinstance(extent, Tile):
            raise Refused("A tile's extents are constants: mark the parameter as tl.constexpr, and pass it by name.")
        if extent < 1 or extent & (extent - 1):
            raise Refused(f"A tile's extents are powers of two, and {extent} is none: use triton.next_power_of_2.")
    if math.prod(shape) > MAX_ELEMENTS:
        raise Refused(f"A tile has at most {MAX_ELEMENTS:,} elements, and {shape} are {math.prod(shape):,}.")
    return tuple(shape)


def kind_of(value: Any) -> str:
    """Type and shape in words."""
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, Tile) else f"{number_type(value)} of shape ()"


@as_function
def _static_range(tl: Language, *bounds: Any, **_: Any) -> Any:
    if any(isinstance(bound, Tile) for bound in bounds):
        raise Refused("tl.static_range takes constants: use range, or mark the parameter as tl.constexpr.")
    return range(*bounds)


@as_function
def _range(tl: Language, *bounds: Any, **_: Any) -> Iterator[Tile]:
    """A loop's numbers; before each new turn the variables that it carries must have kept their types."""
    for bound in bounds:
        if isinstance(bound, Tile) and (bound.shape or bound.dtype.kind != 1):
            raise Refused(f"range takes whole numbers, got {kind_of(bound)}.")
    dtype = max((constant(tl, bound).dtype for bound in bounds), key=lambda t: t.primitive_bitwidth)
    before: dict[str, str] = {}
    for i in range(*(int(plain(bound)) for bound in bounds)):
        variables = sys._getframe(1).f_locals
        now = {name: kind_of(value) for name, value in variables.items() if isinstance(value, Tile | int | float)}
        for name, kind in before.items():
            if now.get(name, kind) != kind:
                raise Refused(
                    f"{name} is {kind} before the loop and {now[name]} after a turn: a variable keeps its type and"
                    " shape in a loop, so begin with tl.zeros or tl.full of that type, or cast with .to()."
                )
        before = before or now
        yield Tile(tl, i, dtype)


@as_function
def _arange(tl: Language, start: Any, end: Any) -> Tile:
    if isinstance(start, Tile) or isinstance(end, Tile):
        raise Refused("tl.arange takes constants: mark the parameter as tl.constexpr, and pass it by name.")
    if end <= start:
        raise Refused(f"tl.arange's end must be above its start, got {start} and {end}.")
    extents(end - start)
    return Tile(tl, np.arange(start, end), INT32)


@as_function
def _full(tl: Language, shape: Any, value: Any, dtype: Any) -> Tile:
    return broadcast(tl, constant(tl, value, dtype), extents(shape))


def broadcast(tl: Language, x: Any, shape: tuple[int, ...]) -> Tile:
    """A tile, or a number, in a shape."""
    tile = constant(tl, x)
    try:
        return tile if tile.shape == shape else tile.reshaped(lambda data: np.broadcast_to(data, shape))
    except ValueError:
        raise Refused(f"A tile of shape {tile.shape} doesn't broadcast to {shape}.") from None


def _given(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


@as_function
def _reshape(tl: Language, x: Tile, *shape: Any, **_: Any) -> Tile:
    shape = extents(_given(shape))
    if math.prod(shape) != x.numel:
        raise Refused(f"A tile of shape {x.shape} can't become {shape}, which has another number of elements.")
    return x.reshaped(lambda data: data.reshape(shape))


FUNCTIONS |= {
    "program_id": lambda tl, axis: Tile(tl, tl.run.place[axis], INT32),
    "num_programs": lambda tl, axis: Tile(tl, tl.run.grid[axis], INT32),
    "zeros": lambda tl, shape, dtype: _full(tl, shape, 0, dtype),
    "zeros_like": lambda tl, x: _full(tl, x.shape, 0, x.dtype),
    "to_tensor": constant,
    "cast": lambda tl, x, dtype, **options: constant(tl, x).to(dtype, **options),
    "broadcast_to": lambda tl, x, *shape: broadcast(tl, x, _given(shape)),
    "view": _reshape,
    "ravel": lambda tl, x, **_: x.reshaped(np.ravel),
    "expand_dims": lambda tl, x, axis: constant(tl, x).reshaped(lambda data: np.expand_dims(data, axis)),
    "trans": lambda tl, x, *dims: x.reshaped(lambda data: np.transpose(data, _given(dims) or None)),
    "permute": lambda tl, x, *dims: x.reshaped(lambda data: np.transpose(data, _given(dims))),
    "flip": lambda tl, x, dim=-1: x.reshaped(lambda data: np.flip(data, dim)),
    "split": lambda tl, x: tuple(x.reshaped(lambda data, i=i: data[..., i]) for i in (0, 1)),
    **dict.fromkeys(("multiple_of", "max_contiguous", "max_constancy"), lambda tl, x, values: x),
    **dict.fromkeys(("debug_barrier", "assume", "static_print", "device_print", "print"), lambda tl, *_, **__: None),
}


def _assert(tl: Language, condition: Any, message: str = "", *_: Any, **__: Any) -> None:
    if not np.all(plain(condition)):
        raise Refused(f"The assertion doesn't hold. {message}".rstrip())


FUNCTIONS["static_assert"] = FUNCTIONS["device_assert"] = _assert
