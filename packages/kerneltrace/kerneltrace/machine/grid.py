"""Grids, blocks and warps: extents, places in them, and what a GPU can launch."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, NamedTuple

from kerneltrace._text import brief_repr

WARP = 32
"""Threads."""


class Dim3(NamedTuple):
    """Extents of, or a place in, a grid or a block; x varies fastest."""

    x: int
    y: int
    z: int


def place(number: Any, shape: Dim3) -> Dim3:
    """The place of the thread or block with a number, counted in a shape with x
    fastest.
    """
    return Dim3(
        number % shape.x, number // shape.x % shape.y, number // (shape.x * shape.y)
    )


def place_name(at: Dim3, shape: Dim3) -> str:
    """A place as a message quotes it: x alone where the shape has one dimension, else
    (x, y) or (x, y, z).
    """
    if shape.y == shape.z == 1:
        return str(at.x)
    if shape.z == 1:
        return str(tuple(at[:2]))
    return str(tuple(at))


MAX_THREADS = 1024
MAX_BLOCK = Dim3(1024, 1024, 64)
MAX_GRID = Dim3(2**31 - 1, 65535, 65535)
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


def as_dim3(name: str, value: Any, largest: Dim3) -> Dim3:
    """A grid or block, given as an integer or a tuple of up to three, as a Dim3;
    TypeError or ValueError for anything else.
    """
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    are_whole = all(
        isinstance(part, Integral) and not isinstance(part, bool) for part in parts
    )
    if not are_whole or not 1 <= len(parts) <= 3:
        error = ValueError if are_whole else TypeError
        raise error(
            f"Expected {name} to be a whole number or a tuple of up to three, got"
            f" {brief_repr(value)}."
        )
    full = Dim3(*(int(part) for part in (*parts, 1, 1)[:3]))
    for part, limit, axis in zip(full, largest, "xyz", strict=True):
        if not 1 <= part <= limit:
            hint = ""
            if part == 0:
                hint = (
                    " Nothing would run; is the number of blocks rounded down? Use"
                    " -(-n // block)."
                )
            raise ValueError(
                f"Expected {name}.{axis} to be 1 to {limit:,}, got {part:,}.{hint}"
            )
    if name == "block" and math.prod(full) > MAX_THREADS:
        sizes = " x ".join(str(part) for part in full if part > 1)
        raise ValueError(
            f"A block has at most {MAX_THREADS:,} threads; {sizes} are"
            f" {math.prod(full):,}. Use a smaller block and more blocks."
        )
    return full
