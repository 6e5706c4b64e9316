"""The arithmetic of `tl`: functions of elements, reductions, scans, and products of tiles.

Source: triton/language/math.py, standard.py and semantic.py of Triton 3.9.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.values import to_tf32
from kerneltrace.tiles.language import FUNCTIONS, Language, as_function, kind_of, plain
from kerneltrace.tiles.tensors import (
    ARITHMETIC,
    DTYPES,
    FLOAT32,
    INT1,
    INT32,
    DType,
    Refused,
    Tile,
    binary,
    constant,
    paired,
    undefined_of,
)

_LEAST_K = {8: 32, 16: 16, 32: 8, 64: 4}
"""The least inner extent of tl.dot by the bits of its operands (triton/backends/nvidia/compiler.py)."""
_DOT_TYPES = ("int8", "float16", "bfloat16", "float32", "float64")
_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)
_ERF = np.frompyfunc(math.erf, 1, 1)
_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "ceil": np.ceil, "tanh": np.tanh,
    "erf": lambda x: np.asarray(_ERF(x), np.float64), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "max": np.fmax.reduce, "min": np.fmin.reduce, "argmax": np.argmax, "argmin": np.argmin,
    "xor_sum": np.bitwise_xor.reduce,
}  # fmt: skip


@as_function
def _where(tl: Language, condition: Any, x: Any, y: Any) -> Tile:
    condition = constant(tl, condition).to(INT1)
    x, y = (constant(tl, operand) for operand in paired(tl, x, y))
    try:
        data = np.where(condition.data, x.data, y.data)
    except ValueError:
        raise Refused(f"tl.where got shapes {condition.shape}, {x.shape} and {y.shape}, which don't fit.") from None
    undefined = None
    if undefined_of(condition, x, y) is not None:
        of_x, of_y, of_condition = (False if t.undefined is None else t.undefined for t in (x, y, condition))
        undefined = np.where(condition.data, of_x, of_y) | of_condition
    return Tile(tl, data, x.dtype, undefined, max(x.wrapped, y.wrapped))


def _two(name: str, tl: Language, x: Any, y: Any, *_: Any, **__: Any) -> Tile:
    return binary(name, tl, constant(tl, x) if not isinstance(y, Tile) else x, y)


def _one(name: str, tl: Language, x: Any) -> Tile:
    x = constant(tl, x)
    if x.dtype.name not in ("float32", "float64"):
        raise Refused(f"tl.{name} takes float32 or float64, got {x.dtype}: cast with .to(tl.float32).")
    out = Tile(tl, _UNARY[name](x.data), x.dtype, x.undefined)
    tl.run.computed(name, out, x, special=name not in ("floor", "ceil"))
    return out


@as_function
def _abs(tl: Language, x: Any) -> Tile:
    x = constant(tl, x)
    return Tile(tl, np.abs(x.data), x.dtype, x.undefined)


@as_function
def _softmax(tl: Language, x: Tile, dim: int = 0, **_: Any) -> Any:
    powers = tl.exp(x - tl.max(x, dim, keep_dims=True))
    return powers / tl.sum(powers, dim, keep_dims=True)


def _widened(name: str, x: Tile, dtype: DType | None) -> Tile:
    """What a reduction takes for its operand: small types become 32 bits, but for sums of floats."""
    if dtype is not None or x.dtype.primitive_bitwidth >= 32 or (name == "sum" and x.dtype.is_floating()):
        return x.to(dtype or x.dtype)
    return x.to(FLOAT32 if x.dtype.is_floating() else DTYPES["uint32" if x.dtype.numpy.kind == "u" else "int32"])


def _reduced(
    name: str, tl: Language, x: Any, axis: Any = None, return_indices: bool = False, keep_dims: bool = False,
    dtype: Any = None, **_: Any,
) -> Any:  # fmt: skip
    x = _widened(name, constant(tl, x), dtype)
    if axis is not None and not -len(x.shape) <= axis < len(x.shape):
        raise Refused(f"A tile of shape {x.shape} has no axis {axis}.")
    undefined: Any = None
    if x.undefined is not None:
        undefined = np.broadcast_to(x.undefined, x.shape).any(axis=axis, keepdims=keep_dims)
    found = _REDUCTIONS[name](x.data, axis=axis, keepdims=keep_dims)
    out = Tile(tl, found, INT32 if name.startswith("arg") else x.dtype, undefined)
    if x.dtype.is_floating():
        tl.run.computed(name, out, x, flop=x.numel - out.numel)
    return (out, _reduced(f"arg{name}", tl, x, axis, keep_dims=keep_dims)) if return_indices else out


def _scanned(function: Any, tl: Language, x: Tile, axis: int = 0, reverse: bool = False, dtype: Any = None) -> Tile:
    def turned(data: Array) -> Array:
        return np.flip(data, axis) if reverse else data

    x, undefined = _widened("sum", x, dtype), None
    if x.undefined is not None:
        undefined = turned(np.logical_or.accumulate(turned(np.broadcast_to(x.undefined, x.shape)), axis=axis))
    out = Tile(tl, turned(function(turned(x.data), axis=axis, dtype=x.dtype.numpy)), x.dtype, undefined)
    if x.dtype.is_floating():
        tl.run.computed(function.__name__, out, x)
    return out


def _random(tl: Language, seed: Any, offset: Tile, n_rounds: int = 10) -> Array:
    """32 random bits for each offset: Philox (Salmon et al. 2011) as triton/language/random.py has it."""
    key, low = int(plain(seed)) % 2**64, offset.data.astype(np.uint64)
    c0, c1, c2, c3 = low & _LOW, low >> _HALF, np.zeros_like(low), np.zeros_like(low)
    k0, k1 = key % 2**32, key // 2**32
    for _ in range(n_rounds):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c2 = b >> _HALF ^ c1 ^ np.uint64(k0), a >> _HALF ^ c3 ^ np.uint64(k1)
        c1, c3 = b & _LOW, a & _LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0.astype(np.uint32).view(np.int32)


@as_function
def _rand(tl: Language, seed: Any, offset: Tile, n_rounds: int = 10) -> Tile:
    bits = _random(tl, seed, offset, n_rounds)
    return Tile(tl, np.where(bits < 0, -bits - 1, bits).astype("f4") * np.float32(4.6566127342e-10), FLOAT32)


FUNCTIONS["randint"] = lambda tl, *args: Tile(tl, _random(tl, *args), INT32)
FUNCTIONS |= {name: functools.partial(_two, name) for name in ARITHMETIC}
FUNCTIONS |= {name: functools.partial(_one, name) for name in _UNARY}
FUNCTIONS |= {name: functools.partial(_reduced, name) for name in _REDUCTIONS}
FUNCTIONS |= {function.__name__: functools.partial(_scanned, function) for function in (np.cumsum, np.cumprod)}
FUNCTIONS |= {
    "fdiv": FUNCTIONS["truediv"],
    "div_rn": FUNCTIONS["truediv"],
    "fma": lambda tl, x, y, z: x * y + z,
    "clamp": lambda tl, x, low, high, **_: _two("minimum", tl, _two("maximum", tl, x, low), high),
    "cdiv": lambda tl, x, y: (x + (y - 1)) // y,
}


@as_function
def _dot(
    tl: Language, a: Tile, b: Tile, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None, out_dtype: Any = None,
) -> Tile:  # fmt: skip
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3) or a.shape[-1] != b.shape[-2]:
        raise Refused(f"tl.dot takes tiles of shapes (M, K) and (K, N), got {a.shape} and {b.shape}.")
    if a.dtype != b.dtype or a.dtype.name not in _DOT_TYPES:
        some = ", ".join(_DOT_TYPES)
        raise Refused(f"tl.dot takes two tiles of one type of {some}, got {a.dtype} and {b.dtype}: cast with .to().")
    least = _LEAST_K[a.dtype.primitive_bitwidth]
    if a.shape[-1] < least:
        raise Refused(f"tl.dot needs an inner extent of at least {least} for {a.dtype}, got {a.shape[-1]}.")
    half = out_dtype or (FLOAT32 if acc is None else acc.dtype)
    dtype = {"int8": INT32, "float64": a.dtype, "float16": half}.get(a.dtype.name, FLOAT32)
    tf32 = a.dtype == FLOAT32 and input_precision in (None, "tf32") and allow_tf32 is not False
    left, right = (x.data.astype(np.promote_types(dtype.numpy, "f4"), order="C") for x in (a, b))
    product = np.matmul(to_tf32(left), to_tf32(right)) if tf32 else np.matmul(left, right)
    if acc is not None and (acc.shape != product.shape or acc.dtype != dtype):
        raise Refused(f"tl.dot adds to {dtype} of shape {product.shape}, and its accumulator is {kind_of(acc)}.")
    undefined: Any = None
    if undefined_of(a, b) is not None:
        rows, columns = (np.broadcast_to(False if x.undefined is None else x.undefined, x.shape) for x in (a, b))
        undefined = rows.any(-1, keepdims=True) | columns.any(-2, keepdims=True)
    out = Tile(tl, product if acc is None else acc.data + product, dtype, undefined)
    if acc is not None:
        out.undefined = undefined_of(out, acc)
    staged = (a.numel + b.numel) * a.dtype.primitive_bitwidth // 8
    tl.run.multiplied("tf32" if tf32 else a.dtype.name, 2 * product.size * a.shape[-1], staged)
    tl.run.computed("dot", out, a, b, *([] if acc is None else [acc]), flop=0)
    return out
