"""Name the parts of a step and supply its batches, for profile_step and
find_bottleneck.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from steptime.arguments import choice, expected
from steptime.errors import BadArgument
from steptime.parts import NAMED, PREFIX

Batch = Any


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Name the work inside the block for torch's profiler and, on a GPU, as an NVTX
    range for nsys and ncu.

    `name` is input, copies, forward, backward, optimizer or communication. torch names
    DataLoaders, backward passes, optimizers and collectives by itself; operators
    without a name count as forward. Raises BadArgument for another name. Source: NVTX,
    nvidia.github.io/NVTX.
    """
    name = choice("name", name, NAMED)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.profiler.record_function(PREFIX + name))
        if torch.cuda.is_available():
            stack.enter_context(torch.cuda.nvtx.range(name))
        yield


class Supply:
    """Returns the next batch when called; `epoch` is how often the batches have begun
    anew.

    `batches` is a function that returns the next one, an iterable (started again at its
    end), or one batch, returned every time: a tensor, a dict, or a tuple or list of
    tensors. Raises BadArgument for anything else, and for an empty iterable.
    """

    def __init__(self, batches: object) -> None:
        self.epoch = 0
        if is_batch(batches):
            self._next: Callable[[], Batch] = lambda: batches
        elif callable(batches):
            self._next = batches
        elif isinstance(batches, Iterable):
            self._next = functools.partial(next, self._again(batches))
        else:
            raise expected(
                "batches",
                "an iterable (a DataLoader), a function or one batch",
                batches,
            )

    def __call__(self) -> Batch:
        """The next batch."""
        return self._next()

    def _again(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        while True:
            empty = True
            for batch in batches:
                empty = False
                yield batch
            if empty and self.epoch:
                raise BadArgument(
                    "Expected batches that can be iterated more than once, got none."
                    " Pass a list."
                )
            if empty:
                raise BadArgument("Expected at least one batch, got none.")
            self.epoch += 1


def is_batch(value: object) -> bool:
    """Whether this is one batch: a tensor, a dict, or a tuple or list of tensors."""
    if isinstance(value, torch.Tensor | dict):
        return True
    return (
        isinstance(value, tuple | list)
        and bool(value)
        and all(isinstance(x, torch.Tensor) for x in value)
    )
