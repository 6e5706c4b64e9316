"""Whether numba, numba-cuda and NumPy, which are installed apart, go together."""

from __future__ import annotations

import functools
import importlib.metadata
import re

import numpy as np

# numba 0.66 moved types that numba-cuda imports, from their new place since 0.30.4:
# github.com/NVIDIA/numba-cuda/pull/905. pip installs older ones without a word.
MOVED_TYPES = (0, 66)
KNOWS_THEIR_PLACE = (0, 30, 4)


@functools.cache
def check_numba() -> None:
    """RuntimeError where numba-cuda is too old for numba: `from numba import cuda`
    would end in an AttributeError inside of numba.

    Where NumPy has no `row_stack`, it gets one: numba-cuda 0.30.4, the newest of 2026,
    looks it up when it compiles its first kernel. NumPy 2.5 removed that name of
    `vstack` (github.com/numpy/numpy/pull/30463).
    """
    if not hasattr(np, "row_stack"):
        vars(np)["row_stack"] = np.vstack
    numba = _version("numba")
    numba_cuda = _version("numba-cuda")
    if numba is None or numba_cuda is None:
        return
    if _numbers(numba) >= MOVED_TYPES and _numbers(numba_cuda) < KNOWS_THEIR_PLACE:
        raise RuntimeError(
            f"numba {numba} needs numba-cuda 0.30.4 or newer, and this is {numba_cuda}."
            " Install a pair that fits: pip install 'numba-cuda>=0.30.4'; or, where"
            " numba-cuda has to stay: pip install 'numba<0.66'. Then restart Python."
        )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version's release, as in "0.66.0rc1" -> (0, 66, 0)."""
    release = re.match(r"[\d.]*\d", version)
    return tuple(map(int, release[0].split("."))) if release else ()
