"""What wastes the time of a Triton kernel, line by line: elements that lie apart, bytes
that programs load again and again, SMs without a program at the end.

A cost is the difference of two estimates, as in `judge.review`.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerneltrace.judge.estimate import Estimate
from kerneltrace.judge.review import METRICS, WORTH, Remark, Review
from kerneltrace.machine.grid import WARP, Dim3
from kerneltrace.machine.traced_memory import Array

SPREAD = 2.0
"""Times as many bytes moved as asked for, from which on elements lie apart."""
_REUSE = 4
"""Loads of a byte from which on larger tiles are worth a thought."""


@dataclasses.dataclass(frozen=True)
class Group:
    """The accesses of one kind to one array in one line."""

    line: int
    kind: str
    array: str
    accesses: Array
    """Their numbers."""
    lanes: int
    """Elements that an access touches, on average."""
    spread: float
    """Bytes of the sectors that they touch, for each byte asked for."""
    reuse: float
    """How often programs ask for a byte, on average."""


def _shares(bytes_moved: Array, group: Group, share: float) -> Array:
    """Shares of the bytes of accesses where those of a group are mended: `share` of
    what goes through L2, and no less of DRAM than each byte once.
    """
    shares = np.ones(bytes_moved.shape)
    through_l2, read, written = bytes_moved[group.accesses].sum(0)
    once = through_l2 / group.spread / max(group.reuse, 1)
    of_dram = min(once / max(read + written, 1), 1)
    shares[group.accesses] = share, max(share, of_dram), max(share, of_dram)
    return shares


def is_apart(group: Group) -> bool:
    """Whether at least half of each sector goes unused."""
    return group.lanes >= WARP and group.spread >= SPREAD


def reviewed(
    groups: list[Group],
    file: str,
    grid: Dim3,
    slots: int,
    seconds: Callable[[Any, int], Estimate],
    bytes_moved: Array,
    mistakes: bool,
    device_assumed: str,
) -> Review:
    """The remarks on a launch of `grid`, of which `slots` programs run at a time.

    `seconds(shares, programs)` estimates it with shares of `bytes_moved`, which has the
    bytes of each access through L2, from DRAM and to it, and as if it filled the GPU as
    that many programs do.
    """
    programs = math.prod(grid)
    now = seconds(1.0, programs)

    def remark(kind: str, line: int, sentence: str, better: Estimate) -> Remark:
        saved_s = now.seconds - better.seconds
        source = linecache.getline(file, line).strip() if line else ""
        return Remark(
            line,
            source,
            kind,
            sentence,
            cost_ms=1e3 * saved_s,
            share=saved_s / now.seconds,
            metric=METRICS[kind],
        )

    def of_lines() -> Iterator[Remark]:
        for group in groups:
            if is_apart(group):
                better = seconds(
                    _shares(bytes_moved, group, 1 / group.spread), programs
                )
                words = (
                    f"Each {group.kind} of {group.array} moves {group.spread:.3g} times"
                    " the bytes it asks for: let neighbors in a tile's last axis be"
                    " neighbors in memory."
                )
                yield remark("uncoalesced", group.line, words, better)
            elif group.kind == "load" and group.reuse >= _REUSE:
                better = seconds(_shares(bytes_moved, group, 0.5), programs)
                words = (
                    f"Programs load each byte of {group.array} {group.reuse:.3g} times:"
                    " a tile of twice the extent along the other axis halves that."
                )
                yield remark("reuse", group.line, words, better)

    remarks = list(of_lines())
    waves = math.ceil(programs / slots)
    if programs > slots and programs < waves * slots:
        words = (
            f"The last of {waves:,} waves has {programs - (waves - 1) * slots:,}"
            f" programs for {slots:,} places: choose tiles that fill it, or let each"
            " program take several."
        )
        remarks.append(remark("occupancy", 0, words, seconds(1.0, waves * slots)))
    dear = [each for each in remarks if each.share >= WORTH]
    by_cost = tuple(sorted(dear, key=lambda each: -each.cost_ms))
    return Review(by_cost, now, grid, mistakes, device_assumed)
