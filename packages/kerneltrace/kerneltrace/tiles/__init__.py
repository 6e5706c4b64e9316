"""Trace and compile Triton's kernels without a GPU; `tl` and `triton` are Triton's own
where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace
from typing import Any

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
    if importlib.util.find_spec("triton"):
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
        Config=lambda kwargs, **_: SimpleNamespace(kwargs=kwargs),
        autotune=lambda configs, **_: lambda kernel: Jit(kernel.fn, configs),
    )


_LANGUAGE = Language()
