"""`tl` as a traced kernel sees it: programs, loops, new tiles, their shapes and
arithmetic; `transfers` adds memory.

Source: triton/language/core.py, math.py, semantic.py and standard.py of Triton 3.9.
"""

# ruff: noqa: A002, A006 - parameters have Triton's names

from __future__ import annotations

import functools
import importlib.util
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.triton import has_triton
from kerneltrace.ptx.values import to_tf32
from kerneltrace.tiles.tensors import (
    DTYPES,
    FLOAT32,
    INT32,
    RUN,
    Refused,
    Tile,
    binary,
    constant,
    fitted,
    kind_of,
    paired,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions of tl by name."""
MAX_ELEMENTS = 2**20
"""Of a tile (TRITON_MAX_TENSOR_NUMEL)."""
_SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
_LEAST_K = {"int8": 32, "float16": 16, "bfloat16": 16, "float32": 8, "float64": 4}
"""The least inner extent of tl.dot by the type of its operands
(triton/backends/nvidia/compiler.py).
"""
_MODULES = (
    "triton.language",
    "triton.language.math",
    "triton.language.extra.cuda.libdevice",
)
AS_PTX = (
    "kerneltrace.trace(kernel, grid, 128, ...) runs a kernel as the PTX that Triton"
    " compiles, with all of Triton's functions"
)
PROPAGATE_NAN = types.SimpleNamespace(NONE=0, ALL=0xFFFF)
"""Of tl.maximum, tl.minimum and tl.clamp; Triton's own are of an enumeration."""
_PIECE = 2**18
"""Multiplications that OpenBLAS does in one thread (interface/gemm.c)."""
_ERF = np.frompyfunc(math.erf, 1, 1)
_OF_NUMPY = "exp exp2 log log2 sin cos sqrt floor ceil tanh"
_UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(np, name) for name in _OF_NUMPY.split()},
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: np.asarray(_ERF(x), np.float64),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.fmax.reduce,
    "min": np.fmin.reduce,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "xor_sum": np.bitwise_xor.reduce,
}


class Constexpr:
    """A constant of the module that kernels may use, SIZE = tl.constexpr(64);
    parameters are marked with it, too.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class Language:
    """The names of triton.language, which work while there is a run; `constexpr` is
    what a constant becomes.
    """

    def __init__(self, constexpr: Any = Constexpr) -> None:
        # functions have one name wherever they stand
        self.math = self.libdevice = self.extra = self.cuda = self
        self.constexpr = constexpr
        self.tensor = Tile
        self.PropagateNan = PROPAGATE_NAN

    def __getattr__(self, name: str) -> Any:
        kind = _SHORT.get(name, name)
        if kind in DTYPES:
            return DTYPES[kind]
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        if not name.startswith("_") and not _is_in_triton(name):
            raise AttributeError(f"tl.{name} is not known here, nor to Triton")
        raise AttributeError(f"tl.{name} is not known here: {AS_PTX}")


TL = Language(lambda value: value)
"""`tl` in a run, where constants are what they hold."""


def _is_in_triton(name: str) -> bool:
    """Whether Triton has a function, as far as an installed one can be asked."""
    if not has_triton():
        return True
    modules = map(importlib.import_module, _MODULES)
    return any(hasattr(module, name) for module in modules)


def as_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enter a function under its name without the underscore."""
    name = function.__name__[1:]
    FUNCTIONS[name] = function
    function.__qualname__ = f"tl.{name}"  # which Python's own errors quote
    return function


def extents(shape: Any) -> tuple[int, ...]:
    """The shape of a new tile, judged."""
    shape = (*shape,) if isinstance(shape, tuple | list) else (shape,)
    for extent in shape:
        if isinstance(extent, Tile):
            raise Refused(
                "A tile's extents are constants: mark the parameter as tl.constexpr,"
                " and pass it by name."
            )
        if extent < 1 or extent & (extent - 1):
            raise Refused(
                f"A tile's extents are powers of two, and {extent} is none: use"
                " triton.next_power_of_2."
            )
    if math.prod(shape) > MAX_ELEMENTS:
        raise Refused(
            f"A tile has at most {MAX_ELEMENTS:,} elements, and {shape} are"
            f" {math.prod(shape):,}."
        )
    return tuple(shape)


@as_function
def _static_range(arg1: Any, arg2: Any = None, step: Any = None) -> Any:
    bounds = _bounds(arg1, arg2, step)
    if any(isinstance(bound, Tile) for bound in bounds):
        raise Refused(
            "tl.static_range takes constants: use range, or mark the parameter as"
            " tl.constexpr."
        )
    return range(*bounds)


