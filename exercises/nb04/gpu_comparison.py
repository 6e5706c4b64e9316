"""Kernels timed in turn on the GPU, on a board beside their estimates."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from kerneltrace import Estimate
from kerneltrace.errors import KernelError
from labkit.core.display import brief_repr
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison
from labkit.measure.machine import Machine, machine


def time_on_gpu(
    section: str,
    title: str,
    launches: Mapping[str, tuple[Any, ...]],
    *,
    estimates: Mapping[str, Estimate],
    size: str,
) -> Comparison | None:
    """Time launches in turn on the GPU and record them, beside their estimates. Without
    a GPU, show the rest only.

    A launch is (kernel, grid, block, *arguments); an argument that is a tuple stands
    for a float32 array of that shape, filled with random numbers on the GPU and shared
    by the launches. `size` says in words what a launch handles; values of another size
    are not shown. Returns None without a GPU. Raises KernelError for a launch of
    another form.
    """
    for row, launch in launches.items():
        if not isinstance(launch, tuple) or len(launch) < 3 or not callable(launch[0]):
            raise KernelError(
                f"Expected (kernel, grid, block, *arguments) for {row!r}, got"
                f" {brief_repr(launch)}."
            )
    here = machine()
    cuda: Any = importlib.import_module("numba.cuda")
    on_gpu = bool(here.gpus) and cuda.is_available()  # torch and numba both see it
    board = SpeedBoard(section, title, size=size, dtype="float32", log=True)
    for row in launches:
        calculated = {
            f"{e.device}, {e.limit} limits": e.seconds
            for e in (estimates.get(row),)
            if e
        }
        if on_gpu:
            board.expect(row, calculated)
        else:
            board.absent(row, "a CUDA GPU that numba can use", calculated=calculated)
    if not on_gpu:
        return None
    return board.compare(ready(launches, here), sync=here.sync)


def ready(
    launches: Mapping[str, tuple[Any, ...]], here: Machine
) -> dict[str, Callable[[], object]]:
    """A call without arguments for each launch, its arrays on the GPU."""
    import torch

    cuda: Any = importlib.import_module("numba.cuda")

    @functools.cache
    def array(place: int, shape: tuple[int, ...]) -> Any:
        return cuda.as_cuda_array(torch.rand(shape, device=here.device))

    calls: dict[str, Callable[[], object]] = {}
    with warnings.catch_warnings():
        # numba's, on grids too small to fill the GPU: here they are a row like others
        warnings.simplefilter("ignore")
        for row, (kernel, grid, block, *arguments) in launches.items():
            inputs = [
                array(i, arg) if isinstance(arg, tuple) else arg
                for i, arg in enumerate(arguments)
            ]
            calls[row] = functools.partial(kernel[grid, block], *inputs)
    return calls
