"""Floating-point formats from float32 to float8: bits, limits, rounding, and what they do to small numbers."""

from labkit.formats.format import Bits, Format, Shares
from labkit.formats.known import ALL, bfloat16, float8_e4m3fn, float8_e5m2, float16, float32, table, tfloat32

__all__ = [
    "ALL",
    "Bits",
    "Format",
    "Shares",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "table",
    "tfloat32",
]
