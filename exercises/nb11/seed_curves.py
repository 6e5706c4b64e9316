"""Several trainings side by side while they run: a line for the median seed, a band for
all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes

from exercises.nb11 import figures
from exercises.nb11.several_seeds import Runs, interleaved
from labkit.core.errors import BadMeasurement
from labkit.core.parameters import Share, checked
from labkit.lesson.live import Live
from labkit.train.training import Run, Setup


class SeedCurves(Live):
    """Validation accuracy that grows while seeds train: `curves.train({"batch 32":
    (setup, 32)}, 5, epochs=10)`.

    A line marks `accuracy` (0 to 1).
    """

    height_in = 3.6

    @checked(error=BadMeasurement)
    def __init__(self, title: str, *, accuracy: Share | None = None) -> None:
        self.title = title
        self.accuracy = accuracy
        self.runs: dict[str, dict[int, Run]] = {}
        self._draw_s = 0.0
        super().__init__()

    def redraw(self) -> None:
        """Draw a frame now."""
        start_s = time.monotonic()
        super().redraw()
        self._draw_s = time.monotonic() - start_s

    def tick(self) -> None:
        """Draw a frame if it won't take more than a tenth of the time: trainings may be
        as short as frames.
        """
        if time.monotonic() - self._last_s >= 10 * self._draw_s:
            super().tick()

    def draw(self, axes: Axes) -> str:
        """Draw every training there is."""
        named = {name: tuple(by_seed.values()) for name, by_seed in self.runs.items()}
        return figures.seed_bands.on(
            axes, named, accuracy=self.accuracy, title=self.title
        )

    @checked
    def train(
        self,
        named: Mapping[str, tuple[Setup, int]],
        seeds: int | Iterable[int] = 5,
        **how: Any,
    ) -> dict[str, Runs]:
        """`interleaved` whose curves grow as it runs. What was trained before Ctrl-C
        stays drawn.
        """
        self.runs |= {name: {} for name in named}
        self.show()
        try:
            return interleaved(named, seeds, on_epoch=self._grow, **how)
        finally:  # also after Ctrl-C
            self.finish()

    def _grow(self, name: str, run: Run) -> None:
        self.runs[name][run.seed] = run
        self.tick()
