"""A training that a framework begins and ends, watched in between."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from steptime.errors import TooLittleSeen
from steptime.judge.bottleneck import watching


class WatchedTraining:
    """Watches from `begin` to `end`, with the options of steptime.watch."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._watching = contextlib.ExitStack()

    def begin(self) -> None:
        """Begin to watch; a training before, which failed, is watched no longer."""
        self.leave()
        self._watching.enter_context(watching(**self._options))

    def end(self) -> None:
        """Say what limits the training, unless that has been said."""
        try:
            self._watching.close()
        except TooLittleSeen as error:  # a short training is no error
            sys.stderr.write(f"steptime: {error}\n")

    def leave(self) -> None:
        """Watch no longer, and say nothing."""
        leaving = contextlib.suppress(GeneratorExit)
        with leaving:
            self._watching.__exit__(GeneratorExit, GeneratorExit(), None)
