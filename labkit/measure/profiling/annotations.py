"""Name the parts of a step, and hand it its batches: what profile_step and find_bottleneck share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from labkit.core.arguments import lookup
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument

# What a step's time is divided into. Gaps: the GPU is idle while the CPU works. Other: no operator runs.
PARTS = ("input", "copies", "forward", "backward", "optimizer", "gaps", "communication", "other")
NAMED = ("input", "copies", "forward", "backward", "optimizer", "communication")
PREFIX = "labkit: "

Batch = Any


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Name what runs inside the block, for torch's profiler and, with a GPU, as an NVTX range for nsys and ncu.

    Names are input, copies, forward, backward, optimizer and communication. torch names DataLoaders, backward,
    optimisers and collectives by itself; what stays without a name and runs an operator counts as forward.
    Raises BadArgument for another name. Source: NVTX, nvidia.github.io/NVTX.
    """
    import torch

    lookup(name, dict.fromkeys(NAMED), "the part")
    nvtx = torch.cuda.nvtx.range(name) if torch.cuda.is_available() else contextlib.nullcontext()
    with torch.profiler.record_function(PREFIX + name), nvtx:
        yield


def supply(batches: object) -> Callable[[], Batch]:
    """A function that gives the next batch: of a function, an iterable (from its start again at its end) or one batch.

    A tensor, a dict, and a tuple or list of tensors is one batch, given again and again. Raises BadArgument for
    anything else, and for an iterable without a batch.
    """
    if is_batch(batches):
        return lambda: batches
    if callable(batches):
        return batches
    if not isinstance(batches, Iterable):
        raise BadArgument(
            f"Expected batches as an iterable (a DataLoader), a function or one batch, got {brief_repr(batches)}."
        )
    endless = _again(batches)
    return lambda: next(endless)


def is_batch(found: object) -> bool:
    """Whether this is one batch: a tensor, a dict, or a tuple or list of tensors."""
    import torch

    if isinstance(found, torch.Tensor | dict):
        return True
    return isinstance(found, tuple | list) and bool(found) and all(isinstance(x, torch.Tensor) for x in found)


def same_work(operators: Sequence[int]) -> bool:
    """Whether steps that ran so many operators each did the same work, but for a few that happen now and then."""
    return max(operators) - min(operators) <= max(2, 0.05 * max(operators))


def _again(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise BadArgument("Expected batches that can be gone through more than once, got none. Pass a list.")
