"""Hugging Face's Trainer: `Trainer(..., callbacks=[steptime.hf.Diagnose()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from steptime.frameworks._training import WatchedTraining


class Diagnose(TrainerCallback):  # type: ignore[misc]  # mypy knows no types of it
    """Says what limits the training after 208 steps, or at its end; `options` are those
    of steptime.watch.
    """

    def __init__(self, **options: Any) -> None:
        self._training = WatchedTraining(options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The Trainer calls this."""
        self._training.begin()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The Trainer calls this."""
        self._training.end()
