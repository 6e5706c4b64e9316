"""Supply the batches of a loop, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from steptime.arguments import expected

Batch = Any
_END = object()  # in place of a batch


class Supply:
    """Returns the next batch when called; `epoch` is how often the batches have begun
    anew.

    `batches` is a function that returns the next one, an iterable (started again at its
    end), or one batch, returned every time: a tensor, a dict, or a tuple or list of
    tensors.
    """

    def __init__(self, batches: object) -> None:
        self.epoch = 0
        self._epochs: Iterable[Batch] | None = None
        self._iterator: Iterator[Batch] | None = None  # of the epoch
        if is_batch(batches):
            self._next: Callable[[], Batch] = lambda: batches
        elif callable(batches):
            self._next = batches
        elif isinstance(batches, Iterable):
            self._epochs = batches
        else:
            words = "an iterable (a DataLoader), a function or one batch"
            raise TypeError(expected("batches", words, batches))

    def __call__(self) -> Batch:
        """The next batch."""
        if self._epochs is None:
            return self._next()
        batch: Batch = _END
        if self._iterator is not None:
            batch = next(self._iterator, _END)
            if batch is _END:
                self.epoch += 1
        return self._first_of(self._epochs) if batch is _END else batch

    def _first_of(self, batches: Iterable[Batch]) -> Batch:
        """The first batch of the next epoch."""
        self.close()
        self._iterator = iter(batches)
        batch = next(self._iterator, _END)
        if batch is not _END:
            return batch
        self.close()
        if self.epoch:
            raise ValueError(
                "Expected batches that can be iterated more than once, got none."
                " Pass a list."
            )
        raise ValueError("Expected at least one batch, got none.")

    def close(self) -> None:
        """Let go of the iterator: a loader's workers and threads end with it."""
        self._iterator = None


def is_batch(value: object) -> bool:
    """Whether this is one batch: a tensor, a dict, or a tuple or list of tensors."""
    if isinstance(value, torch.Tensor | dict):
        return True
    return (
        isinstance(value, tuple | list)
        and bool(value)
        and all(isinstance(x, torch.Tensor) for x in value)
    )
