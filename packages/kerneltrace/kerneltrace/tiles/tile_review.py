"""What wastes the time of a Triton kernel, line by line: elements that lie apart, bytes
that programs load again and again, SMs without a program at the end.

A cost is the difference of two estimates, as in `judge.review`.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
from collections.abc import Iterator

import numpy as np

from kerneltrace.judge.estimate import Estimate
from kerneltrace.judge.review import METRICS, WORTH, Remark, Review
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.traced_memory import Array
from kerneltrace.tiles.traffic import Asked

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


def _mended(
    asked: Asked, groups: list[Group]
) -> Iterator[tuple[str, int, str, Estimate]]:
    """What could be mended: its kind, line and words, and the estimate without it."""
    for group in groups:
        if is_apart(group):
            shares = _shares(asked.bytes_moved, group, 1 / group.spread)
            words = (
                f"Each {group.kind} of {group.array} moves {group.spread:.3g} times the"
                " bytes it asks for: let neighbors in a tile's last axis be neighbors"
                " in memory."
            )
            yield "uncoalesced", group.line, words, asked.estimate(shares)
        elif group.kind == "load" and group.reuse >= _REUSE:
            shares = _shares(asked.bytes_moved, group, 0.5)
            words = (
                f"Programs load each byte of {group.array} {group.reuse:.3g} times: a"
                " tile of twice the extent along the other axis halves that."
            )
            yield "reuse", group.line, words, asked.estimate(shares)
    slots = asked.slots
    programs = math.prod(asked.grid)
    sms = asked.device.sms or 0
    if programs < sms:
        words = (
            f"{sms - programs:,} of {sms:,} SMs have no program: choose smaller tiles,"
            " or let several programs share what one does now."
        )
        yield "occupancy", 0, words, asked.estimate(programs=sms)
    waves = math.ceil(programs / slots)
    if programs > slots and programs < waves * slots:
        words = (
            f"The last of {waves:,} waves has {programs - (waves - 1) * slots:,}"
            f" programs for {slots:,} places: choose tiles that fill it, or let each"
            " program take several."
        )
        better = asked.estimate(programs=waves * slots)
        yield "occupancy", 0, words, better


def reviewed(asked: Asked, groups: list[Group], file: str, mistakes: bool) -> Review:
    """The remarks on a launch whose source is in a file."""
    now = asked.estimate()
    remarks = []
    for kind, line, words, better in _mended(asked, groups):
        saved_s = now.seconds - better.seconds
        share = saved_s / now.seconds
        if share >= WORTH:
            source = linecache.getline(file, line).strip()
            metric = METRICS[kind]
            remarks.append(
                Remark(line, source, kind, words, 1e3 * saved_s, share, metric)
            )
    by_cost = tuple(sorted(remarks, key=lambda each: -each.cost_ms))
    return Review(by_cost, now, asked.grid, mistakes, asked.device.assumed)
