"""The six formats that networks are trained in."""

from __future__ import annotations

from labkit.core.display import Table
from labkit.train.formats.format import Format

_IEEE = "IEEE 754-2019, table 3.5"
_OFP8 = "Micikevicius et al., FP8 formats for deep learning (2022), arXiv:2209.05433; OCP OFP8 specification 1.0 (2023)"

float32 = Format("float32", 8, 23, 32, _IEEE)
tfloat32 = Format("tfloat32", 8, 10, 32, "NVIDIA A100 Tensor Core GPU architecture (2020), figure 9")
bfloat16 = Format(
    "bfloat16", 8, 7, 16, "Kalamkar et al., A study of bfloat16 for deep learning (2019), arXiv:1905.12322"
)
float16 = Format("float16", 5, 10, 16, _IEEE)
float8_e4m3fn = Format("float8_e4m3fn", 4, 3, 8, _OFP8, has_inf=False)
float8_e5m2 = Format("float8_e5m2", 5, 2, 8, _OFP8)

ALL = (float32, tfloat32, bfloat16, float16, float8_e4m3fn, float8_e5m2)


def table(formats: tuple[Format, ...] = ALL) -> Table:
    """Bits and limits of some formats, for a cell to show."""
    headings = ("format", "sign + exponent + fraction", "largest", "smallest normal", "smallest", "epsilon")
    return Table(tuple(each.describe() for each in formats), headings)
