"""Fast kernels for the notebooks: CUDA C++ for CuPy, one file each, with launchers that take torch tensors.

`source` and `names` need neither a GPU nor CuPy; the launchers need both. The numba kernels are in `numba_kernels`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.core.errors import LabError, nearest

if TYPE_CHECKING:
    from labkit.kernels.arrays import copy, matmul, reduce_sum, saxpy, transpose
    from labkit.kernels.cnn_block import cnn_block_backward, cnn_block_forward

__all__ = [
    "cnn_block_backward",
    "cnn_block_forward",
    "copy",
    "matmul",
    "names",
    "numba_kernels",
    "reduce_sum",
    "saxpy",
    "source",
    "transpose",
]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the CUDA C++ sources, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.cu"))


def source(name: str) -> str:
    """The CUDA C++ text of the kernel file `name`; LabError, with the nearest names, where there is none."""
    if name not in names():
        raise LabError(f"No kernel file is called {name!r}; the nearest are {', '.join(nearest(str(name), names()))}.")
    return (_FOLDER / f"{name}.cu").read_text(encoding="utf-8")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'labkit.kernels' has no attribute {name!r}")
    if name == "numba_kernels":
        return importlib.import_module("labkit.kernels.numba_kernels")
    home = "cnn_block" if name.startswith("cnn_block") else "arrays"
    return getattr(importlib.import_module(f"labkit.kernels.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
