"""The boards of notebook 03: one loop in Python, on one core, on all, and as a kernel;
what a start costs, and what the bus takes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kerneltrace import Trace
from labkit.core.parameters import Array
from labkit.lesson.boards import SpeedBoard
from labkit.measure import catalog
from labkit.measure.bench import Comparison, Ratio, Timing, speedup, time_call
from labkit.measure.ceilings import measure_ceilings
from labkit.measure.machine import machine, pick, threads
from labkit.measure.published import Bus

# of the array: Python's rate doesn't depend on how many elements it gets
_FEW = 50_000
_BLOCKS = 4096
_THREADS = 256  # of a block
_NEEDS = "a CUDA GPU that torch and numba can use"
Loop = Callable[..., object]


@dataclass(frozen=True)
class LoopRace:
    """The versions of a loop timed in turn over `n` elements, and Python over fewer."""

    comparison: Comparison
    python: Timing
    n: int

    @property
    def against_python(self) -> Ratio:
        """How many times as fast `njit` on one core is as Python, element by
        element.
        """
        few = min(_FEW, self.n)
        (njit,) = (t for t in self.comparison.timings if t.label == "njit")
        return speedup(self.python, njit).times(self.n / few)

    @property
    def against_numpy(self) -> Ratio:
        """How many times as fast `njit` on one core is as NumPy."""
        return self.comparison.ratio("njit")


def race(
    python: Loop,
    compiled: Mapping[str, Loop],
    kernel: Any,
    traced: Trace,
    x: Array,
    gain: np.float32,
    bias: np.float32,
) -> LoopRace:
    """Time gain * x + bias in all versions, with the rate of a copy as the limit of
    each.

    `compiled` are numba's loops by row, "njit" and "njit(parallel)", and `traced` is
    the kernel's trace in two turns of its loop, from which its time is calculated where
    there is no GPU.
    """
    here = machine()
    out = np.empty_like(x)
    few = x[:_FEW]
    few_out = np.empty_like(few)
    size = f"{x.size:,} elements, {few.size:,} in Python"
    board = SpeedBoard(
        "03.3", "gain * x + bias", unit="B/s", size=size, dtype="float32", log=True
    )
    python_timing = board.time(
        "Python",
        lambda: python(few, gain, bias, few_out),
        items=2 * few.nbytes,
        sync=here.sync,
    )
    rows: dict[str, Callable[[], object]] = {"NumPy": lambda: gain * x + bias}
    for row, loop in compiled.items():
        rows[row] = functools.partial(loop, x, gain, bias, out)
    if _has_gpu():
        rows["CUDA"] = _launch(kernel, (_BLOCKS, _THREADS), x, gain, bias)
    comparison = board.compare(
        rows,
        items=2 * x.nbytes,
        sync=here.sync,
        budget_s=pick(ci=0.8, cpu=4.0, gpu=5.0),
        claims=["C05"],
    )
    for row, cores in (("njit", 1), ("njit(parallel)", here.cores)):
        board.limit(row, _copy_rate(x, out, cores))
    if _has_gpu():
        board.limit("CUDA", measure_ceilings().copy_bytes_per_s)
    else:
        turns = x.size / (_BLOCKS * _THREADS)
        estimate = traced.estimate("H200 SXM", grid=_BLOCKS, longer=turns / 2)
        rate = {f"H200, {estimate.limit} limits": 2 * x.nbytes / estimate.seconds}
        board.absent("CUDA", needs=_NEEDS, calculated=rate)
    return LoopRace(comparison, python_timing, x.size)


def time_starts(
    board: SpeedBoard,
    compiled: Mapping[str, Loop],
    kernel: Any,
    x: Array,
    gain: np.float32,
    bias: np.float32,
) -> None:
    """Time the loops on the few elements of `x`, and a launch where there is a GPU."""
    here = machine()
    out = np.empty_like(x)
    for row, loop in compiled.items():
        call = functools.partial(loop, x, gain, bias, out)
        board.time(row, call, sync=here.sync, budget_s=0.2)
    if _has_gpu():
        launch = _launch(kernel, (1, 32), x, gain, bias)
        board.time("CUDA kernel", launch, sync=here.sync)
    else:
        board.absent("CUDA kernel", needs=_NEEDS)


def share_of_bus(x: Array, bus: Bus, loops: LoopRace) -> tuple[float, str]:
    """The percentage of the time that the bus takes if `x` is sent, the kernel runs
    once and the result comes back; and the number's origin.

    Measured where there is a GPU. Else both times are bytes over a rate: the published
    one of `bus`, and the memory bandwidth of an H200's data sheet.
    """
    if not _has_gpu():
        bandwidth = catalog.find("H200 SXM").bandwidth_bytes_per_s
        bus_s = 2 * x.nbytes / bus.bytes_per_s
        kernel_s = 2 * x.nbytes / bandwidth
        return 100 * bus_s / (bus_s + kernel_s), "calculated"
    cuda: Any = importlib.import_module("numba.cuda")
    copies = time_call(
        lambda: cuda.to_device(x).copy_to_host(), label="copies", sync=machine().sync
    )
    kernel_s = loops.comparison.timings[-1].median_s
    return 100 * copies.median_s / (copies.median_s + kernel_s), "measured"


def _has_gpu() -> bool:
    """Whether torch and numba both see a GPU."""
    cuda: Any = importlib.import_module("numba.cuda")
    return bool(machine().gpus) and bool(cuda.is_available())


def _launch(
    kernel: Any, shape: tuple[int, int], x: Array, gain: np.float32, bias: np.float32
) -> Callable[[], object]:
    """A launch of the kernel, with the array already in GPU memory."""
    cuda: Any = importlib.import_module("numba.cuda")
    x_there = cuda.to_device(x)
    out_there = cuda.device_array_like(x)
    return functools.partial(kernel[shape], x_there, gain, bias, out_there)


def _copy_rate(x: Array, out: Array, cores: int) -> float:
    """Bytes read and written a second by a copy on so many cores."""
    from_x = torch.from_numpy(x)
    to_out = torch.from_numpy(out)
    with threads(cores):
        copy = time_call(lambda: to_out.copy_(from_x), label="copy", budget_s=0.3)
    return float(2 * x.nbytes / copy.median_s)
