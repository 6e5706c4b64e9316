"""Numbers in registers: their types, how they are read from bits, and how they are
rounded.

Source: NVIDIA, Parallel Thread Execution ISA, "Fundamental Types" and "Operand Size
Exceeding Instruction-Type Size".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.log.traced_memory import Array

TYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype("?"),
    "f16": np.dtype("f2"),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "tf32": np.dtype("f4"),
    "bf16": np.dtype("u2"),
    "f16x2": np.dtype("u4"),
    "bf16x2": np.dtype("u4"),
    **{
        f"{letter}{bits}": np.dtype(f"u{bits // 8}")
        for letter in "ub"
        for bits in (8, 16, 32, 64)
    },
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
}
"""Types of instructions as NumPy's; NumPy has no bfloat16 and no pairs, which stay the
bits that they are.
"""
REGISTERS = TYPES | {
    "f16": np.dtype("u2"),
    **{f"s{bits}": np.dtype(f"u{bits // 8}") for bits in (16, 32, 64)},
}
"""Types of registers: they hold bits."""


ELEMENTS: dict[str, np.dtype[Any]] = {
    kind: np.dtype(code)
    for kind, code in (
        ("f16", "f2"),
        ("bf16", "u2"),
        ("tf32", "f4"),
        ("f64", "f8"),
        ("s8", "i1"),
        ("u8", "u1"),
    )
}
"""Types of the elements of matrices."""


def as_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """A register's value in the type of an instruction: the same bits, or the lower
    ones of a larger register.
    """
    if value.dtype == dtype:
        return value
    size = value.dtype.itemsize
    if "b" in (dtype.kind, value.dtype.kind):
        return value.astype(dtype)
    if size == dtype.itemsize:
        return value.view(dtype)
    bits = value.view(f"u{size}") if value.dtype.kind != "i" else value
    # a signed number keeps its sign where it gets more bits
    kind = "i" if bits.dtype.kind == "i" else "u"
    return bits.astype(f"{kind}{dtype.itemsize}").view(dtype)


def constant(word: str, dtype: np.dtype[Any]) -> Any:
    """A number as PTX writes it, in a type."""
    if word[:2] in ("0f", "0d", "0F", "0D"):
        bits = bytes.fromhex(word[2:])[::-1]
        number = np.frombuffer(bits, f"<f{len(bits)}")[0]
        return (
            number
            if dtype.kind == "f" and dtype.itemsize == len(bits)
            else as_type(number, dtype)
        )
    if "." in word:
        return dtype.type(word)
    whole = np.array(int(word.rstrip("U"), 0) % 2**64, np.uint64)
    return as_type(
        whole, dtype if dtype.kind != "f" else np.dtype(f"u{dtype.itemsize}")
    )[()].view(dtype)


def widened(bits: Any) -> Any:
    """bfloat16 as float32."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def narrowed(value: Any) -> Any:
    """float32 as the bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    rounded = (
        bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    ) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded).astype(np.uint16)


def opened(bits: Any, kind: str) -> Any:
    """The numbers that bits of a type stand for, along a new last axis: one, or the two
    of a pair.
    """
    numbers = np.asarray(bits)[..., None].view(
        {"f16x2": "f2", "bf16x2": "u2"}.get(kind, TYPES[kind])
    )
    if kind[:4] == "bf16":
        return widened(numbers)
    if kind == "f16x2":
        return numbers.astype("f4")
    return numbers


def closed(numbers: Any, kind: str) -> Any:
    """The bits of a type of 16 bits, or of a pair of it, for numbers along the last
    axis.
    """
    short = narrowed(numbers) if kind[:4] == "bf16" else numbers.astype("f2")
    return np.ascontiguousarray(short).view(TYPES[kind])[..., 0]


def to_tf32(value: Any) -> Any:
    """float32 rounded to the 10 bits of TF32's fraction, ties away from zero."""
    return ((value.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(
        np.float32
    )


def towards(exact: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Round to a float type: to nearest for rn, towards zero, below or above for rz, rm
    and rp.
    """
    near: Array = np.asarray(exact).astype(dtype)
    if mode not in ("rz", "rm", "rp"):
        return near
    if mode == "rm":
        over = near > exact
    elif mode == "rp":
        over = near < exact
    else:
        over = np.abs(near) > np.abs(exact)
    goal = {"rm": -np.inf, "rp": np.inf, "rz": 0.0}[mode]
    return np.where(over, np.nextafter(near, dtype.type(goal)), near)


ROUNDINGS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def converted(value: Any, dtype: np.dtype[Any], parts: tuple[str, ...]) -> Any:
    """What `cvt` makes of a number; out of a whole type's range it gives the nearest
    that there is, 0 for NaN.
    """
    if value.dtype.kind == "f":
        for part in parts:
            if part in ROUNDINGS:
                value = ROUNDINGS[part](value)
        if dtype.kind != "f":
            info = np.iinfo(dtype)
            wide = value.astype(np.float64)
            inside = np.clip(
                np.nan_to_num(wide, posinf=np.inf, neginf=-np.inf),
                float(info.min),
                float(info.max),
            )
            below = np.where(inside >= float(info.max), info.max, inside.astype(dtype))
            return np.where(inside <= float(info.min), info.min, below).astype(dtype)
        mode = next((part for part in parts if part in ("rz", "rm", "rp")), "rn")
        rounded = (
            towards(value, dtype, mode)
            if dtype.itemsize < value.dtype.itemsize
            else value.astype(dtype)
        )
    elif "sat" in parts and dtype.kind != "f":
        info = np.iinfo(dtype)
        own = np.iinfo(value.dtype)
        return np.clip(value, max(info.min, own.min), min(info.max, own.max)).astype(
            dtype
        )
    else:
        rounded = value.astype(dtype)
    return saturated(rounded) if "sat" in parts else rounded


def saturated(value: Any) -> Any:
    """Between 0 and 1; NaN becomes 0."""
    return np.clip(np.nan_to_num(value, nan=0.0, posinf=1.0, neginf=0.0), 0, 1).astype(
        value.dtype
    )


COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def compared(name: str, a: Any, b: Any) -> Any:
    """A comparison; with NaN all are false but those whose names end in u, `ne` too."""
    if a.dtype.kind != "f":
        return COMPARISONS[name](a, b)
    has_nan = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return has_nan == (name == "nan")
    truth = COMPARISONS[name.removesuffix("u")](a, b)
    return truth | has_nan if name.endswith("u") else truth & ~has_nan


def numbers_in(parts: Array, kind: str) -> Array:
    """The numbers (threads, elements) that registers (threads, registers) hold."""
    elements: Array
    elements = np.ascontiguousarray(parts).view(ELEMENTS.get(kind, TYPES[kind]))
    if kind == "bf16":
        elements = widened(elements)
    elif kind == "tf32":
        elements = to_tf32(elements)
    return elements
