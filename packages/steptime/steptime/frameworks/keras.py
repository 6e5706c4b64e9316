"""Keras 3 on torch: `model.fit(..., callbacks=[steptime.keras.Diagnose()])`."""

from __future__ import annotations

from typing import Any

from keras.callbacks import Callback

from steptime.frameworks._training import WatchedTraining


class Diagnose(Callback):  # type: ignore[misc]  # mypy knows no types of it
    """Says what limits the training after 208 steps, or at its end; `options` are those
    of steptime.watch.

    Keras has optimizers of its own: a step ends with the next batch.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._training = WatchedTraining(options)

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras calls this."""
        self._training.begin()

    def on_train_end(self, logs: Any = None) -> None:
        """Keras calls this."""
        self._training.end()
