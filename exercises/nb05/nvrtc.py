"""CUDA C++ of notebook 05, compiled by NVRTC for an A100 on any machine, and run on the
CPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gpufacts import Device
from kerneltrace import Compiled, Trace, compile_cuda, trace
from kerneltrace.errors import MissingCompiler
from labkit.lesson.boards import SpeedBoard
from labkit.measure import catalog

_CAPABILITY = (8, 0)
_TRACED = 512  # numbers
_BLOCK = 256
NEEDS = "a CUDA GPU and CuPy"


def build(source: str, *options: str) -> Compiled | None:
    """CUDA C++ compiled for compute capability 8.0; None without NVRTC, and a sentence
    says how to install it.
    """
    try:
        return compile_cuda(source, compute_capability=_CAPABILITY, options=options)
    except MissingCompiler as missing:
        print(missing)
    return None


def text_of(name: str) -> str:
    """The CUDA C++ of a kernel of this folder, such as "matmul_coarsened"."""
    return Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")


def arithmetic(compiled: Compiled) -> dict[str, int]:
    """Instruction -> how often it stands in the code, of those on float32 numbers that
    neither load nor store.
    """
    found = compiled.instructions("*.f32")
    return {
        name: count
        for name, count in found.items()
        if not name.startswith(("ld", "st"))
    }


def traced(source: str) -> Trace:
    """A kernel (x, y, n) on 512 numbers from -3 to 3."""
    x = np.linspace(-3, 3, _TRACED, dtype=np.float32)
    return trace(source, 2, _BLOCK, x, np.empty_like(x), _TRACED)


def expect(board: SpeedBoard, versions: Mapping[str, str], gpu: Device, n: int) -> None:
    """Show on a board the times of kernels (x, y, n) that are calculated for `gpu` and
    `n` numbers; rows without a time where there is no NVRTC.
    """
    for row, source in versions.items():
        times = {}
        if build(source):
            estimate = traced(source).estimate(gpu, grid=n // _BLOCK)
            times = {gpu.name: estimate.seconds}
        board.absent(row, needs=NEEDS, calculated=times)


def by_bytes(board: SpeedBoard, arrays: Mapping[str, int], n_bytes: int) -> None:
    """Show what the bytes alone take on an H200, for rows that read or write so many
    arrays of `n_bytes`.
    """
    bandwidth = catalog.find("H200 SXM").bandwidth_bytes_per_s or math.nan
    for row, count in arrays.items():
        seconds = count * n_bytes / bandwidth
        moved = {"H200, its bytes alone": seconds}
        board.absent(f"{row}, on a GPU", needs=NEEDS, calculated=moved)
