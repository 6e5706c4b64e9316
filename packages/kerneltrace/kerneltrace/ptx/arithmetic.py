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

from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import INTEGER_DIVISION, Operations
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.values import TYPES, closed, opened, saturated, towards

Function = Callable[..., Any]
_BIT_LENGTHS = np.frompyfunc(int.bit_length, 1, 1)
Computed = tuple[Function, list[str]]
"""What an instruction computes, and the types of its sources."""


def _divide(a: Any, b: Any) -> Any:
    """As in C: whole numbers are cut off towards zero."""
    if a.dtype.kind == "u":
        return a // b
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _high_product(a: Any, b: Any) -> Any:
    """The upper half of a product's bits."""
    n_bytes = a.dtype.itemsize
    if n_bytes < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * n_bytes}")
        product = np.multiply(a, b, dtype=wide)
        return (product >> wide.type(8 * n_bytes)).astype(a.dtype)
    exact = a.astype(object) * b.astype(object)  # of Python's numbers
    return np.asarray(exact // 2**64 % 2**64).astype(np.uint64).view(a.dtype)


def _shifted(shift: Function, a: Any, by: Any) -> Any:
    """A shift of any number of places; one of all bits takes two steps in NumPy."""
    last = 8 * a.dtype.itemsize - 1
    most = shift(a, np.minimum(by, last).astype(a.dtype))
    return shift(most, (by > last).astype(a.dtype))


_left = functools.partial(_shifted, np.left_shift)
_right = functools.partial(_shifted, np.right_shift)


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
    at = np.minimum(at & 0xFF, bits).astype(np.int64)
    n = np.minimum(n & 0xFF, bits - at).astype(np.int64)
    field = _right(_left(a, bits - at - n), bits - n)
    return np.where(n > 0, field, 0).astype(a.dtype)


def _put_field(a: Any, b: Any, at: Any, n: Any) -> Any:
    """bfi: the lower n bits of a in b, from a place on."""
    at = at & 0xFF
    n = n & 0xFF
    mask = _left(_left(np.uint64(1), n) - np.uint64(1), at)
    field = _left(a.astype(np.uint64), at) & mask
    return (field | (b.astype(np.uint64) & ~mask)).astype(a.dtype)


def _permute(a: Any, b: Any, picked: Any) -> Any:
    """prmt: four of the eight bytes of two words; 8 more repeats the byte's sign."""
    a, b, picked = np.broadcast_arrays(a, b, picked)
    places = np.arange(0, 16, 4, dtype=np.uint32)
    nibbles = picked[..., None] >> places & np.uint32(15)  # (threads, 4)
    words = [_bytes(a, "s32"), _bytes(b, "s32")]
    all_bytes = np.concatenate(words, axis=-1)  # (threads, 8)
    chosen = np.take_along_axis(all_bytes, nibbles & 7, axis=-1)
    chosen = np.where(nibbles > 7, chosen >> 7, chosen)
    return chosen.astype("i1").view("u4")[..., 0]


def _lop3(a: Any, b: Any, c: Any, table: Any) -> Any:
    """lop3: bit i of the table is the result where a, b and c have the bits of i."""
    result: Any = np.uint32(0)
    for i in range(8):
        if int(table) >> i & 1:
            has_a = a if i & 4 else ~a
            has_b = b if i & 2 else ~b
            has_c = c if i & 1 else ~c
            result = result | has_a & has_b & has_c
    return result


def _funnel(a: Any, b: Any, by: Any, parts: tuple[str, ...]) -> Any:
    """shf: 32 of the 64 bits of a (the lower ones) and b."""
    by = np.minimum(by, 32) if "clamp" in parts else by & 31
    by = by.astype(np.uint64)
    pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    shifted = (pair << by) >> np.uint64(32) if "l" in parts else pair >> by
    return shifted.astype(np.uint32)


def _bytes(words: Any, kind: str) -> Any:
    """The bytes of words along a new last axis."""
    return np.asarray(words)[..., None].view("i1" if kind == "s32" else "u1")


def _dp4a(a: Any, b: Any, c: Any, parts: tuple[str, ...]) -> Any:
    products = _bytes(a, parts[0]).astype(np.int64) * _bytes(b, parts[1])
    return (products.sum(axis=-1) + c).astype(c.dtype)


def _count_bits(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32)


def _length(a: Any) -> Any:
    """The number of bits up to the highest that is 1."""
    return np.asarray(_BIT_LENGTHS(a), np.uint32)


def _highest(a: Any) -> Any:
    """bfind: the place of the highest bit that differs from the sign, all ones where
    there is none.
    """
    return _length(np.where(a < 0, ~a, a).astype(a.dtype)) - np.uint32(1)


def _reverse(a: Any) -> Any:
    bytes_ = np.asarray(a)[..., None].view("u1")
    bits = np.unpackbits(bytes_, axis=-1, bitorder="little")
    reversed_bytes = np.packbits(bits[..., ::-1], axis=-1, bitorder="little")
    return reversed_bytes.view(a.dtype)[..., 0]


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
_SPECIAL = ("div", "rem", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
_COUNTED = {
    **dict.fromkeys(("add", "sub", "mul", "neg", "abs", "min", "max", *_SPECIAL), 1),
    "fma": 2,
    "mad": 2,
}
"""FLOP of each."""
_ATOMIC_ARITHMETIC = {"add", "min", "max", "and", "or", "xor", "inc", "dec"}
_FLOATS_AS_BITS = ("bf16", "f16x2", "bf16x2")
"""Types of floats that NumPy has not: registers hold their bits."""
_UNKNOWN = {"cc", "b4e", "f4e", "rc8", "ecl", "ecr", "rc16"}
"""Parts of instructions that are not known here, such as the carry."""


def function_of(instruction: Instruction) -> Computed | None:
    """What an instruction computes, and the types of its sources; None for one not
    known here.
    """
    name = instruction.name
    parts = instruction.parts
    kind = instruction.kind
    if name in _OF_PARTS:
        of_parts = _OF_PARTS[name]
        return lambda a, b, c: of_parts(a, b, c, parts), ["b32", "b32", kind]
    if parts[:1] == ("shiftamt",):
        bits = np.uint32(8 * TYPES[kind].itemsize)
        return lambda a: bits - np.uint32(1) - np.minimum(_highest(a), bits), [kind]
    if name not in FUNCTIONS or kind not in TYPES or not _UNKNOWN.isdisjoint(parts):
        return None
    dtype = TYPES[kind]
    count = len(instruction.operands) - 1
    if dtype.kind == "f" or kind in _FLOATS_AS_BITS:
        return float_function(instruction, kind), [kind] * count
    short = _SOURCES_IN_32_BITS.get(name, ())
    sources = ["u32" if i in short else kind for i in range(count)]
    if name in ("mul", "mad"):
        return _whole_product(instruction, sources)
    if name in ("min", "max", "add", "sub") and "sat" in parts:
        return None
    return FUNCTIONS[name], sources


def float_function(instruction: Instruction, kind: str) -> Function:
    """What an instruction computes of floats of a type."""
    name = instruction.name
    function = FUNCTIONS[name]
    if "NaN" not in instruction.parts:
        function = _OF_FLOATS.get(name, function)
    dtype = TYPES[kind]
    if dtype.kind == "f":
        return _rounded(instruction, dtype, function)
    in_float32 = _rounded(instruction, np.dtype("f4"), function)

    def on_bits(*args: Any) -> Any:
        return closed(in_float32(*(opened(arg, kind) for arg in args)), kind)

    return on_bits


def _rounded(
    instruction: Instruction, dtype: np.dtype[Any], function: Function
) -> Function:
    """The function with its result in the type, as the instruction rounds it."""
    parts = set(instruction.parts)
    modes = parts & {"rz", "rm", "rp"}
    mode = modes.pop() if modes else ""

    def rounded(*args: Any) -> Any:
        if mode and dtype.itemsize < 8:
            return towards(function(*(a.astype(np.float64) for a in args)), dtype, mode)
        value = function(*args).astype(dtype)
        if "relu" in parts:
            return np.maximum(value, dtype.type(0))
        return saturated(value) if "sat" in parts else value

    is_wider = instruction.name in ("fma", "mad", "tanh")
    is_plain = not (mode or is_wider or {"sat", "relu"} & parts)
    return function if is_plain else rounded


def _whole_product(instruction: Instruction, sources: list[str]) -> Computed:
    last = instruction.kind
    product = _high_product if "hi" in instruction.parts else FUNCTIONS["mul"]
    if "wide" in instruction.parts:
        last = f"{last[0]}{2 * int(last[1:])}"
        product = functools.partial(np.multiply, dtype=TYPES[last])
    if instruction.name == "mul":
        return product, sources
    return lambda a, b, c: product(a, b) + c, [*sources[:2], last]


_BITS = {"tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
"""Whose products tensor cores do at the rate of numbers of so many bits (data sheets of
A100 and H100).
"""


def operations_of(instruction: Instruction) -> Operations:
    """What one thread does with it: FLOP and operations on whole numbers; those on 64
    bits compute addresses.
    """
    name = instruction.name
    parts = instruction.parts
    kind = instruction.kind
    if name == "mma" or (name == "wmma" and parts[0] == "mma"):
        return _operations_of_matrices(parts)
    if name in ("atom", "red") and not _ATOMIC_ARITHMETIC.isdisjoint(parts):
        return Operations(flop=1) if "f" in kind else Operations(integer=1)
    is_float = kind in ("f16", "f32", "f64") or kind in _FLOATS_AS_BITS
    if is_float and name in _COUNTED:
        numbers = 2 if kind.endswith("x2") else 1
        is_double = kind == "f64"
        is_special = name in _SPECIAL and not is_double
        return Operations(
            flop=_COUNTED[name] * numbers,
            instructions=1,
            double=int(is_double),
            special=int(is_special),
        )
    if name in ("div", "rem") and kind[0] in "us":
        return Operations(
            integer=1, instructions=INTEGER_DIVISION, divisions=INTEGER_DIVISION
        )
    if name == "cvt" and "f64" in parts:  # by the units of float64
        return Operations(instructions=1, double=1)
    if name in ("ld", "st") and "local" in parts:
        return Operations(local=1)
    if name in FUNCTIONS and kind and kind[0] in "usb":
        return Operations(
            integer=2 if name == "mad" else 1,
            instructions=0 if kind.endswith("64") else 1,
        )
    return Operations()


def _operations_of_matrices(parts: tuple[str, ...]) -> Operations:
    """A lane's part of a product of matrices, whose shape is m16n8k16 or the like."""
    shapes = (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", part) for part in parts)
    (shape,) = filter(None, shapes)
    m, n, k = map(int, shape.groups())
    flop = 2 * m * n * k // WARP
    if "f64" in parts:
        return Operations(flop, instructions=1, tensor_double=flop)
    bits = _BITS.get(parts[6], 16)
    return Operations(
        flop, instructions=1, tensor=flop * bits // 16, products=flop // 2
    )
