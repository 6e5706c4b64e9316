"""`tl` as a traced kernel sees it: the functions of triton.language, computed by NumPy and reported to the run.

Source: triton/language/{core,standard,math}.py of Triton 3.9.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerneltrace.ptx.values import to_tf32
from kerneltrace.tiles.tensors import (
    ARITHMETIC,
    DTYPES,
    FLOAT32,
    INT1,
    INT32,
    Refused,
    Tile,
    binary,
    constant,
    number_type,
    paired,
    pointer_to,
    undefined_of,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {}
MAX_ELEMENTS = 2**20
"""Of a tile (TRITON_MAX_TENSOR_NUMEL)."""
_LEAST_K = {8: 32, 16: 16, 32: 8, 64: 4}
"""The least inner extent of tl.dot by the bits of its operands (triton/backends/nvidia/compiler.py)."""
_SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


class Constexpr:
    """A constant of the module that a kernel may use: `SIZE = tl.constexpr(64)`; also what a parameter is marked with."""

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


def _tl(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__.strip("_")] = function
    return function


def _extents(shape: Any) -> tuple[int, ...]:
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    for extent in extents:
        if isinstance(extent, Tile):
            raise Refused("A tile's extents are constants: mark the parameter as tl.constexpr, and pass it by name.")
        if extent < 1 or extent & (extent - 1):
            raise Refused(f"A tile's extents are powers of two, and {extent} is none: use triton.next_power_of_2.")
    if math.prod(extents) > MAX_ELEMENTS:
        raise Refused(f"A tile has at most {MAX_ELEMENTS:,} elements, and {extents} are {math.prod(extents):,}.")
    return extents


# -- programs, loops, new tiles


@_tl
def _program_id(tl: Any, axis: int) -> Tile:
    return Tile(tl, tl.run.place[axis], INT32)


@_tl
def _num_programs(tl: Any, axis: int) -> Tile:
    return Tile(tl, tl.run.grid[axis], INT32)


@_tl
def _static_range(tl: Any, *bounds: Any, **_: Any) -> Any:
    if any(isinstance(bound, Tile) for bound in bounds):
        raise Refused("tl.static_range takes constants: use range, or mark the parameter as tl.constexpr.")
    return range(*bounds)


@_tl
def _range(tl: Any, *bounds: Any, **_: Any) -> Iterator[Tile]:
    """A loop's numbers; before each new turn the variables that it carries must have kept their types."""
    for bound in bounds:
        if isinstance(bound, Tile) and (bound.shape or bound.dtype.kind != 1):
            raise Refused(f"range takes whole numbers, got a tile of {bound.dtype} and shape {bound.shape}.")
    dtype = max((constant(tl, bound).dtype for bound in bounds), key=lambda t: t.primitive_bitwidth)
    before = None
    for i in range(*map(int, map(_number, bounds))):
        frame = sys._getframe(1)
        now = {name: _type_of(value) for name, value in frame.f_locals.items() if isinstance(value, Tile | int | float)}
        for name, kind in (before or {}).items():
            if now.get(name, kind) != kind:
                raise Refused(
                    f"{name} is {kind} before the loop and {now[name]} after a turn: a variable keeps its type and"
                    " shape in a loop, so begin with tl.zeros or tl.full of that type, or cast with .to()."
                )
        before = before or now
        yield Tile(tl, i, dtype)


def _number(value: Any) -> Any:
    return value.data if isinstance(value, Tile) else value


def _type_of(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, Tile) else f"{number_type(value)} of shape ()"


@_tl
def _arange(tl: Any, start: Any, end: Any) -> Tile:
    if isinstance(start, Tile) or isinstance(end, Tile):
        raise Refused("tl.arange takes constants: mark the parameter as tl.constexpr, and pass it by name.")
    if end <= start:
        raise Refused(f"tl.arange's end must be above its start, got {start} and {end}.")
    _extents(end - start)
    return Tile(tl, np.arange(start, end), INT32)


@_tl
def _full(tl: Any, shape: Any, value: Any, dtype: Any) -> Tile:
    return _broadcast_to(tl, constant(tl, value, dtype), *_extents(shape))


@_tl
def _zeros(tl: Any, shape: Any, dtype: Any) -> Tile:
    return _full(tl, shape, 0, dtype)


@_tl
def _zeros_like(tl: Any, x: Tile) -> Tile:
    return _full(tl, x.shape, 0, x.dtype)


@_tl
def _to_tensor(tl: Any, x: Any) -> Tile:
    return constant(tl, x)


@_tl
def _cast(tl: Any, x: Any, dtype: Any, **options: Any) -> Tile:
    return constant(tl, x).to(dtype, **options)


