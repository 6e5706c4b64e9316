"""A product of rows with their experts' matrices: ways to get it from PyTorch, and the
time that is calculated for a grouped kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from exercises.nb18 import compiled
from gpufacts import Device
from kerneltrace import tiles
from labkit.core.display import Table
from labkit.core.parameters import checked
from labkit.core.units import format_quantity

TILE = 64


def programs() -> int:
    """As many as this machine's GPU has SMs; without one, 132 as an H100."""
    if not torch.cuda.is_available():
        return 132
    return torch.cuda.get_device_properties(0).multi_processor_count


def task(rows: int, experts: int, width: int) -> tuple[torch.Tensor, ...]:
    """Of a launch whose expert e has rows in proportion to 1 / (e + 1): x (rows,
    width), w (experts, width, width) and starts (experts + 1,).
    """
    skew = 1 / np.arange(1.0, experts + 1)
    rows_of = np.random.default_rng(18).multinomial(rows, skew / skew.sum())
    ends = np.cumsum(rows_of)
    starts = torch.tensor([0, *ends.tolist()], dtype=torch.int32)
    draw = torch.Generator().manual_seed(18)
    x = torch.rand(rows, width, generator=draw)
    w = torch.rand(experts, width, width, generator=draw)
    return x, w, starts


@checked
def ways(
    x: torch.Tensor, w: torch.Tensor, starts: torch.Tensor
) -> dict[str, Callable[[], object]]:
    """What PyTorch has: a product for each expert, one of all experts padded to the
    rows of the largest, and grouped_mm where the machine has it.

    On a GPU grouped_mm takes bfloat16 and compute capability 8.0
    (docs.pytorch.org, torch.nn.functional.grouped_mm).
    """
    bounds = list(pairwise(starts.tolist()))
    longest = max(end - first for first, end in bounds)
    padded = x.new_zeros(len(w), longest, x.shape[1])
    for rows, (first, end) in zip(padded, bounds, strict=True):
        rows[: end - first] = x[first:end]
    named: dict[str, Callable[[], object]] = {
        "a product for each": lambda: [
            x[first:end] @ matrix
            for (first, end), matrix in zip(bounds, w, strict=True)
        ],
        "all padded to the largest": lambda: padded @ w,
    }
    grouped = getattr(torch.nn.functional, "grouped_mm", None)
    if grouped and (x.device.type == "cpu" or compiled.launches()):
        ends = starts[1:].to(x.device)
        columns_first = w.mT.contiguous().mT  # the layout that GPUs' kernels take
        named["grouped_mm"] = lambda: grouped(x, columns_first, offs=ends)
    return named


@checked
def calculated(kernel: Any, device: Device, programs: int) -> Table:
    """The time on a GPU for 1,024 rows, 256 wide, of 16 experts: of a launch for each,
    and of one launch of so many persistent programs.
    """
    x, w, starts = task(1024, 16, 256)
    each_s = [
        _traced(kernel, x[first:end], w[expert : expert + 1], programs)
        .estimate(device)
        .seconds
        for expert, (first, end) in enumerate(pairwise(starts.tolist()))
    ]
    together = _traced(kernel, x, w, programs, starts).estimate(device)
    rows = (
        ("a launch for each expert", str(len(w)), format_quantity(sum(each_s), "s")),
        ("one launch for all", "1", format_quantity(together.seconds, "s")),
    )
    title = f"1,024 rows of 16 experts, 256 wide, float16, on {device.name}, calculated"
    return Table(rows, ("how", "launches", "time"), title)


def _traced(
    kernel: Any,
    x: torch.Tensor,
    w: torch.Tensor,
    programs: int,
    starts: torch.Tensor | None = None,
) -> tiles.TileTrace:
    """The trace of a launch, without `starts` for a single expert."""
    if starts is None:
        starts = torch.tensor([0, len(x)], dtype=torch.int32)
    across = -(-w.shape[2] // TILE)
    tiles_of = [-(-(end - first) // TILE) for first, end in pairwise(starts.tolist())]
    args = x.half(), w.half(), torch.zeros(len(x), w.shape[2]), starts, *w.shape[1:]
    shape = {"EXPERTS": len(w), "TILE": TILE}
    grid = min(programs, max(across * sum(tiles_of), 1))
    return tiles.trace(kernel, grid, *args, **shape)
