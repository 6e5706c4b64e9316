"""Floating-point formats from float32 to float8: bits, limits, rounding, and what they do to small numbers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from labkit.train.formats.format import (
    ALL,
    Bits,
    Format,
    Shares,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    table,
    tfloat32,
)

if TYPE_CHECKING:
    from labkit.train.formats.low_precision import autocast_forward, round_weights

__all__ = [
    "ALL",
    "Bits",
    "Format",
    "Shares",
    "autocast_forward",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "round_weights",
    "table",
    "tfloat32",
]


def __getattr__(name: str) -> Any:  # only these need torch, and figures of formats are drawn without it
    if name in ("autocast_forward", "round_weights"):
        return getattr(importlib.import_module("labkit.train.formats.low_precision"), name)
    raise AttributeError(f"module 'labkit.train.formats' has no attribute {name!r}")
