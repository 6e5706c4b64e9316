"""Choose which programs of a grid run, and how many of the grid each stands for."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kerneltrace._arguments import whole
from kerneltrace.machine.chosen_blocks import ChosenBlocks, sample
from kerneltrace.machine.grid import Dim3
from kerneltrace.machine.traced_memory import Array

BUDGET = 3 * 2**28
"""Elements of all tiles that programs make, from which on not all of them run."""
LEAST = 32
"""Programs that run whatever they make."""
SPREAD = 16, 64
"""Least and most programs spread over a grid that is too large to run."""
MOST_TOGETHER = 1024
"""Programs that run from the first on, for what they share in L2."""


class Chosen(NamedTuple):
    """The programs that run."""

    numbers: Array
    """Ascending, shape (programs,)."""
    weights: Array
    """How many programs of the grid each stands for, 0 for those that run only for
    what they share in L2; shape (programs,).
    """
    together: int
    """Programs from the first on, without a gap."""


def first(grid: Dim3, n: int) -> Chosen:
    """The first `n` programs, each of which stands for as many."""
    programs = math.prod(grid)
    n = min(n, programs)
    return Chosen(np.arange(n), np.full(n, programs / n), n)


def asked_for(programs: Any, grid: Dim3) -> Chosen | None:
    """What `programs` of trace asks for; None where it leaves the choice.

    TypeError or ValueError for what is neither "all", a number nor places of the grid.
    """
    if programs is None:
        return None
    total = math.prod(grid)
    if isinstance(programs, str) and programs == "all":
        return first(grid, total)
    if not isinstance(programs, list):
        return first(grid, whole("programs", programs, least=1, advice=_ADVICE))
    numbers = sorted({number_of(place, grid) for place in programs})
    if not numbers:
        raise ValueError(f"Expected programs to name one at least. {_ADVICE}")
    return _weighed(numbers, [], grid)


_ADVICE = 'It is "all", a number, or a list of places such as [(0, 0), (3, 1)].'


def number_of(place: Any, grid: Dim3) -> int:
    """The number of a program, given by it or by its place."""
    parts = (place,)
    limits = Dim3(math.prod(grid), 1, 1)
    if isinstance(place, tuple) and 1 <= len(place) <= 3:
        parts = place
        limits = grid
    x, y, z = (
        whole("a program's place", part, least=0, most=limit - 1)
        for part, limit in zip((*parts, 0, 0), limits, strict=False)
    )
    return x + grid.x * (y + grid.y * z)


def affordable(grid: Dim3, elements: int, ran: int = 1) -> Chosen:
    """All programs, or a sample where they would make too many elements, if all make as
    many as the first that `ran`, which made `elements` together.
    """
    programs = math.prod(grid)
    most = max(BUDGET * ran // max(elements, 1), LEAST)
    if programs <= most:
        return first(grid, programs)
    spread = sample(grid, min(max(most // 4, SPREAD[0]), SPREAD[1]))
    together = max(min(most - len(spread), MOST_TOGETHER), ran)
    if not spread:
        return first(grid, together)
    return _weighed(spread, list(range(together)), grid)


def _weighed(spread: list[int], together: list[int], grid: Dim3) -> Chosen:
    """Programs of which those that are `spread` stand for the grid."""
    blocks = ChosenBlocks(grid, spread)
    numbers = np.union1d(spread, together).astype("i8")
    weights = np.zeros(len(numbers))
    weights[np.searchsorted(numbers, blocks.numbers)] = blocks.weights
    gaps = np.flatnonzero(numbers != np.arange(len(numbers)))
    return Chosen(numbers, weights, int(gaps[0]) if gaps.size else len(numbers))