# -- shapes


def _given(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


@_tl
def _broadcast_to(tl: Any, x: Any, *shape: Any) -> Tile:
    shape, x = _given(shape), constant(tl, x)
    try:
        return x.reshaped(lambda data: np.broadcast_to(data, shape))
    except ValueError:
        raise Refused(f"A tile of shape {x.shape} doesn't broadcast to {shape}.") from None


@_tl
def _reshape(tl: Any, x: Tile, *shape: Any, **_: Any) -> Tile:
    shape = _given(shape)
    if math.prod(_extents(shape)) != x.numel:
        raise Refused(f"A tile of shape {x.shape} can't become {shape}, which has another number of elements.")
    return x.reshaped(lambda data: data.reshape(shape))


FUNCTIONS["view"] = _reshape


@_tl
def _ravel(tl: Any, x: Tile, **_: Any) -> Tile:
    return x.reshaped(np.ravel)


@_tl
def _expand_dims(tl: Any, x: Any, axis: Any) -> Tile:
    return constant(tl, x).reshaped(lambda data: np.expand_dims(data, axis))


@_tl
def _trans(tl: Any, x: Tile, *dims: Any) -> Tile:
    return x.reshaped(lambda data: np.transpose(data, _given(dims) or None))


FUNCTIONS["permute"] = _trans


@_tl
def _flip(tl: Any, x: Tile, dim: Any = None) -> Tile:
    return x.reshaped(lambda data: np.flip(data, -1 if dim is None else dim))


@_tl
def _join(tl: Any, a: Any, b: Any) -> Tile:
    a, b = paired(tl, a, b)
    data = np.stack(np.broadcast_arrays(a.data, b.data), -1)
    undefined = undefined_of(a, b)
    return Tile(tl, data, a.dtype, None if undefined is None else undefined[..., None])


@_tl
def _interleave(tl: Any, a: Any, b: Any) -> Tile:
    both = _join(tl, a, b)
    return both.reshaped(lambda data: data.reshape(*data.shape[:-2], -1))


@_tl
def _split(tl: Any, x: Tile) -> tuple[Tile, Tile]:
    return x.reshaped(lambda data: data[..., 0]), x.reshaped(lambda data: data[..., 1])


# -- arithmetic


@_tl
def _where(tl: Any, condition: Any, x: Any, y: Any) -> Tile:
    condition = constant(tl, condition).to(INT1)
    x, y = paired(tl, x, y)
    x, y = constant(tl, x), constant(tl, y)
    try:
        data = np.where(condition.data, x.data, y.data)
    except ValueError:
        raise Refused(f"tl.where got shapes {condition.shape}, {x.shape} and {y.shape}, which don't fit.") from None
    undefined = None
    if undefined_of(condition, x, y) is not None:
        of_x, of_y, of_c = (False if t.undefined is None else t.undefined for t in (x, y, condition))
        undefined = np.where(condition.data, of_x, of_y) | of_c
    return Tile(tl, data, x.dtype, undefined, max(x.wrapped, y.wrapped))


def _two(name: str) -> Callable[..., Tile]:
    def function(tl: Any, x: Any, y: Any, *_: Any, **__: Any) -> Tile:
        tile = x if isinstance(x, Tile) else constant(tl, x)
        return binary(name, tl, tile, y)

    return function


for _name in ARITHMETIC:
    FUNCTIONS[_name] = _two(_name)
FUNCTIONS["fdiv"] = FUNCTIONS["div_rn"] = _two("truediv")

_ERF = np.frompyfunc(math.erf, 1, 1)
_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "ceil": np.ceil, "tanh": np.tanh,
    "erf": lambda x: np.asarray(_ERF(x), np.float64), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "log1p": np.log1p,
    "expm1": np.expm1, "pow": np.power,
}  # fmt: skip


def _one(name: str) -> Callable[..., Tile]:
    def function(tl: Any, x: Any) -> Tile:
        x = constant(tl, x)
        if x.dtype.name not in ("float32", "float64"):
            raise Refused(f"tl.{name} takes float32 or float64, got {x.dtype}: cast with .to(tl.float32).")
        out = Tile(tl, _UNARY[name](x.data), x.dtype, x.undefined)
        tl.run.computed(name, out, x, special=name not in ("floor", "ceil"))
        return out

    return function


for _name in _UNARY:
    FUNCTIONS[_name] = _one(_name)


@_tl
def _abs(tl: Any, x: Any) -> Tile:
    x = constant(tl, x)
    return Tile(tl, np.abs(x.data), x.dtype, x.undefined)


