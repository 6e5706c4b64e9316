"""What instructions on numbers compute, for all threads at once.

Approximate functions are computed exactly, but for tanh, and numbers too small to be
normal are kept where `.ftz` may flush them. Source: NVIDIA, Parallel Thread Execution
ISA, "Integer Arithmetic Instructions" and the following sections.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.log.program import Operations
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.values import TYPES, closed, opened, saturated, towards

Function = Callable[..., Any]


def _divide(a: Any, b: Any) -> Any:
    """As in C: whole numbers are cut off towards zero."""
    if a.dtype.kind == "u":
        return a // b
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _high_product(a: Any, b: Any) -> Any:
    """The upper half of a product's bits."""
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (
            np.multiply(a, b, dtype=wide) >> wide.type(8 * a.dtype.itemsize)
        ).astype(a.dtype)
    product = a.astype(object) * b.astype(object)  # of Python's numbers
    return np.asarray(product // 2**64 % 2**64).astype(np.uint64).view(a.dtype)


def _right(a: Any, by: Any) -> Any:
    last = 8 * a.dtype.itemsize - 1
    return a >> np.minimum(by, last).astype(a.dtype) >> (by > last).astype(a.dtype)


def _left(a: Any, by: Any) -> Any:
    last = 8 * a.dtype.itemsize - 1
    return a << np.minimum(by, last).astype(a.dtype) << (by > last).astype(a.dtype)


def _fma(a: Any, b: Any, c: Any) -> Any:
    wide = np.longdouble if a.dtype.itemsize == 8 else np.float64
    return np.add(np.multiply(a, b, dtype=wide), c, dtype=wide)


def _tanh_approx(a: Any) -> Any:
    fraction, power = np.frexp(np.tanh(a))
    # its relative error is up to 2^-11
    return np.ldexp(np.rint(fraction * 2**11) / 2**11, power)


def _field(a: Any, at: Any, n: Any) -> Any:
    """bfe: n bits from a place on, of signed numbers with their highest bit repeated
    above.
    """
    bits = a.dtype.itemsize * 8
    at, n = (np.minimum(v & 0xFF, bits).astype(np.int64) for v in (at, n))
    n = np.minimum(n, bits - at)
    return np.where(n > 0, _right(_left(a, bits - at - n), bits - n), 0).astype(a.dtype)


def _put_field(a: Any, b: Any, at: Any, n: Any) -> Any:
    """bfi: the lower n bits of a in b, from a place on."""
    at, n = (v & 0xFF for v in (at, n))
    mask = _left(_left(np.uint64(1), n) - np.uint64(1), at)
    return (
        (_left(a.astype(np.uint64), at) & mask) | (b.astype(np.uint64) & ~mask)
    ).astype(a.dtype)


def _permute(a: Any, b: Any, picked: Any) -> Any:
    """prmt: four of the eight bytes of two words; 8 more repeats the byte's sign."""
    a, b, picked = np.broadcast_arrays(a, b, picked)
    nibbles = picked[..., None] >> np.arange(0, 16, 4, dtype=np.uint32) & np.uint32(15)
    both = np.concatenate([_bytes(a, "s32"), _bytes(b, "s32")], axis=-1)
    bytes_ = np.take_along_axis(both, nibbles & 7, axis=-1)
    return np.where(nibbles > 7, bytes_ >> 7, bytes_).astype("i1").view("u4")[..., 0]


def _lop3(a: Any, b: Any, c: Any, table: Any) -> Any:
    bits: Any = np.uint32(0)
    for i in range(8):
        if int(table) >> i & 1:
            bits = bits | (a if i & 4 else ~a) & (b if i & 2 else ~b) & (
                c if i & 1 else ~c
            )
    return bits


def _funnel(a: Any, b: Any, by: Any, parts: tuple[str, ...]) -> Any:
    """shf: 32 of the 64 bits of a (the lower ones) and b."""
    by = np.minimum(by, 32) if "clamp" in parts else by & 31
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    by = by.astype(np.uint64)
    return ((both << by) >> np.uint64(32) if "l" in parts else both >> by).astype(
        np.uint32
    )


def _bytes(words: Any, kind: str) -> Any:
    return np.asarray(words)[..., None].view("i1" if kind == "s32" else "u1")


def _dp4a(a: Any, b: Any, c: Any, parts: tuple[str, ...]) -> Any:
    return (
        (_bytes(a, parts[0]).astype(np.int64) * _bytes(b, parts[1])).sum(axis=-1) + c
    ).astype(c.dtype)


def _differences(a: Any, b: Any, c: Any, parts: tuple[str, ...]) -> Any:
    """vabsdiff4: those of four bytes, or c and their sum."""
    apart = np.abs(_bytes(a, parts[1]).astype("i2") - _bytes(b, parts[1])).astype("u1")
    return (
        apart.sum(axis=-1, dtype="u4") + c
        if "add" in parts
        else apart.view("u4")[..., 0]
    )


def _count_bits(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32)


def _length(a: Any) -> Any:
    """The number of bits up to the highest that is 1."""
    filled = a
    for shift in (1, 2, 4, 8, 16, 32)[: 5 + (a.dtype.itemsize == 8)]:
        filled = filled | filled >> a.dtype.type(shift)
    return _count_bits(filled)


def _highest(a: Any) -> Any:
    """bfind: the place of the highest bit that differs from the sign, all ones where
    there is none.
    """
    return _length(np.where(a < 0, ~a, a).astype(a.dtype)) - np.uint32(1)


def _reverse(a: Any) -> Any:
    bits = np.unpackbits(
        np.asarray(a)[..., None].view("u1"), axis=-1, bitorder="little"
    )
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(a.dtype)[
        ..., 0
    ]


FUNCTIONS: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mad": lambda a, b, c: a * b + c,
    "fma": _fma,
    "div": _divide,
    "rem": lambda a, b: a - _divide(a, b) * b,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _left,
    "shr": _right,
    "popc": _count_bits,
    "clz": lambda a: np.uint32(8 * a.dtype.itemsize) - _length(a),
    "bfe": _field,
    "bfi": _put_field,
    "brev": _reverse,
    "prmt": _permute,
    "bfind": _highest,
    "lop3": _lop3,
    "sad": lambda a, b, c: c + np.where(a < b, b - a, a - b),
    "copysign": lambda sign, size: np.copysign(size, sign),
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": _tanh_approx,
}
_OF_PARTS: dict[str, Function] = {
    "dp4a": _dp4a,
    "vabsdiff4": _differences,
    "shf": _funnel,
}
_OF_FLOATS: dict[str, Function] = {
    "div": np.divide,
    "min": np.fmin,
    "max": np.fmax,
    "mad": _fma,
}
_SOURCES_IN_32_BITS = {
    "shl": (1,),
    "shr": (1,),
    "bfe": (1, 2),
    "bfi": (2, 3),
    "lop3": (3,),
}
_COUNTED = {
    "fma": 2,
    "mad": 2,
    **dict.fromkeys(
        (
            "add",
            "sub",
            "mul",
            "div",
            "rem",
            "neg",
            "abs",
            "min",
            "max",
            "rcp",
            "sqrt",
            "rsqrt",
            "ex2",
            "lg2",
            "sin",
            "cos",
            "tanh",
        ),
        1,
    ),
}
_SPECIAL = ("div", "rem", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")


def function_of(one: Instruction) -> tuple[Function, list[np.dtype[Any]]] | None:
    """What an instruction computes, and the types of its sources; None for one not
    known here.
    """
    kind = one.parts[-1] if one.parts else ""
    if one.name in _OF_PARTS:
        own = _OF_PARTS[one.name]
        last = TYPES[kind] if one.name == "dp4a" else TYPES["b32"]
        return lambda a, b, c: own(a, b, c, one.parts), [
            TYPES["b32"],
            TYPES["b32"],
            last,
        ]
    if one.parts[:1] == ("shiftamt",):
        bits = np.uint32(8 * TYPES[kind].itemsize)
        return lambda a: bits - np.uint32(1) - np.minimum(_highest(a), bits), [
            TYPES[kind]
        ]
    function: Function | None = FUNCTIONS.get(one.name)
    if (
        function is None
        or kind not in TYPES
        or {"cc", "b4e", "f4e", "rc8", "ecl", "ecr", "rc16"} & set(one.parts)
    ):
        return None
    dtype = TYPES[kind]
    many = len(one.operands) - 1
    is_float = kind in ("bf16", "f16x2", "bf16x2") or dtype.kind == "f"
    if is_float and "NaN" not in one.parts:
        function = _OF_FLOATS.get(one.name, function)
    if is_float and dtype.kind != "f":
        of_floats = _rounded(one, np.dtype("f4"), function)
        return (
            lambda *args: closed(of_floats(*(opened(arg, kind) for arg in args)), kind),
            [dtype] * many,
        )
    if is_float:
        return _rounded(one, dtype, function), [dtype] * many
    short = _SOURCES_IN_32_BITS.get(one.name, ())
    sources = [TYPES["u32"] if i in short else dtype for i in range(many)]
    if one.name in ("mul", "mad"):
        return _whole_product(one, dtype, sources)
    if one.name in ("min", "max", "add", "sub") and "sat" in one.parts:
        return None
    return function, sources


def _rounded(one: Instruction, dtype: np.dtype[Any], function: Function) -> Function:
    """The function with its result in the type, as the instruction rounds it."""
    mode = next((part for part in one.parts if part in ("rz", "rm", "rp")), "")

    def rounded(*args: Any) -> Any:
        if mode and dtype.itemsize < 8:
            return towards(function(*(a.astype(np.float64) for a in args)), dtype, mode)
        value = function(*args).astype(dtype)
        if "relu" in one.parts:
            return np.maximum(value, dtype.type(0))
        return saturated(value) if "sat" in one.parts else value

    is_plain = not (
        mode or {"sat", "relu"} & set(one.parts) or one.name in ("fma", "mad", "tanh")
    )
    return function if is_plain else rounded


def _whole_product(
    one: Instruction, dtype: np.dtype[Any], sources: list[np.dtype[Any]]
) -> tuple[Function, list[np.dtype[Any]]]:
    product = _high_product if "hi" in one.parts else FUNCTIONS["mul"]
    if "wide" in one.parts:
        dtype = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
        product = functools.partial(np.multiply, dtype=dtype)
    if one.name == "mul":
        return product, sources
    return lambda a, b, c: product(a, b) + c, [*sources[:2], dtype]


_BITS = {"tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
"""Whose products tensor cores do at the rate of numbers of so many bits (data sheets of
A100 and H100).
"""


def operations_of(one: Instruction) -> Operations:
    """What one thread does with it: FLOP and operations on whole numbers; those on 64
    bits compute addresses.
    """
    kind = one.parts[-1] if one.parts else ""
    if "mma" in (one.name, *one.parts[:1]):
        m, n, k = (
            int(n)
            for part in one.parts
            if part[0] == "m" and "k" in part
            for n in re.findall(r"\d+", part)
        )
        flop = 2 * m * n * k // 32
        bits = _BITS.get(one.parts[6], 16)
        return Operations(
            flop,
            instructions=1,
            double=int(kind == "f64"),
            tensor=flop * bits // 16 * (kind != "f64"),
        )
    if one.name in ("atom", "red") and set(one.parts) & {
        "add",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "inc",
        "dec",
    }:
        return Operations(flop=1) if "f" in kind else Operations(integer=1)
    if (
        kind in ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")
        and one.name in _COUNTED
    ):
        times = _COUNTED[one.name] * (1 + kind.endswith("x2"))
        is_double = kind == "f64"
        slow = one.name in _SPECIAL and not is_double
        return Operations(
            flop=times, instructions=1, double=int(is_double), special=int(slow)
        )
    if one.name in FUNCTIONS and kind[:1] in "usb" and kind:
        return Operations(
            integer=1 + (one.name == "mad"), instructions=int(not kind.endswith("64"))
        )
    return Operations()
