"""What notebook 16 shows of its ladder: how much of each gain is the machine's and how
much the learning's, published ladders beside it, and the sign test on its races.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.display import Table
from labkit.core.results import Measurement
from labkit.measure import published
from labkit.measure.bench import Comparison, Ratio
from labkit.plot import ratios
from labkit.plot.picture import Picture

Training = tuple[float, int]  # accuracy, images read
Switches = dict[str, object]
# {row: switches} -> the rows raced in turn, the rung below first
Race = Callable[[dict[str, Switches]], Comparison]


@dataclass
class Ladder:
    """The rungs that were kept, and the races of all techniques that were tried."""

    rungs: dict[str, Switches] = field(default_factory=lambda: {"article's script": {}})
    races: dict[str, Comparison] = field(default_factory=dict)
    # of each race: the trainings of the rung below, and with the technique
    trainings: dict[str, tuple[Sequence[Training], Sequence[Training]]] = field(
        default_factory=dict
    )

    @property
    def top(self) -> tuple[str, Switches]:
        """The last rung that was kept, and its switches."""
        return list(self.rungs.items())[-1]

    @property
    def gains(self) -> dict[str, Ratio]:
        """How many times as fast each technique was as the rung below it."""
        return {name: race.ratios[0] for name, race in self.races.items()}

    def accuracy(self, name: str) -> float:
        """The lowest accuracy that a technique's trainings ended with."""
        _, with_it = self.trainings[name]
        return min(accuracy for accuracy, _ in with_it)

    def climb(
        self,
        techniques: Mapping[str, Switches],
        race: Race,
        reached: Mapping[str, Sequence[Training]],
        target: float,
    ) -> None:
        """Try each technique on top of the last rung. One is kept if the whole interval
        of its gain lies above 1 and each seed reached the target.

        `reached` has the trainings of each row that was raced. Ctrl-C ends the climb,
        and what was raced stays.
        """
        try:
            for name, switches in techniques.items():
                below, on = self.top
                with_it = on | switches
                self.races[name] = race({below: on, name: with_it})
                self.trainings[name] = reached[below], reached[name]
                if self.gains[name].low > 1 and self.accuracy(name) >= target:
                    self.rungs[name] = with_it
        except KeyboardInterrupt:
            untried = [name for name in techniques if name not in self.races]
            print(f"Stopped. Not tried: {', '.join(untried)}.")


def apart(ladder: Ladder) -> Table:
    """Each gain in seconds as a gain in seconds an image, which is the machine's, times
    one in images read, which is the learning's: here by medians, and airbench's.
    """
    rows = []
    for name, gain in ladder.gains.items():
        below, with_it = (
            statistics.median(images for _, images in trainings)
            for trainings in ladder.trainings[name]
        )
        rows.append(_row(f"{name}, here", gain.value, below / with_it))
    airbench = [row for row in published.table("image_ladders") if row["epochs"]]
    for before, row in itertools.pairwise(airbench):
        in_seconds = float(before["seconds"]) / float(row["seconds"])
        in_epochs = float(before["epochs"]) / float(row["epochs"])
        rows.append(_row(f"{row['rung']}, published", in_seconds, in_epochs))
    note = "Published: airbench, on an A100, to 94 % on CIFAR-10."
    return Table(tuple(rows), ("technique", "the machine", "learning"), notes=(note,))


def _row(name: str, gain: float, of_learning: float) -> tuple[str, str, str]:
    return name, f"{gain / of_learning:.2f}x", f"{of_learning:.2f}x"


def beside(ladder: Ladder, others: Mapping[str, Measurement]) -> Picture:
    """Published gains, with this ladder's of the same rung before them."""
    names = dict.fromkeys(number.what for number in others.values())
    gains = ladder.gains
    own = {f"{name}, here": gains[name] for name in names if name in gains}
    return ratios(own | dict(others), title="Yours, and as published")


def by_test(
    ladder: Ladder,
    target: float,
    kept: Callable[[list[float], list[float]], object],
) -> Table:
    """Whether each technique stays: by the interval of its gain, and by a test on the
    seconds of its seeds without it and with it.
    """
    rows = []
    for name, race in ladder.races.items():
        below, with_it = (list(timing.samples_s) for timing in race.timings)
        if ladder.accuracy(name) < target:
            with_it = [math.inf] * len(with_it)
        rows.append((name, str(name in ladder.rungs), str(kept(below, with_it))))
    return Table(tuple(rows), ("technique", "it stayed", "by your test"))


def shares(
    names: Collection[str],
    seconds: Mapping[frozenset[str], float],
    average: Mapping[str, float],
) -> Table:
    """The gain of each technique alone, as the last one, and averaged over orders."""
    none = frozenset[str]()
    whole = frozenset(names)
    rows = [
        (
            name,
            f"{seconds[none] / seconds[frozenset({name})]:.2f}x",
            f"{seconds[whole - {name}] / seconds[whole]:.2f}x",
            f"{average[name]:.2f}x",
        )
        for name in names
    ]
    return Table(tuple(rows), ("technique", "alone", "as the last", "by your average"))


def evidence(gain: Ratio, accuracy: float, target: float) -> dict[str, Any]:
    """What `lab.verdict` takes of a race to an accuracy: its gain, where all seeds
    reached it.
    """
    return {
        "evidence": gain if accuracy >= target else False,
        "because": {"gain": gain, "lowest accuracy": f"{accuracy:.1%}"},
    }