@_tl
def _fma(tl: Any, x: Any, y: Any, z: Any) -> Any:
    return x * y + z


@_tl
def _clamp(tl: Any, x: Any, low: Any, high: Any, **_: Any) -> Tile:
    return binary("minimum", tl, binary("maximum", tl, constant(tl, x), low), high)


@_tl
def _cdiv(tl: Any, x: Any, y: Any) -> Any:
    return (x + (y - 1)) // y


@_tl
def _softmax(tl: Any, x: Tile, dim: Any = 0, **_: Any) -> Any:
    powers = tl.exp(x - tl.max(x, 0 if dim is None else dim, keep_dims=True))
    return powers / tl.sum(powers, 0 if dim is None else dim, keep_dims=True)


@_tl
def _swizzle2d(tl: Any, i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    at = i * size_j + j
    first = at // (size_g * size_j) * size_g
    rows = tl.minimum(size_i - first, size_g)
    at = at % (size_g * size_j)
    return first + at % rows, at // rows


for _name in ("multiple_of", "max_contiguous", "max_constancy"):
    FUNCTIONS[_name] = lambda tl, x, values: x
for _name in ("debug_barrier", "assume", "static_print", "device_print", "print"):
    FUNCTIONS[_name] = lambda tl, *values, **options: None


def _assert(tl: Any, condition: Any, message: str = "", *_: Any, **__: Any) -> None:
    if not np.all(_number(condition)):
        raise Refused(f"The assertion doesn't hold: {message}")


FUNCTIONS["static_assert"] = FUNCTIONS["device_assert"] = _assert


# -- reductions and products


def _reduced(name: str, function: Any) -> Callable[..., Any]:
    def reduction(
        tl: Any, x: Any, axis: Any = None, return_indices: bool = False, keep_dims: bool = False, dtype: Any = None, **_: Any
    ) -> Any:
        x = constant(tl, x)
        if axis is not None and not -len(x.shape) <= axis < len(x.shape):
            raise Refused(f"A tile of shape {x.shape} has no axis {axis}.")
        if x.dtype.primitive_bitwidth < 32 and (name != "sum" or x.dtype.is_int()) and dtype is None:
            x = x.to(FLOAT32 if x.dtype.is_floating() else DTYPES["uint32" if x.dtype.numpy.kind == "u" else "int32"])
        x = x if dtype is None else x.to(dtype)
        undefined = None
        if x.undefined is not None:
            undefined = np.broadcast_to(x.undefined, x.shape).any(axis=axis, keepdims=keep_dims)
        dtype = INT32 if name.startswith("arg") else x.dtype
        out = Tile(tl, function(x.data, axis=axis, keepdims=keep_dims), dtype, undefined)
        if x.dtype.is_floating():
            tl.run.computed(name, out, x, flop=x.numel - out.numel)
        return (out, FUNCTIONS[f"arg{name}"](tl, x, axis, keep_dims=keep_dims)) if return_indices else out

    return reduction


for _name, _function in {
    "sum": functools.partial(np.sum, dtype=None), "max": np.fmax.reduce, "min": np.fmin.reduce, "argmax": np.argmax,
    "argmin": np.argmin, "xor_sum": np.bitwise_xor.reduce, "reduce_or": np.bitwise_or.reduce,
}.items():  # fmt: skip
    FUNCTIONS[_name] = _reduced(_name, _function)


def _scanned(name: str, function: Any) -> Callable[..., Tile]:
    def scan(tl: Any, x: Tile, axis: int = 0, reverse: bool = False, **_: Any) -> Tile:
        turn = (lambda data: np.flip(data, axis)) if reverse else (lambda data: data)
        undefined = None
        if x.undefined is not None:
            undefined = turn(np.logical_or.accumulate(turn(np.broadcast_to(x.undefined, x.shape)), axis=axis))
        out = Tile(tl, turn(function(turn(x.data), axis=axis, dtype=x.dtype.numpy)), x.dtype, undefined)
        tl.run.computed(name, out, x)
        return out

    return scan


FUNCTIONS["cumsum"], FUNCTIONS["cumprod"] = _scanned("cumsum", np.cumsum), _scanned("cumprod", np.cumprod)


@_tl
def _reduce(tl: Any, x: Tile, axis: int, combine_fn: Any, keep_dims: bool = False) -> Tile:
    while (n := x.shape[axis]) > 1:
        x = combine_fn(*(x.reshaped(lambda d, part=part: np.take(d, part, axis)) for part in np.split(np.arange(n), 2)))
    return x if keep_dims else x.reshaped(lambda data: data.squeeze(axis))


@_tl
def _sort(tl: Any, x: Tile, dim: Any = None, descending: bool = False) -> Tile:
    ordered = x.reshaped(lambda data: np.sort(data, -1 if dim is None else dim))
    return _flip(tl, ordered, dim) if descending else ordered


@_tl
def _gather(tl: Any, x: Tile, index: Tile, axis: int) -> Tile:
    return x.reshaped(lambda data: np.take_along_axis(data, index.data, axis))


@_tl
def _histogram(tl: Any, x: Tile, num_bins: int, mask: Any = None) -> Tile:
    values = x.data if mask is None else x.data[np.broadcast_to(mask.data, x.shape)]
    return Tile(tl, np.bincount(values, minlength=num_bins)[:num_bins], INT32)


@_tl
def _dot(
    tl: Any, a: Tile, b: Tile, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None, out_dtype: Any = None,
) -> Tile:  # fmt: skip
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3) or a.shape[-1] != b.shape[-2]:
        raise Refused(f"tl.dot takes tiles of shapes (M, K) and (K, N), got {a.shape} and {b.shape}.")
    if a.dtype != b.dtype or a.dtype.name not in ("int8", "float16", "bfloat16", "float32", "float64"):
        raise Refused(
            f"tl.dot takes two tiles of one type, int8, float16, bfloat16, float32 or float64, got {a.dtype} and"
            f" {b.dtype}: cast one with .to()."
        )
    least = _LEAST_K[a.dtype.primitive_bitwidth]
    if a.shape[-1] < least:
        raise Refused(f"tl.dot needs an inner extent of at least {least} for {a.dtype}, got {a.shape[-1]}.")
    wide = {"int8": INT32, "float64": a.dtype, "float16": out_dtype or (acc.dtype if acc is not None else FLOAT32)}
    dtype = wide.get(a.dtype.name, FLOAT32)
    tf32 = a.dtype == FLOAT32 and input_precision in (None, "tf32") and allow_tf32 is not False
    left, right = (x.data.astype(np.promote_types(dtype.numpy, "f4"), order="C") for x in (a, b))
    product = np.matmul(to_tf32(left), to_tf32(right)) if tf32 else np.matmul(left, right)
    if acc is not None and (acc.shape != product.shape or acc.dtype != dtype):
        raise Refused(f"tl.dot adds to {dtype} of shape {product.shape}, and its accumulator is {_type_of(acc)}.")
    undefined = None
    if undefined_of(a, b) is not None:
        rows, columns = (np.broadcast_to(False if x.undefined is None else x.undefined, x.shape) for x in (a, b))
        undefined = rows.any(-1)[..., :, None] | columns.any(-2)[..., None, :]
    out = Tile(tl, product if acc is None else acc.data + product, dtype, undefined)
    if acc is not None:
        out.undefined = undefined_of(out, acc)
    staged = (a.numel + b.numel) * a.dtype.primitive_bitwidth // 8
    tl.run.multiplied("tf32" if tf32 else a.dtype.name, 2 * product.size * a.shape[-1], staged)
    tl.run.computed("dot", out, a, b, flop=0)
    return out