def _bounds(arg1: Any, arg2: Any, step: Any) -> tuple[Any, ...]:
    """Arguments of Python's range."""
    first, end = (0, arg1) if arg2 is None else (arg1, arg2)
    return first, end, 1 if step is None else step


@as_function
def _range(
    arg1: Any,
    arg2: Any = None,
    step: Any = None,
    num_stages: Any = None,
    loop_unroll_factor: Any = None,
    disallow_acc_multi_buffer: bool = False,
    flatten: bool = False,
    warp_specialize: bool = False,
    disable_licm: bool = False,
) -> Iterator[Tile]:
    """A loop's numbers; before each new turn the variables that it carries must have
    kept their types.
    """
    bounds = _bounds(arg1, arg2, step)
    for bound in bounds:
        if isinstance(bound, Tile) and (bound.shape or bound.dtype.kind != 1):
            raise Refused(f"range takes whole numbers, got {kind_of(bound)}.")
    dtype = max(
        (constant(bound).dtype for bound in bounds),
        key=lambda t: t.primitive_bitwidth,
    )
    before: dict[str, str] = {}
    for i in range(*map(int, bounds)):
        variables = sys._getframe(1).f_locals
        now = {
            name: kind_of(value)
            for name, value in variables.items()
            if isinstance(value, Tile | int | float)
        }
        for name, kind in before.items():
            if now.get(name, kind) != kind:
                raise Refused(
                    f"{name} is {kind} before the loop and {now[name]} after a turn: a"
                    " variable keeps its type and shape in a loop, so begin with"
                    " tl.zeros or tl.full of that type, or cast with .to()."
                )
        before = before or now
        yield Tile(i, dtype)


@as_function
def _arange(start: Any, end: Any) -> Tile:
    if isinstance(start, Tile) or isinstance(end, Tile):
        raise Refused(
            "tl.arange takes constants: mark the parameter as tl.constexpr, and pass it"
            " by name."
        )
    if end <= start:
        raise Refused(
            f"tl.arange's end must be above its start, got {start} and {end}."
        )
    extents(end - start)
    return Tile(np.arange(start, end), INT32)


def _full(shape: Any, value: Any, dtype: Any) -> Tile:
    return broadcast(constant(value, dtype), extents(shape))


def broadcast(x: Any, shape: tuple[int, ...]) -> Tile:
    """A tile, or a number, in a shape."""
    tile = constant(x)
    if tile.shape == shape:
        return tile
    try:
        return tile.reshaped(lambda data: np.broadcast_to(data, shape))
    except ValueError:
        raise Refused(
            f"A tile of shape {tile.shape} doesn't broadcast to {shape}."
        ) from None


