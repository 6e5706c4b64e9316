"""Choose which blocks of a grid run, and how many blocks each of them stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from kerneltrace._arguments import whole
from kerneltrace._text import brief_repr
from kerneltrace.machine.grid import Dim3, place
from kerneltrace.machine.traced_memory import Array

MOST_SAMPLED = 64
"""Blocks of a sample that nobody asked for."""


class ChosenBlocks:
    """The blocks of a launch that run: all of them, those that the caller names, or a
    sample that is chosen when the first block has run and its events are known.
    """

    def __init__(
        self,
        grid: Dim3,
        numbers: Sequence[int] | None = None,
        *,
        asked: bool = False,
        budget: int = 0,
        extra: Sequence[int] = (),
        at_once: int | None = None,
    ) -> None:
        """`numbers` are the blocks that run; None for a sample with `extra` blocks in
        it, unless the events of all blocks fit `budget`. `asked` says whether the
        caller of the trace chose them.

        No more than `at_once` blocks run together.
        """
        self.grid = grid
        self.of_grid = math.prod(grid)
        self.asked = asked
        self._budget = budget
        self.extra = extra
        self._at_once = at_once
        self.numbers = np.zeros(0, "i8")  # (blocks,), ascending
        self.weights = np.zeros(0, "i8")  # (blocks,)
        self.is_decided = numbers is not None
        if numbers is not None:
            self._choose(numbers)

    @property
    def all_run(self) -> bool:
        """Whether every block of the grid is among them."""
        return len(self.numbers) == self.of_grid

    def _choose(self, numbers: Sequence[int] | Array) -> None:
        self.is_decided = True
        self.numbers = np.unique(np.asarray(numbers, "i8"))
        if self.all_run:
            self.weights = np.ones(self.of_grid, "i8")
        else:
            self.weights = _weights(self.numbers, self.grid)

    def batches(
        self,
        log: Any,
        counters: list[Array],
        at_once: int = 1,
        order: Callable[[Any], Any] | None = None,
    ) -> Iterator[Array]:
        """Numbers of blocks to run together, at most `at_once`.

        What a batch adds to the tallies of `log` and to `counters` is multiplied by its
        blocks' weight before the next one. Raises TraceTooLarge after the first blocks
        where all of them would outgrow the log.
        """
        at_once = min(at_once, self._at_once or at_once)
        if not self.is_decided and self.of_grid <= at_once:
            self._choose(range(self.of_grid))
        first = self.numbers[:1] if self.is_decided else np.zeros(1, "i8")
        if self.of_grid <= at_once or order:
            first = first[:0]
        ran = 0
        for number, batch in enumerate(self._batches(first, at_once, order)):
            before = _tallies(log, counters)
            yield batch
            if not self.is_decided:
                self._judge_first(log)
            _scale(log, counters, before, int(self.weights_of(batch[:1])[0]))
            ran += len(batch)
            if number == 1 and len(first):
                log.expect(ran, len(self.numbers))

    def _batches(
        self, first: Array, at_once: int, order: Callable[[Any], Any] | None
    ) -> Iterator[Array]:
        """Blocks that run together: after the first ones, which choose the others,
        blocks of one weight, at most so many; single blocks in the order of their
        numbers.
        """
        if len(first):
            yield first
        numbers = np.setdiff1d(self.numbers, first)
        groups = self.weights_of(numbers) if at_once > 1 else np.ones(len(numbers))
        batches = [
            alike[begin : begin + at_once]
            for alike in (numbers[groups == group] for group in np.unique(groups))
            for begin in range(0, len(alike), at_once)
        ]
        yield from order(batches) if order else batches

    def _judge_first(self, log: Any) -> None:
        """Choose the blocks, when the first has run alone."""
        of_first = max(log.n_events, 1)
        if of_first * self.of_grid <= self._budget:
            self._choose(range(self.of_grid))
            return
        wanted = min(self._budget // of_first, MOST_SAMPLED)
        numbers = sample(self.grid, wanted) or few_blocks(self.grid)
        most = max(log.max_events // of_first, 1)
        self._choose([*numbers[:most], *self.extra])

    def weights_of(self, block: Array) -> Array:
        """How many blocks of the grid each of these stands for."""
        if self.all_run:
            return np.ones(len(block), "i8")
        weights: Array = self.weights[np.searchsorted(self.numbers, block)]
        return weights

    def rows(self) -> tuple[Array, ...]:
        """For each axis of the grid the longest row of neighbors along it that ran."""
        return tuple(self._row(axis) for axis in range(3))

    def _row(self, axis: int) -> Array:
        stride = math.prod(self.grid[:axis])
        along = self.numbers // stride % self.grid[axis]
        # blocks of one line have the same number without their place along the axis
        line = self.numbers - along * stride
        order = np.lexsort((along, line))
        breaks = np.diff(line[order]) != 0
        breaks |= np.diff(along[order]) != 1
        bounds = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(order)]])
        longest = int(np.argmax(np.diff(bounds)))
        row: Array = self.numbers[order[bounds[longest] : bounds[longest + 1]]]
        return row

    def shares(self, group: Array, block: Array) -> Array:
        """How many times as many blocks of the grid do what blocks of each group do,
        given pairs of a group and a block; groups count from 0.

        Along an axis where blocks of a group are no neighbors, all blocks are taken to
        belong to it; elsewhere only those that ran.
        """
        shares = np.ones(int(group.max(initial=-1)) + 1)
        if self.all_run:
            return shares
        chosen = place(self.numbers, self.grid)
        for along, extent, ran in zip(
            place(block, self.grid), self.grid, chosen, strict=True
        ):
            least = np.full(len(shares), extent)
            most = np.zeros(len(shares), "i8")
            np.minimum.at(least, group, along)
            np.maximum.at(most, group, along)
            shares[most - least > 1] *= extent / len(np.unique(ran))
        return shares


def chosen_blocks(grid: Dim3, value: Any, budget: int) -> ChosenBlocks:
    """The blocks that a caller asks for: None, "all", how many, or a list of places.

    TypeError or ValueError for anything else.
    """
    if value is None:
        return ChosenBlocks(grid, budget=budget)
    if isinstance(value, str) and value == "all":
        return ChosenBlocks(grid, range(math.prod(grid)), asked=True)
    if isinstance(value, Integral):
        wanted = whole("blocks", value, least=1)
        chosen = sample(grid, wanted) or few_blocks(grid)[:wanted]
        return ChosenBlocks(grid, chosen, asked=True)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise TypeError(
            'Expected blocks to be "all", a number of blocks, or a list of their'
            f" places, got {brief_repr(value)}."
        )
    return ChosenBlocks(grid, [_number(part, grid) for part in value], asked=True)


def _number(value: Any, grid: Dim3) -> int:
    """The number of the block at a place, which may lack its last parts."""
    parts = tuple(value) if isinstance(value, Sequence) else (value,)
    if not all(isinstance(part, Integral) for part in parts) or len(parts) > 3:
        raise TypeError(
            "Expected a place in blocks to be a whole number or a tuple of up to three,"
            f" got {brief_repr(value)}."
        )
    x, y, z = (*map(int, parts), 0, 0, 0)[:3]
    if not (0 <= x < grid.x and 0 <= y < grid.y and 0 <= z < grid.z):
        raise ValueError(
            f"There is no block {brief_repr(value)} in a grid of {tuple(grid)}."
        )
    return x + grid.x * (y + grid.y * z)


def sample(grid: Dim3, wanted: int) -> list[int]:
    """The numbers of about so many blocks, no more: along each axis the first, the last
    and pairs of neighbors between; none where no axis would have two.
    """
    sizes = [1, 1, 1]
    while True:
        open_axes = [axis for axis in range(3) if sizes[axis] < grid[axis]]
        larger = [
            axis
            for axis in open_axes
            if math.prod(sizes) // sizes[axis] * (sizes[axis] + 1) <= wanted
        ]
        if not larger:
            break
        sizes[min(larger, key=lambda axis: sizes[axis])] += 1
    if any(size == 1 < extent for size, extent in zip(sizes, grid, strict=True)):
        return []
    x, y, z = (_spread(extent, size) for extent, size in zip(grid, sizes, strict=True))
    return [i + grid.x * (j + grid.y * k) for k in z for j in y for i in x]


def _spread(extent: int, size: int) -> list[int]:
    """Places along an axis: the first, the last, and pairs of neighbors between, in
    equal distances.
    """
    if size >= extent:
        return list(range(extent))
    if size < 3:
        return list(range(size))
    places = {0, extent - 1}
    pairs = (size - 2) // 2
    for i in range(pairs):
        low = 1 + int((i + 0.5) / pairs * (extent - 2) - 0.5)
        places |= {low, low + 1}
    # an odd size, or pairs that met
    others = (at for at in range(1, extent) if at not in places)
    places |= {next(others) for _ in range(size - len(places))}
    return sorted(places)


def few_blocks(grid: Dim3) -> list[int]:
    """The first block and its neighbor along each axis."""
    strides = (1, grid.x, grid.x * grid.y)
    has_neighbor = (extent > 1 for extent in grid)
    return [0, *(s for s, has in zip(strides, has_neighbor, strict=True) if has)]


def _weights(numbers: Array, grid: Dim3) -> Array:
    """How many blocks each of some blocks stands for, which add up to the grid.

    Strata are the corners, edges, faces and the inside of the grid. Blocks of a stratum
    share its blocks evenly; one of which no block ran goes to the nearest.
    """
    extents = np.array(grid)
    at = np.stack(place(numbers, grid), axis=1)  # (blocks, axes)
    # along each axis 0 for the first, 2 for the last, 1 between
    sides = np.select([at == 0, at == extents - 1], [0, 2], 1)
    stratum = sides @ [1, 3, 9]
    strata = np.stack(place(np.arange(27), Dim3(3, 3, 3)), axis=1)  # (strata, axes)
    is_there = (strata == 0) | (extents > 1)
    lengths = np.where(strata == 1, np.maximum(extents - 2, 0), is_there)
    ran = np.unique(stratum)
    distance = (strata[:, None] != strata[ran]).sum(axis=2)  # (strata, ran)
    # of the nearest the one inside, which has number 13
    nearest = ran[np.argmin(2 * distance + (ran != 13), axis=1)]
    of_stratum = np.zeros(27, "i8")
    np.add.at(of_stratum, nearest, lengths.prod(axis=1))
    weights = np.zeros(len(numbers), "i8")
    for number in ran:
        members = np.flatnonzero(stratum == number)
        cuts = np.arange(len(members) + 1) * of_stratum[number] // len(members)
        weights[members] = np.diff(cuts)
    return weights


def _tallies(log: Any, counters: list[Array]) -> tuple[int, int, list[Array]]:
    return log.shuffles, log.barriers, [counter.copy() for counter in counters]


def _scale(log: Any, counters: list[Array], before: Any, weight: int) -> None:
    """Multiply what came to the tallies since `before`."""
    if weight == 1:
        return
    shuffles, barriers, counted = before
    log.shuffles += (weight - 1) * (log.shuffles - shuffles)
    log.barriers += (weight - 1) * (log.barriers - barriers)
    # counters are made when a function is first called
    for i, counter in enumerate(counters):
        old = counted[i] if i < len(counted) else 0
        counter += (weight - 1) * (counter - old)
