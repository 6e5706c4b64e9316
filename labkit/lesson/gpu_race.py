"""Time kernels against each other on the GPU, beside the limits that were calculated for them."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.errors import KernelError
from labkit.core.results import recorded
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison
from labkit.measure.machine import Machine, machine


def race(
    section: str, title: str, launches: Mapping[str, tuple[Any, ...]], *, bounds: Mapping[str, tuple[float, float]],
    size: str,
) -> Comparison | None:  # fmt: skip
    """Time launches in turn on the GPU and record them. Without a GPU, show recorded runs, if any, and return None.

    A launch is (kernel, grid, block, *arguments); an argument that is a tuple stands for a float32 array of that shape,
    filled with random numbers on the GPU and shared by the launches. `bounds` maps a row to two times in seconds: the
    lower limit for arrays much larger than the L2 cache, which is drawn, and the time without any cache. `size` says
    in words what a launch handles; recorded runs of another size are not shown.
    Raises KernelError for a launch of another form.
    """
    for row, launch in launches.items():
        if not isinstance(launch, tuple) or len(launch) < 3 or not callable(launch[0]):
            raise KernelError(f"Expected (kernel, grid, block, *arguments) for {row!r}, got {brief_repr(launch)}.")
    here = machine()
    if not here.gpus and not any(recorded(f"{section} {row}") for row in launches):
        from IPython.display import Markdown, display

        words = "Not measured here: this needs a CUDA GPU, and no recorded run has it yet."
        display(Markdown(f"**{title}.** {words}"))
        return None
    board = SpeedBoard(section, title, size=size, dtype="float32", log=bool(here.gpus))
    if not here.gpus:
        for row in launches:
            board.absent(row, needs="a CUDA GPU")
        return None
    for row in launches:
        if row in bounds:
            board.limit(row, bounds[row][0])
    return board.compare(ready(launches, here), sync=here.sync)


def ready(launches: Mapping[str, tuple[Any, ...]], here: Machine) -> dict[str, Callable[[], object]]:
    """A call without arguments for each launch, its arrays on the GPU."""
    import torch

    cuda: Any = importlib.import_module("numba.cuda")

    @functools.cache
    def array(place: int, shape: tuple[int, ...]) -> Any:
        return cuda.as_cuda_array(torch.rand(shape, device=here.device))

    calls: dict[str, Callable[[], object]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's, on grids too small to fill the GPU: here they are a row like others
        for row, (kernel, grid, block, *arguments) in launches.items():
            given = [array(i, arg) if isinstance(arg, tuple) else arg for i, arg in enumerate(arguments)]
            calls[row] = functools.partial(kernel[grid, block], *given)
    return calls
