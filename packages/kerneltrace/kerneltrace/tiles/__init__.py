"""Trace and compile Triton's kernels without a GPU; `tl` and `triton` are Triton's own
where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace
from typing import Any

from kerneltrace.ptx.triton import has_triton
from kerneltrace.tiles.binding import Jit, next_power_of_2
from kerneltrace.tiles.compiling import (
    TileCode as TileCode,
    compile as compile,  # noqa: A004  # Triton's own name
    occupancy as occupancy,
)
from kerneltrace.tiles.language import Language
from kerneltrace.tiles.tile_trace import (
    TileCounts as TileCounts,
    TileTrace as TileTrace,
    trace as trace,
)
from kerneltrace.tiles.traffic import TENSOR_SHARE as TENSOR_SHARE, Traffic as Traffic

__all__ = [
    "TENSOR_SHARE",
    "TileCode",
    "TileCounts",
    "TileTrace",
    "Traffic",
    "compile",
    "occupancy",
    "tl",
    "trace",
    "triton",
]


def __getattr__(name: str) -> Any:
    """`tl` and `triton`: Triton's modules, loaded when first asked for, or what stands
    in for them.
    """
    if name not in ("tl", "triton"):
        raise AttributeError(f"module 'kerneltrace.tiles' has no attribute {name!r}")
    if has_triton():
        return importlib.import_module(
            "triton" if name == "triton" else "triton.language"
        )
    if name == "tl":
        return _LANGUAGE
    return SimpleNamespace(
        jit=Jit,
        cdiv=lambda a, b: -(-a // b),
        next_power_of_2=next_power_of_2,
        language=_LANGUAGE,
        Config=lambda kwargs, num_warps=4, num_stages=3, **_: SimpleNamespace(
            kwargs=kwargs, num_warps=num_warps, num_stages=num_stages
        ),
        autotune=lambda configs, *_, **__: lambda kernel: Jit(kernel, configs),
        heuristics=lambda values: lambda kernel: Jit(kernel, values=values),
    )


_LANGUAGE = Language()
