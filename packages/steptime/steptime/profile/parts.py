"""The parts of a step's time, and how your code names them in a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from steptime.arguments import choice

# Gaps: the GPU is idle while the CPU works. Other: no operator runs.
PARTS = (
    "input",
    "copies",
    "forward",
    "backward",
    "optimizer",
    "gaps",
    "communication",
    "other",
)
NAMED = ("input", "copies", "forward", "backward", "optimizer", "communication")
PREFIX = "steptime: "  # of the names that this package gives to ranges of a trace


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Name the work inside the block for torch's profiler and, on a GPU, as an NVTX
    range for nsys and ncu.

    `name` is input, copies, forward, backward, optimizer or communication. torch names
    DataLoaders, backward passes, optimizers and collectives by itself; operators
    without a name count as forward. Source: NVTX, nvidia.github.io/NVTX.
    """
    choice("name", name, NAMED)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.profiler.record_function(PREFIX + name))
        if torch.cuda.is_available():
            stack.enter_context(torch.cuda.nvtx.range(name))
        yield