# -- memory


def _masked(tl: Any, pointer: Any, mask: Any, what: str) -> tuple[Any, Any]:
    """Addresses, and which of them take part, or None for all; in the same shape."""
    if not isinstance(pointer, Tile) or not pointer.dtype.pointee:
        got = pointer.dtype if isinstance(pointer, Tile) else type(pointer).__name__
        raise Refused(f"tl.{what} takes pointers, such as x + offsets, got {got}.")
    if mask is None:
        return pointer, None
    mask = constant(tl, mask)
    if mask.dtype != INT1:
        raise Refused(f"A mask is made by comparisons such as offsets < n, got {mask.dtype}.")
    if mask.shape and not pointer.shape:
        raise Refused(f"One pointer takes one mask, got a mask of shape {mask.shape}: add tl.arange to the pointer.")
    try:
        shape = np.broadcast_shapes(pointer.shape, mask.shape)
    except ValueError:
        raise Refused(f"Pointers of shape {pointer.shape} and a mask of {mask.shape} don't fit.") from None
    return _broadcast_to(tl, pointer, shape), _broadcast_to(tl, mask, shape)


@_tl
def _load(tl: Any, pointer: Any, mask: Any = None, other: Any = None, **_: Any) -> Tile:
    pointer, mask = _masked(tl, pointer, mask, "load")
    if mask is None and other is not None:
        raise Refused("`other` is for lanes that a mask leaves out: pass mask too, or leave `other` out.")
    dtype, active = pointer.dtype.pointee, np.ones(pointer.shape, bool) if mask is None else mask.data
    data = np.zeros(pointer.shape, dtype.numpy)
    data[active] = tl.run.load(pointer, active)
    undefined = undefined_of(*(tile for tile in (pointer, mask) if tile is not None))
    if other is not None:
        other = constant(tl, other).to(dtype)
        data = np.where(active, data, other.data)
    elif not active.all():
        undefined = ~active if undefined is None else undefined | ~active
    return Tile(tl, data, dtype, undefined)


