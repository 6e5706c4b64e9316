"""Supply the batches of a loop, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from steptime.arguments import expected

Batch = Any


class Supply:
    """Returns the next batch when called; `epoch` is how often the batches have begun
    anew.

    `batches` is a function that returns the next one, an iterable (started again at its
    end), or one batch, returned every time: a tensor, a dict, or a tuple or list of
    tensors.
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
            words = "an iterable (a DataLoader), a function or one batch"
            raise TypeError(expected("batches", words, batches))

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
                raise ValueError(
                    "Expected batches that can be iterated more than once, got none."
                    " Pass a list."
                )
            if empty:
                raise ValueError("Expected at least one batch, got none.")
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