def _dims(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Extents or axes, passed one by one or as one sequence."""
    if len(arguments) == 1 and isinstance(arguments[0], tuple | list):
        return tuple(arguments[0])
    return arguments


@as_function
def _reshape(input: Tile, *shape: Any, can_reorder: bool = False) -> Tile:
    if can_reorder:
        raise KernelError(f"can_reorder leaves the order open. {AS_PTX}.")
    shape = extents(_dims(shape))
    if math.prod(shape) != input.numel:
        raise Refused(
            f"A tile of shape {input.shape} can't become {shape}, which has another"
            " number of elements."
        )
    return input.reshaped(lambda data: data.reshape(shape))


@as_function
def _trans(input: Tile, *dims: Any) -> Tile:
    order = _dims(dims)
    if order:
        return input.reshaped(lambda data: np.transpose(data, order))
    return input.reshaped(lambda data: np.swapaxes(data, -1, -2))


@as_function
def _where(condition: Any, x: Any, y: Any) -> Tile:
    condition = constant(condition).to(DTYPES["int1"])
    x, y = paired(x, y)
    fitted(condition.shape, x.shape, y.shape)
    out = Tile(np.where(condition.data, x.data, y.data), x.dtype, x, y)
    out.undefined = (
        np.where(condition.data, x.undefined, y.undefined) | condition.undefined
    )
    return out


def _sanitized(name: str, x: Any, y: Any, sanitize_overflow: bool = True) -> Tile:
    return binary(name, x, y)


def _extreme(
    name: str, x: Any, y: Any, propagate_nan: Any = PROPAGATE_NAN.NONE
) -> Tile:
    suffix = "_nan" if int(getattr(propagate_nan, "value", propagate_nan)) else ""
    return binary(name + suffix, x, y)


@as_function
def _clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PROPAGATE_NAN.NONE) -> Tile:
    x = constant(x)
    if x.dtype.kind != 2:
        raise Refused(
            f"tl.clamp takes floats, got {x.dtype}: use tl.minimum and tl.maximum."
        )
    least = _extreme("maximum", x, min, propagate_nan)
    return _extreme("minimum", least, max, propagate_nan)


def _one(name: str, x: Any) -> Tile:
    x = constant(x)
    if x.dtype.name not in ("float32", "float64"):
        raise Refused(
            f"tl.{name} takes float32 or float64, got {x.dtype}: cast with"
            " .to(tl.float32)."
        )
    out = Tile(_UNARY[name](x.data), x.dtype, x)
    RUN.get().computed(name, out, x, special=name not in ("floor", "ceil"))
    return out


def _widened(name: str, x: Tile, dtype: Any) -> Tile:
    """What a reduction takes for its operand: small types become 32 bits, but for sums
    of floats.
    """
    if dtype is not None:
        return x.to(dtype)
    is_float = x.dtype.kind == 2
    if x.dtype.primitive_bitwidth >= 32 or (name == "sum" and is_float):
        return x.to(x.dtype)
    if is_float:
        return x.to(FLOAT32)
    return x.to(DTYPES["uint32" if x.dtype.numpy.kind == "u" else "int32"])


def _reduced(
    name: str, input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None
) -> Tile:
    x = _widened(name, constant(input), dtype)
    if axis is not None and not -len(x.shape) <= axis < len(x.shape):
        raise Refused(f"A tile of shape {x.shape} has no axis {axis}.")
    values = _REDUCTIONS[name](x.data, axis=axis, keepdims=keep_dims)
    out = Tile(values, INT32 if name.startswith("arg") else x.dtype)
    if not x.is_defined:
        out.undefined = np.asarray(x.undefined.any(axis=axis, keepdims=keep_dims))
    if x.dtype.kind == 2:
        RUN.get().computed(name, out, x, flop=x.numel - out.numel)
    return out


def _most(
    name: str,
    input: Any,
    axis: Any = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    values = _reduced(name, input, axis, keep_dims)
    if not return_indices:
        return values
    return values, _reduced(f"arg{name}", input, axis, keep_dims)


def _place_of(
    name: str,
    input: Any,
    axis: Any,
    tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Tile:
    return _reduced(name, input, axis, keep_dims)


@as_function
def _cumsum(
    input: Tile, axis: int = 0, reverse: bool = False, dtype: Any = None
) -> Tile:
    if reverse:
        turned: Tile = _cumsum(_flip(input, axis), axis, dtype=dtype)
        return turned.reshaped(lambda data: np.flip(data, axis))
    x = _widened("sum", input, dtype)
    out = Tile(np.cumsum(x.data, axis, x.dtype.numpy), x.dtype)
    out.undefined = np.logical_or.accumulate(x.undefined, axis)
    if x.dtype.kind == 2:
        RUN.get().computed("cumsum", out, x)
    return out


@as_function
def _flip(x: Tile, dim: Any = None) -> Tile:
    return x.reshaped(lambda data: np.flip(data, -1 if dim is None else dim))


FUNCTIONS |= {
    "program_id": lambda axis: Tile(RUN.get().place[axis], INT32),
    "num_programs": lambda axis: Tile(RUN.get().grid[axis], INT32),
    "full": _full,
    "zeros": lambda shape, dtype: _full(shape, 0, dtype),
    "zeros_like": lambda input: _full(input.shape, 0, input.dtype),
    "to_tensor": lambda x: constant(x),
    "cast": lambda input, dtype, fp_downcast_rounding=None, bitcast=False: constant(
        input
    ).to(dtype, fp_downcast_rounding, bitcast),
    "broadcast_to": lambda input, *shape: broadcast(input, _dims(shape)),
    "view": lambda input, *shape: _reshape(input, *shape),
    "ravel": lambda x, can_reorder=False: _reshape(x, x.numel, can_reorder=can_reorder),
    "expand_dims": lambda input, axis: constant(input).reshaped(
        lambda data: np.expand_dims(data, axis)
    ),
    "permute": lambda input, *dims: _trans(input, *dims),
    "split": lambda a: tuple(
        a.reshaped(lambda data, i=i: data[..., i]) for i in (0, 1)
    ),
    "abs": lambda x: Tile(np.abs(constant(x).data), constant(x).dtype, constant(x)),
    "fma": lambda x, y, z: x * y + z,
    "cdiv": lambda x, div: (x + (div - 1)) // div,
    "div_rn": lambda x, y: binary("truediv", x, y),
    "fdiv": lambda x, y, ieee_rounding=False, approx=False: binary("truediv", x, y),
    "sum": functools.partial(_reduced, "sum"),
    "xor_sum": lambda input, axis=None, keep_dims=False: _reduced(
        "xor_sum", input, axis, keep_dims
    ),
    "debug_barrier": lambda: None,
    "assume": lambda cond: None,
    "print": lambda *_, **__: None,
    "static_print": lambda *values, sep=" ", end="\n", file=None, flush=False: None,
    "device_print": lambda prefix, *args, hex=False: None,
    "static_assert": lambda cond, msg="": _assert(cond, msg),
    "device_assert": lambda cond, msg="", mask=None: _assert(cond, msg, mask),
    **{name: functools.partial(_sanitized, name) for name in ("add", "sub", "mul")},
    **{name: functools.partial(_extreme, name) for name in ("maximum", "minimum")},
    **{name: functools.partial(_one, name) for name in _UNARY},
    **{name: functools.partial(_most, name) for name in ("max", "min")},
    **{name: functools.partial(_place_of, name) for name in ("argmax", "argmin")},
    **dict.fromkeys(
        ("multiple_of", "max_contiguous", "max_constancy"), lambda input, values: input
    ),
}


def _assert(condition: Any, message: Any, mask: Any = None) -> None:
    holds = constant(condition).data
    if mask is not None:
        holds = holds | ~constant(mask).data
    if not np.all(holds):
        raise Refused(f"The assertion doesn't hold. {message}".rstrip())


@as_function
def _dot(
    input: Tile,
    other: Tile,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = FLOAT32,
) -> Tile:
    a = input
    b = other
    if out_dtype is None:
        out_dtype = FLOAT32
    _check_operands(a, b)
    name = a.dtype.name
    own = {"int8": INT32, "float64": a.dtype, "float16": out_dtype}
    dtype = own.get(name, FLOAT32)
    is_tf32 = (
        a.dtype == FLOAT32
        and input_precision in (None, "tf32")
        and allow_tf32 is not False
    )
    exact = np.promote_types(dtype.numpy, "f4")
    left = a.data.astype(exact, order="C")
    right = b.data.astype(exact, order="C")
    if is_tf32:
        left = to_tf32(left)
        right = to_tf32(right)
    product = _product(left, right)
    if acc is not None and (acc.shape != product.shape or acc.dtype != out_dtype):
        raise Refused(
            f"tl.dot adds to {out_dtype} of shape {product.shape}, and its accumulator"
            f" is {kind_of(acc)}: pass out_dtype, or cast it."
        )
    accumulator = () if acc is None else (acc,)
    out = Tile(product if acc is None else acc.data + product, dtype, *accumulator)
    if not (a.is_defined and b.is_defined):
        of_rows = a.undefined.any(-1, keepdims=True)
        out.undefined = out.undefined | of_rows | b.undefined.any(-2, keepdims=True)
    staged = (a.numel + b.numel) * a.dtype.primitive_bitwidth // 8
    run = RUN.get()
    run.work["tf32" if is_tf32 else name] += 2 * product.size * a.shape[-1]
    run.staged = max(run.staged, staged)
    run.computed("dot", out, a, b, *accumulator, flop=0)
    return out


def _product(left: Array, right: Array) -> Array:
    """The product of matrices, in pieces so small that BLAS starts no threads for them:
    to wait for its threads takes longer where other programs run.
    """
    *_, rows, inner = left.shape
    piece = max(min(rows, _PIECE // (inner * right.shape[-1])), 1)
    pieces = left.reshape(*left.shape[:-2], -1, piece, inner)
    product: Array = np.matmul(pieces, right[..., None, :, :])
    return product.reshape(*left.shape[:-1], right.shape[-1])


def _check_operands(a: Tile, b: Tile) -> None:
    """Refused for operands that tl.dot does not take."""
    if (
        len(a.shape) != len(b.shape)
        or len(a.shape) not in (2, 3)
        or a.shape[-1] != b.shape[-2]
    ):
        raise Refused(
            f"tl.dot takes tiles of shapes (M, K) and (K, N), got {a.shape} and"
            f" {b.shape}."
        )
    if a.dtype != b.dtype or a.dtype.name not in _LEAST_K:
        raise Refused(
            f"tl.dot takes two tiles of one type of {', '.join(_LEAST_K)}, got"
            f" {a.dtype} and {b.dtype}: cast with .to()."
        )
    least = _LEAST_K[a.dtype.name]
    if a.shape[-1] < least:
        raise Refused(
            f"tl.dot needs an inner extent of at least {least} for {a.dtype}, got"
            f" {a.shape[-1]}."
        )
