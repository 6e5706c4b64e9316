"""The order in which one warp does its steps, from the orders of its lanes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence


def in_program_order(visits: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """The numbers of the steps, in an order in which each lane does its own.

    `visits[step]` are pairs (lane, time), with times that rise for each lane. Where no
    lane decides which of two steps comes first, it is the one that was logged first.
    """
    by_lane: dict[int, list[tuple[int, int]]] = {}
    for step, pairs in enumerate(visits):
        for lane, time in pairs:
            by_lane.setdefault(lane, []).append((time, step))
    follows: list[set[int]] = [set() for _ in visits]
    for own in by_lane.values():
        own.sort()
        for (_, before), (_, after) in itertools.pairwise(own):
            if before != after:
                follows[before].add(after)
    waits = [0] * len(visits)
    for after in itertools.chain.from_iterable(follows):
        waits[after] += 1
    first = [min(time for _, time in pairs) for pairs in visits]
    ready = [(first[step], step) for step, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, step = heapq.heappop(ready)
        order.append(step)
        for after in follows[step]:
            waits[after] -= 1
            if not waits[after]:
                heapq.heappush(ready, (first[after], after))
    # lanes that come by the same steps in different orders leave some over
    rest = set(range(len(visits))) - set(order)
    return [*order, *sorted(rest, key=first.__getitem__)]
