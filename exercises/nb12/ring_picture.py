"""An all-reduce that goes round a ring, step by step: which rank has added up what of
each part, and what it has sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

import labkit as lab
from labkit import plot
from labkit.core.parameters import Number, Positive, checked
from labkit.core.units import format_quantity
from labkit.plot.picture import Picture
from labkit.plot.style import CYCLE, EDGES

MOST_RANKS = 8
_SENT = CYCLE[1]
_COMPLETE = CYCLE[2]
_PARTIAL = CYCLE[5]
_WIDE = 0.62  # of a part's box; the rest of a column is for the arrows
_HIGH = 0.8


@dataclass(frozen=True)
class Moment:
    """After `step` steps: `added[rank][part]` are the ranks whose numbers are in what a
    rank has of a part; `sent[rank]` is the part that it sent last, -1 before the first.
    """

    step: int
    added: tuple[tuple[frozenset[int], ...], ...]
    sent: tuple[int, ...]


@checked
def moments(ranks: Annotated[int, Number(least=2, most=MOST_RANKS)]) -> list[Moment]:
    """The ring's moments: the beginning, n - 1 steps in which parts are added up, and
    n - 1 in which complete parts go round.
    """
    added = [[frozenset({rank})] * ranks for rank in range(ranks)]
    every = [Moment(0, _frozen(added), (-1,) * ranks)]
    for step in range(2 * (ranks - 1)):
        sent = [(rank - step) % ranks for rank in range(ranks)]
        messages = [added[rank][part] for rank, part in enumerate(sent)]
        for rank, part in enumerate(sent):
            right = (rank + 1) % ranks
            added[right][part] |= messages[rank]
        every.append(Moment(step + 1, _frozen(added), tuple(sent)))
    return every


def _frozen(
    added: list[list[frozenset[int]]],
) -> tuple[tuple[frozenset[int], ...], ...]:
    return tuple(map(tuple, added))


@checked
def all_reduce_ring(
    ranks: Annotated[int, Number(least=2, most=MOST_RANKS)], megabytes: Positive
) -> lab.Moving:
    """A picture that plays: `ranks` ranks add up a tensor of so many megabytes, in a
    ring.
    """
    trip = ranks - 1
    text = (
        f"Each of {ranks} ranks begins with {ranks} parts of its own tensor. In every"
        " step each rank sends one part to its right neighbor. In the first"
        f" {trip} steps the neighbor adds it, and each rank gets one complete part. In"
        f" the last {trip} steps the complete parts go round (calculated)."
    )
    return lab.Moving(_frames(ranks, megabytes), text, frame_s=1.5)


def _frames(ranks: int, megabytes: float) -> Iterator[Picture]:
    for moment in moments(ranks):
        axes = plot.new_axes(1.4 + 0.42 * ranks)
        _draw(axes, moment)
        yield Picture(axes, _in_words(moment, megabytes))


def _draw(axes: Axes, moment: Moment) -> None:
    ranks = len(moment.added)
    for rank, parts in enumerate(moment.added):
        left = (rank - 1) % ranks
        for part, added in enumerate(parts):
            arrived = moment.sent[left] == part
            _draw_part(axes, rank, part, added, ranks, arrived=arrived)
        if moment.sent[rank] >= 0:
            _draw_arrow(axes, rank, moment.sent[rank], ranks)
    axes.set_xlim(-0.75, ranks - 0.25)
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_xticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_yticks(range(ranks), [f"part {part}" for part in range(ranks)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    trip = "The beginning"
    if moment.step:
        is_first = moment.step < ranks
        words = (
            "reduce-scatter, parts are added up",
            "all-gather, complete parts go round",
        )
        trip = words[0] if is_first else words[1]
        trip = f"Step {moment.step} of {2 * (ranks - 1)}: {trip}"
    axes.set_title(trip, loc="left", fontsize=11, pad=10)


def _draw_part(
    axes: Axes,
    rank: int,
    part: int,
    added: frozenset[int],
    ranks: int,
    *,
    arrived: bool,
) -> None:
    """One part of one rank: whose numbers are in it."""
    is_complete = len(added) == ranks
    color = _COMPLETE if is_complete else _PARTIAL
    look = dict(EDGES)
    if arrived:
        look = {"edgecolor": _SENT, "linewidth": 2.5}
    corner = (rank - _WIDE / 2, part - _HIGH / 2)
    strength = 0.85 if is_complete else 0.7 * (len(added) - 1) / ranks
    axes.add_patch(Rectangle(corner, _WIDE, _HIGH, facecolor="white", **look))
    axes.add_patch(
        Rectangle(corner, _WIDE, _HIGH, facecolor=color, alpha=strength, linewidth=0)
    )
    words = "+".join(map(str, sorted(added)))
    if ranks > 4 and len(added) > 1:
        words = "all" if is_complete else f"{len(added)} of {ranks}"
    weight = "bold" if is_complete else "normal"
    axes.text(
        rank, part, words, ha="center", va="center", fontsize=8, fontweight=weight
    )


def _draw_arrow(axes: Axes, rank: int, part: int, ranks: int) -> None:
    """A message to the right neighbor; the last rank's leaves on the right and arrives
    on the left.
    """
    edge = _WIDE / 2
    pieces = [(rank + edge, rank + 1 - edge)]
    if rank == ranks - 1:
        pieces = [(rank + edge, rank + 0.7), (-0.7, -edge)]
    for start, end in pieces:
        arrow = FancyArrowPatch(
            (start, part),
            (end, part),
            arrowstyle="-|>",
            mutation_scale=10,
            linewidth=2,
            color=_SENT,
            shrinkA=0,
            shrinkB=0,
        )
        axes.add_patch(arrow)


def _in_words(moment: Moment, megabytes: float) -> str:
    ranks = len(moment.added)
    part = format_quantity(megabytes / ranks, "MB")
    if not moment.step:
        return (
            f"Each rank has its own {format_quantity(megabytes, 'MB')}, cut into"
            f" {ranks} parts of {part}. Nothing is sent yet."
        )
    sent = format_quantity(moment.step * megabytes / ranks, "MB")
    complete = sum(len(added) == ranks for added in moment.added[0])
    has = f"Each rank has {complete} complete part{'s' * (complete != 1)} of {ranks}"
    return f"{has}, and has sent {sent} in {moment.step} of {2 * (ranks - 1)} messages."
