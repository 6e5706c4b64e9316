"""How good the reader's guesses are: what was guessed before measuring, beside what was
measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import checked
from labkit.core.results import Measurement
from labkit.core.units import significant
from labkit.lesson import guesses

_FEW = 5  # guesses, below which nothing is said of where they err


@dataclass(frozen=True, repr=False)
class Calibration(ShownAsTable):
    """Guesses that were made before measuring: by what was guessed, each (guess,
    measured), both in one unit.
    """

    pairs: Mapping[str, tuple[tuple[float, float], ...]]
    whose: str = "Your"

    def table(self) -> Table:
        """A row for each kind of guess and one for all."""
        everything = tuple(pair for pairs in self.pairs.values() for pair in pairs)
        groups = {**self.pairs, "all": everything}
        rows = tuple(_row(name, pairs) for name, pairs in groups.items() if pairs)
        note = (
            "A ratio of 2 says that twice as much was measured as guessed; the middle"
            " is the median of all ratios."
        )
        none = (
            "No guess has a measurement yet. The cells with lab.predict wait for yours."
        )
        head = (
            "guesses of",
            "number",
            "within a factor of 2",
            "measured / guess, middle",
            "guesses are",
        )
        title = f"{self.whose} guesses, made before measuring"
        if not rows:
            return Table((), (), title, (none,))
        return Table(rows, head, title, (note,))


def _row(name: str, pairs: tuple[tuple[float, float], ...]) -> tuple[str, ...]:
    close = sum(guess / 2 <= measured <= 2 * guess for guess, measured in pairs)
    middle = statistics.median(measured / guess for guess, measured in pairs)
    if len(pairs) < _FEW:
        lean = "too few to tell"
    elif middle > 1.1:
        lean = "too low"
    elif middle < 1 / 1.1:
        lean = "too high"
    else:
        lean = "neither too low nor too high"
    return (
        name,
        str(len(pairs)),
        f"{close} ({close / len(pairs):.0%})",
        f"{significant(middle, 2)}x",
        lean,
    )


def calibration() -> Calibration:
    """Compare all guesses of this reader with what this machine measured, simulated or
    calculated afterwards.

    Left out are guesses made after a measurement, measurements on a busy machine, and
    what isn't above 0: no ratio.
    """
    return calibrated(guesses.before_measuring())


@checked
def calibrated(
    pairs: Iterable[tuple[float, Measurement]], whose: str = "Your"
) -> Calibration:
    """Sort guesses, each with what was measured afterwards, by what was guessed."""
    by_kind: dict[str, list[tuple[float, float]]] = {}
    for guess, m in pairs:
        by_kind.setdefault(guesses.kind(m.unit), []).append((guess, m.value))
    return Calibration(
        {kind: tuple(of_kind) for kind, of_kind in by_kind.items()}, whose
    )
