"""Find the elements of outputs that no thread wrote, and judge whether they were meant
to be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator

import numpy as np

from kerneltrace.machine.address_space import Region
from kerneltrace.machine.events import Events
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.traced_memory import Array


def unwritten(
    run: Execution, numbers: Collection[int]
) -> Iterator[tuple[Region, Array, bool]]:
    """Each output with elements that nobody wrote, these as a mask of its shape, and
    whether that is a mistake; `numbers` are the launch's integer arguments.

    Nothing is said of a run in which some blocks of the grid had no part.
    """
    if not run.settings.blocks.all_run:
        return
    for region in run.memory.regions:
        written = _touched(run.pieces, region, is_write=True)
        if written is not None and not written.all():
            yield region, ~written, _is_mistake(run, region, ~written, numbers)


def _touched(accesses: Events, region: Region, *, is_write: bool) -> Array | None:
    """Which elements of an array of global memory threads write, or else read; None for
    one that they don't, or access in another way, too.
    """
    if region.space != "global":
        return None
    events, element = accesses.reaching(region)
    if not len(events) or (events.write != is_write).any() or events.atomic.any():
        return None
    touched = np.zeros(region.array.shape, bool)
    touched.flat[element] = True
    return touched


def _is_mistake(
    run: Execution, region: Region, left: Array, numbers: Collection[int]
) -> bool:
    """Whether threads of the launch should have reached those elements, so far as that
    is sure.

    They should where less than a block is missing: the number of blocks was rounded
    down. They should, too, where there are threads enough, and an input of the same
    shape is unread at the same elements. Otherwise the kernel may mean it: a stencil
    leaves its border, a buffer is longer than the `n` that the launch gives, and a few
    blocks of a larger problem were launched.
    """
    written = left.size - int(np.count_nonzero(left))
    if written in _meant(run, region, numbers):
        return False
    inputs = [
        (other.array, read)
        for other in run.memory.regions
        if (read := _touched(run.pieces, other, is_write=False)) is not None
    ]
    alike = [read for array, read in inputs if array.shape == left.shape]
    if alike:
        if any((left & read).any() for read in alike):
            return False
        threads = run.settings.blocks.of_grid * run.settings.block_size
        return threads >= left.size or _lacks_a_block(run, left, written)
    if inputs and all(read.all() for _, read in inputs):
        return False
    return _lacks_a_block(run, left, written)


def _meant(run: Execution, region: Region, numbers: Collection[int]) -> set[int]:
    """How many elements a kernel may be asked to write: a number of its arguments, or
    in a condition of its source, or a product of two sizes.
    """
    literals = {
        int(literal)
        for site in run.sites
        if site.kind == "branch"
        for literal in re.findall(r"\b\d+\b", site.text)
    }
    counts = {*numbers, *literals}
    sizes = [*numbers, *region.array.shape]
    products = {a * b for a, b in itertools.combinations(sizes, 2)}
    products.discard(region.array.size)
    return counts | products if region.array.ndim > 1 else counts


def _lacks_a_block(run: Execution, left: Array, written: int) -> bool:
    """Whether fewer elements are missing, at the end of each axis, than a block writes
    there: the number of blocks seems to be rounded down.
    """
    blocks = run.settings.blocks
    flat = np.flatnonzero(~left.ravel())
    missing = left.size - written
    if int(flat[-1]) == written - 1:  # none is missing before the end
        of_block = written / blocks.of_grid
        if missing < of_block or missing == of_block == 1:
            return True
    # x is the last axis, y the one before
    counts = [*blocks.grid[: left.ndim]][::-1]
    box = 1
    for axis, count in enumerate(counts, left.ndim - len(counts)):
        others = tuple(other for other in range(left.ndim) if other != axis)
        extent = int(np.count_nonzero((~left).any(axis=others)))
        if left.shape[axis] - extent >= extent / count:
            return False
        box *= extent
    return len(counts) == left.ndim and box == written