def _stored(tl: Any, pointer: Any, value: Any, mask: Any, what: str) -> tuple[Tile, Any, Any]:
    """Pointers, the values for them, and which of them take part."""
    shape = getattr(pointer, "shape", ())
    pointer, mask = _masked(tl, pointer, mask, what)
    value = constant(tl, value).to(pointer.dtype.pointee)
    if shape != pointer.shape or np.broadcast_shapes(shape, *([value.shape] if len(value.shape) else [])) != shape:
        raise Refused(f"tl.{what} got pointers of shape {shape} and values of {value.shape}: the pointers' shape counts.")
    return pointer, _broadcast_to(tl, value, shape), np.ones(shape, bool) if mask is None else mask.data


@_tl
def _store(tl: Any, pointer: Any, value: Any, mask: Any = None, **_: Any) -> None:
    tl.run.store(*_stored(tl, pointer, value, mask, "store"))


_CHANGES = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "xchg": lambda old, new: new,
}  # fmt: skip


def _atomic(name: str) -> Callable[..., Tile]:
    def atomic(tl: Any, pointer: Any, value: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tile:
        pointer, value, active = _stored(tl, pointer, value, mask, f"atomic_{name}")
        data = np.zeros(pointer.shape, value.dtype.numpy)
        data[active] = tl.run.atomic(pointer, value, active, _CHANGES[name], sem)
        return Tile(tl, data, value.dtype, None if active.all() else ~active)

    return atomic


for _name in _CHANGES:
    FUNCTIONS[f"atomic_{_name}"] = _atomic(_name)


@_tl
def _atomic_cas(tl: Any, pointer: Any, expected: Any, value: Any, sem: Any = None, scope: Any = None) -> Tile:
    pointer, value, active = _stored(tl, pointer, value, None, "atomic_cas")
    wanted = constant(tl, expected).to(value.dtype).data
    old = tl.run.atomic(pointer, value, active, lambda old, new: np.where(old == wanted, new, old), sem)
    return Tile(tl, old.reshape(pointer.shape), value.dtype)


class Descriptor:
    """A tensor descriptor: a box of an array, of which loads fill with 0 what lies outside, and stores leave it out."""

    def __init__(self, tl: Any, base: Tile, shape: Any, strides: Any, block_shape: Any) -> None:
        self.tl, self.base, self.shape, self.strides = tl, base, shape, strides
        self.block_shape, self.dtype = _extents(block_shape), base.dtype.element_ty
        size = self.dtype.primitive_bitwidth // 8
        if int(_number(strides[-1])) != 1 or any(int(_number(stride)) * size % 16 for stride in strides[:-1]):
            raise Refused("A descriptor's last stride is 1, and the others are multiples of 16 bytes.")
        if self.block_shape[-1] * size < 16:
            raise Refused(f"A descriptor's rows have at least 16 bytes, got {self.block_shape[-1] * size}.")

    def _box(self, offsets: Any) -> tuple[Any, Any]:
        pointer, mask, rank = self.base, True, len(self.block_shape)
        for axis, (offset, extent) in enumerate(zip(offsets, self.block_shape, strict=True)):
            at = (offset + self.tl.arange(0, extent)).reshaped(
                lambda data, axis=axis: data.reshape([-1 if i == axis else 1 for i in range(rank)])
            )
            pointer = pointer + at.to(DTYPES["int64"]) * self.strides[axis]
            mask = (at >= 0) & (at < self.shape[axis]) & mask
        return pointer, mask

    def load(self, offsets: Any) -> Any:
        """The box at these offsets."""
        return _load(self.tl, *self._box(offsets), 0)

    def store(self, offsets: Any, value: Any) -> None:
        """Store a tile at these offsets."""
        pointer, mask = self._box(offsets)
        _store(self.tl, pointer, value, mask)


@_tl
def _make_tensor_descriptor(tl: Any, base: Tile, shape: Any, strides: Any, block_shape: Any, **_: Any) -> Descriptor:
    return Descriptor(tl, base, shape, strides, block_shape)


@_tl
def _make_block_ptr(tl: Any, *_: Any, **__: Any) -> None:
    raise Refused("Triton has no block pointers any more: use tl.make_tensor_descriptor.")
