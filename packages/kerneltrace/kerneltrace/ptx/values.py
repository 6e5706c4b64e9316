"""Numbers in registers: their types, how they are read from bits, and how they are
rounded.

Source: NVIDIA, Parallel Thread Execution ISA, "Fundamental Types" and "Operand Size
Exceeding Instruction-Type Size".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.machine.traced_memory import Array, of_nan

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
        f"{letter}{bits}": np.dtype(f"{code}{bits // 8}")
        for letter, code in ("uu", "bu", "si")
        for bits in (8, 16, 32, 64)
    },
}
"""Types of instructions as NumPy's; NumPy has no bfloat16 and no pairs, which stay the
bits that they are.
"""


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
        return as_type(np.frombuffer(bits, f"<f{len(bits)}")[0], dtype)
    if "." in word:
        return dtype.type(word)
    whole = np.array(int(word.rstrip("U"), 0) % 2**64, np.uint64)
    return as_type(whole, dtype)[()]


def widened(bits: Any) -> Any:
    """bfloat16 as float32."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def narrowed(value: Any) -> Any:
    """float32 as the bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    is_odd = bits >> np.uint32(16) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + is_odd) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded).astype(np.uint16)


def opened(bits: Any, kind: str) -> Any:
    """The numbers that bits of a type stand for, along a new last axis: one, or the two
    of a pair.
    """
    part = {"f16x2": "f2", "bf16x2": "u2"}.get(kind, TYPES[kind])
    numbers = np.asarray(bits)[..., None].view(part)
    if kind.startswith("bf16"):
        return widened(numbers)
    return numbers.astype("f4") if kind == "f16x2" else numbers


def closed(numbers: Any, kind: str) -> Any:
    """The bits of a type of 16 bits, or of a pair of it, for numbers along the last
    axis.
    """
    short = narrowed(numbers) if kind.startswith("bf16") else numbers.astype("f2")
    return np.ascontiguousarray(short).view(TYPES[kind])[..., 0]


def to_tf32(value: Any) -> Any:
    """float32 rounded to the 10 bits of TF32's fraction, ties away from zero."""
    rounded = (value.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return rounded.view(np.float32)


def towards(exact: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Round to a float type: to nearest for rn, towards zero, below or above for rz, rm
    and rp.
    """
    near: Array = np.asarray(exact).astype(dtype)
    if mode not in ("rz", "rm", "rp"):
        return near
    to_zero = np.copysign(np.inf, -exact)
    goal = np.asarray({"rm": -np.inf, "rp": np.inf, "rz": to_zero}[mode], dtype)
    over = np.where(goal < 0, near > exact, near < exact)
    return np.where(over, np.nextafter(near, goal), near)


ROUNDINGS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def converted(value: Any, dtype: np.dtype[Any], parts: tuple[str, ...]) -> Any:
    """What `cvt` makes of a number; out of a whole type's range it gives the nearest
    that there is, and for NaN what `of_nan` says.
    """
    if value.dtype.kind == "f":
        result = _converted_float(value, dtype, parts)
    elif "sat" in parts and dtype.kind != "f":
        source = np.iinfo(value.dtype)
        target = np.iinfo(dtype)
        least = max(source.min, target.min)
        result = np.clip(value, least, min(source.max, target.max)).astype(dtype)
    else:
        result = value.astype(dtype)
    return saturated(result) if "sat" in parts and dtype.kind == "f" else result


def _converted_float(value: Any, dtype: np.dtype[Any], parts: tuple[str, ...]) -> Any:
    for part in parts:
        if part in ROUNDINGS:
            value = ROUNDINGS[part](value)
    if dtype.kind != "f":
        return cut(value, dtype)
    if dtype.itemsize >= value.dtype.itemsize:
        return value.astype(dtype)
    modes = [part for part in parts if part in ("rz", "rm", "rp")]
    return towards(value, dtype, modes[0] if modes else "rn")


def cut(value: Any, dtype: np.dtype[Any]) -> Any:
    """Floats as the nearest whole numbers of a type; its limits, which no float64 may
    be, are put in as they are, and so is what NaN gives.
    """
    info = np.iinfo(dtype)
    nan = of_nan(value.dtype, dtype)
    wide = value.astype(np.float64)
    inside = np.clip(
        np.where(np.isnan(wide), 0.0, wide), float(info.min), float(info.max)
    )
    whole = np.where(inside >= float(info.max), info.max, inside.astype(dtype))
    within = np.where(inside <= float(info.min), info.min, whole)
    return np.where(np.isnan(wide), nan, within).astype(dtype)


def saturated(value: Any) -> Any:
    """Between 0 and 1; NaN becomes 0."""
    return np.fmin(np.fmax(value, 0), 1)


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
    if name == "nan":
        return has_nan
    if name == "num":
        return ~has_nan
    truth = COMPARISONS[name.removesuffix("u")](a, b)
    return truth | has_nan if name.endswith("u") else truth & ~has_nan
