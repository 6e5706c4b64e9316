"""Find the branches at which lanes of a warp part, and what fewer warps would do if
such lanes stood together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import Demands
from kerneltrace.judge.waste import Waste, waste_at
from kerneltrace.log.events import in_order, starts
from kerneltrace.log.execution import Execution
from kerneltrace.log.grid import WARP
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array


def as_executed(run: Execution, requests: Requests, asks: Demands) -> Demands:
    """The demands with the arithmetic that warps execute: all of it for a warp of which
    one lane takes part.
    """
    times, work = _counted(run)
    # as Demands spreads it
    meant = (
        float(times[:, 0] @ work)
        / max(int(requests.lanes.sum()), 1)
        * len(requests.first)
    )
    return replace(
        asks, **_arithmetic(asks, float(times[:, 1] @ work) / meant if meant else 1.0)
    )


def divergence(run: Execution, requests: Requests, asks: Demands) -> Iterator[Waste]:
    """Branches at which warps lose time, but for what one lane of each does: it hands
    on what its warp made.
    """
    head = run.accesses.only(requests.order[requests.first])
    group = np.unique(np.stack([head.key, head.block]), axis=1, return_inverse=True)[
        1
    ].reshape(-1)
    part = (np.ceil(np.bincount(group, requests.lanes) / WARP) / np.bincount(group))[
        group
    ]
    times, work = _counted(run)
    of_all = max(float(times[:, 1] @ work), 1.0)
    weights: dict[Site, Array] = defaultdict(lambda: asks.weights)
    saved: dict[Site, float] = defaultdict(float)
    for number in np.unique(requests.site[part < 1]):
        site = run.sites[number]
        mask = (requests.site == number) & (part < 1)
        if requests.lanes[mask].max() > 1 and (
            branch := _parting(run, site.function, site.line)
        ):
            weights[branch] = np.where(mask, asks.weights * part, weights[branch])
    for at, (threads, issued, fewest), done in zip(
        run.program.counted_at, times, work, strict=True
    ):
        if fewest < issued < threads and (branch := _parting(run, *at)):
            saved[branch] += (issued - fewest) * done
    for branch in weights.keys() | saved.keys():
        changes = _arithmetic(asks, share := 1 - saved[branch] / of_all)
        least = min(share, weights[branch].sum() / max(asks.weights.sum(), 1))
        sentence = (
            f"Lanes of a warp part here: {1 - least:.0%} of the warps' accesses or"
            " arithmetic would go if whole warps took the same way. Choose the way by"
            " a thread's warp, or put equal work side by side."
        )
        yield waste_at(
            branch, "divergence", sentence, weights=weights[branch], **changes
        )


def _counted(run: Execution) -> tuple[Array, Array]:
    """The counters, and the instructions that each counts."""
    return np.array(run.program.counters).reshape(-1, 3), np.array(
        [done.instructions for done in run.program.counted]
    )


def _arithmetic(asks: Demands, share: float) -> dict[str, Any]:
    """The fields of Demands that change where only a share of the arithmetic is
    executed.
    """
    changes = {
        name: share * getattr(asks, name)
        for name in ("arithmetic", "double", "special")
    }
    return changes | {
        "instructions": asks.instructions + changes["arithmetic"] - asks.arithmetic
    }


def _parting(run: Execution, function: str, line: int) -> Site | None:
    """The nearest branch above a line at which lanes part in each block: at a guard
    they do in the last.
    """
    here = [
        one
        for one in enumerate(run.sites)
        if one[1].function == function and one[1].line <= line
    ]
    before = [
        site
        for number, site in here
        if site.kind in ("branch", "for") and _parts(run, number)
    ]
    return max(before, key=lambda site: site.line, default=None)


def _parts(run: Execution, number: int) -> bool:
    """Whether lanes part in one turn, or leave a loop in different ones; its last turn
    may be for some lanes only.
    """
    mine = run.others.only(run.others.site == number)
    if not len(mine):
        return False
    order = in_order(mine.warp, mine.key)
    first = starts(mine.key[order], mine.warp[order])
    warp, thread = np.unique(np.stack([mine.warp, mine.thread]), axis=1)
    turns = np.bincount(mine.thread)[thread]
    block = thread // run.settings.block_size
    most = int(run.sites[number].kind == "for")
    return _uneven(mine.value[order], first, mine.block[order], most) or _uneven(
        turns, starts(warp), block, 1
    )


def _uneven(values: Array, first: Array, block: Array, most: int) -> bool:
    """Whether in each block values differ by more than `most` in a quarter of the
    groups that start at `first`.
    """
    apart = (
        np.maximum.reduceat(values, first) - np.minimum.reduceat(values, first) > most
    )
    return bool(apart.mean() >= 0.25) and bool(
        np.isin(block[first], block[first][apart]).all()
    )
