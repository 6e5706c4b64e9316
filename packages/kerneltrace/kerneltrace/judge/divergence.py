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
from kerneltrace.machine.events import in_order, starts
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array


def as_executed(run: Execution, requests: Requests, asks: Demands) -> Demands:
    """The demands with the arithmetic that warps execute: all of it for a warp of which
    one lane takes part.
    """
    counters, work = _counted(run)
    weight = requests.weight
    spread = int(weight.sum()) / max(int(requests.lanes @ weight), 1)  # as in Demands
    spread *= float(counters[:, 0] @ work)
    executed = float(counters[:, 1] @ work)
    share = executed / spread if spread else 1.0
    return replace(asks, **_arithmetic(asks, share))


def divergence(run: Execution, requests: Requests, asks: Demands) -> Iterator[Waste]:
    """Branches at which warps lose time, but for what one lane of each does: it hands
    on what its warp made.
    """
    weights = _weights_together(run, requests, asks)
    counters, work = _counted(run)
    total = max(float(counters[:, 1] @ work), 1.0)
    saved: dict[Site, float] = defaultdict(float)
    for (function, line), (threads, issued, fewest), instructions in zip(
        run.program.counted_at, counters, work, strict=True
    ):
        if fewest < issued < threads:
            branch = _parting(run, function, line)
            if branch:
                saved[branch] += (issued - fewest) * instructions
    for branch in weights.keys() | saved.keys():
        share = 1 - saved[branch] / total
        changes = _arithmetic(asks, share)
        least = min(share, weights[branch].sum() / max(asks.weights.sum(), 1))
        sentence = (
            f"Lanes of a warp part here: {1 - least:.0%} of the warps' accesses or"
            " arithmetic would go if whole warps took the same way. Choose the way by"
            " a thread's warp, or put equal work side by side."
        )
        yield waste_at(
            branch, "divergence", sentence, weights=weights[branch], **changes
        )


def _weights_together(
    run: Execution, requests: Requests, asks: Demands
) -> defaultdict[Site, Array]:
    """The weights of requests, by branch, if the lanes that make them stood together
    there.
    """
    head = run.accesses.only(requests.order[requests.first])
    _, group = np.unique(np.stack([head.key, head.block]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    fewest = np.ceil(np.bincount(group, requests.lanes) / WARP)  # (groups,)
    part = (fewest / np.bincount(group))[group]  # (requests,)
    weights: defaultdict[Site, Array] = defaultdict(lambda: asks.weights)
    for number in np.unique(requests.site[part < 1]):
        site = run.sites[number]
        mask = (requests.site == number) & (part < 1)
        if requests.lanes[mask].max() > 1:
            branch = _parting(run, site.function, site.line)
            if branch:
                weights[branch] = np.where(mask, asks.weights * part, weights[branch])
    return weights


def _counted(run: Execution) -> tuple[Array, Array]:
    """The counters, and the instructions that each counts."""
    counters = np.array(run.program.counters).reshape(-1, 3)
    work = np.array([operations.instructions for operations in run.program.counted])
    return counters, work


def _arithmetic(asks: Demands, share: float) -> dict[str, Any]:
    """The fields of Demands that change where only a share of the arithmetic is
    executed.
    """
    arithmetic = share * asks.arithmetic
    return {
        "arithmetic": arithmetic,
        "double": share * asks.double,
        "special": share * asks.special,
        "instructions": asks.instructions + arithmetic - asks.arithmetic,
    }


def _parting(run: Execution, function: str, line: int) -> Site | None:
    """The nearest branch above a line at which lanes part in each block: at a guard
    they do in the last.
    """
    above = [
        site
        for number, site in enumerate(run.sites)
        if site.function == function
        and site.line <= line
        and site.kind in ("branch", "for")
        and _parts(run, number)
    ]
    return max(above, key=lambda site: site.line, default=None)


def _parts(run: Execution, number: int) -> bool:
    """Whether lanes part in one turn, or leave a loop in different ones; its last turn
    may be for some lanes only.
    """
    events = run.others.only(run.others.site == number)
    if not len(events):
        return False
    order = in_order(events.warp, events.key)
    first = starts(events.key[order], events.warp[order])
    most = 1 if run.sites[number].kind == "for" else 0
    if _uneven(events.value[order], first, events.block[order], most):
        return True
    warp, thread = np.unique(np.stack([events.warp, events.thread]), axis=1)
    turns = np.bincount(events.thread)[thread]
    block = thread // run.settings.block_size
    return _uneven(turns, starts(warp), block, 1)


def _uneven(values: Array, first: Array, block: Array, most: int) -> bool:
    """Whether in each block values differ by more than `most` in a quarter of the
    groups that start at `first`.
    """
    largest = np.maximum.reduceat(values, first)  # (groups,)
    apart = largest - np.minimum.reduceat(values, first) > most
    if apart.mean() < 0.25:
        return False
    blocks = block[first]
    return bool(np.isin(blocks, blocks[apart]).all())
