"""A puzzle's picture with the verdict beside it, where an answer stands beside par and
the reader's bests, and all bests as one board.
"""

from __future__ import annotations

from typing import Any

from exercises.nb23 import figures
from exercises.nb23.par import par
from exercises.nb23.puzzles import PUZZLES
from labkit.core.display import Note, Shown
from labkit.core.units import format_seconds
from labkit.lesson import bests
from labkit.lesson.outcomes import Outcome
from labkit.plot import Picture

_BESIDE = "display:flex;flex-wrap:wrap;gap:0 1em;line-height:1.4"


class Scored(Shown):
    """The picture of a puzzle, and beside it what it shows and the verdict; of a right
    answer also where it stands and its time on a GPU.
    """

    def __init__(self, outcome: Outcome, standing: str = "") -> None:
        self.outcome = outcome
        self.standing = standing

    def __str__(self) -> str:
        return f"{self.outcome}\n{self.standing}".rstrip()

    def data(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of one output: the words stand beside the picture, and on a
        narrow page below it.
        """
        picture = figures.puzzle(self.outcome.number)
        data, metadata = picture.image()
        about = Note(picture.sentence)._repr_html_()
        standing = Note(self.standing)._repr_html_() if self.standing else ""
        verdict = self.outcome._repr_html_(standing)
        words = f"{about}<div style='margin-top:0.4em'>{verdict}</div>"
        html = (
            f"<div style='{_BESIDE}'><div>{data['text/html']}</div>"
            f"<div style='flex:1 1 20em'>{words}</div></div>"
        )
        text = f"{picture.sentence}\n{self}"
        return data | {"text/html": html, "text/plain": text}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self.data()
        display(data, raw=True, metadata=metadata)


def score(outcome: Outcome, gpu: str) -> Scored:
    """Show a puzzle's picture and the verdict; of a right answer also what it costs
    beside par, and the time that is calculated for it on a GPU. A new best is kept.
    """
    if not outcome:
        return Scored(outcome)
    number = outcome.number
    puzzle = PUZZLES[number]
    costs: Any = outcome.details["costs"]
    kept = bests.keep(number, costs, par(number), size=puzzle.size)
    size, grid, longer = puzzle.large
    trace: Any = outcome.details["trace"]
    try:
        seconds = trace.estimate(gpu, grid=grid, longer=longer).seconds
    except ValueError as error:  # a GPU that nobody knows
        return Scored(outcome, f"{kept.sentence} {error}")
    time = f"Calculated for {size} on {gpu}: {format_seconds(seconds)}."
    return Scored(outcome, f"{kept.sentence} {time}")


def board() -> Picture:
    """All puzzles, each with the reader's bests so far."""
    pars = {number: par(number) for number in PUZZLES}
    sizes = {number: puzzle.size for number, puzzle in PUZZLES.items()}
    return bests.board(_TITLES, pars, sizes)


_TITLES = {
    "23.1": "map",
    "23.2": "zip",
    "23.3": "guard",
    "23.4": "map of a matrix",
    "23.5": "broadcast",
    "23.6": "grid-stride loop",
    "23.7": "saxpy of matrices",
    "23.8": "stencil",
    "23.9": "pooling",
    "23.10": "transpose",
    "23.11": "dot product",
    "23.12": "running sums",
    "23.13": "histogram",
    "23.14": "matmul",
    "23.15": "map, tiles",
    "23.16": "row sum, tiles",
    "23.17": "softmax, tiles",
    "23.18": "matmul, tiles",
    "23.19": "layer norm, tiles",
    "23.20": "attention, tiles",
}
