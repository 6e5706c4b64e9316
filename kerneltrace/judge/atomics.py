"""Calculate how long atomics keep their units busy, by type, operation, scope and the
memory that they share.

A warp's request takes a round for each lane that it has at one address. An L2 slice
serves the requests to the memory that it holds one after another, and an SM's load and
store units those to its shared memory.
"""

from __future__ import annotations

import ast
import re

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.log.events import SECTOR_BYTES, Events, largest
from kerneltrace.log.execution import Execution
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array

INTEGER_CLOCKS = 1.0
FLOAT_CLOCKS = 3.0
"""Of an L2 slice for a round. Fitted to "histogram of zeros, global atomics" on an RTX
3080 (0.92), and to "int32 sum" and "float32 sum, global atomics" on an RTX A6000 (1.06
and 3.0) of data/published/kernel_times.csv.
"""
SHARED_CLOCKS = 3.0
"""Of an SM for a round of integers in shared memory. Assumed, as FLOAT_CLOCKS of a
slice: no row decides it.
"""
COUNT_CLOCKS = 8.5
"""Of an SM for a request that adds 1 in shared memory, whatever its addresses: an
instruction of its own counts the lanes at each (ATOMS.POPC.INC; NVIDIA's CUB relies on
it in agent_radix_sort_histogram.cuh). Fitted to "histogram of bytes, shared atomics" on
an H100.
"""
LOOP_CLOCKS = 13.6
"""The same for float32, where a loop of compare-and-swap adds. Fitted to "float32 sum,
shared atomics" (RTX A6000).
"""
SPAN_BYTES = 512
"""Neighbouring memory of one L2 slice. Fitted to "histogram of bytes, global atomics"
on an H100 (between 256 and 512 would fit best) and to the last lines of "histogram of
zeros, shared atomics".
"""
_IN_C = re.compile(
    r"\batomic[A-Z]\w+\(\s*&?\s*\w+(?:\[(?P<index>.*?)\])?\s*,(?P<value>[^;]*)\)"
)
_GATHERED = {
    f"atomic.{name}" for name in ("add", "sub", "and_", "or_", "xor", "max", "min")
}


def atomic_clocks(
    run: Execution, requests: Requests, accesses: Events, times: Array
) -> tuple[Array, float]:
    """Clocks of each request to shared memory, and those of the busiest L2 slice for a
    block of the launch.

    `times` says how often a block makes each request. Slices count whose addresses
    several blocks change.
    """
    head = accesses.only(requests.first)
    clocks = np.zeros(len(requests.first))
    chosen = np.flatnonzero(head.atomic)
    if not len(chosen):
        return clocks, 0.0
    # gathered: one round a request
    cost = np.zeros(len(run.sites))
    gathered = np.zeros(len(run.sites), bool)
    for site, first in zip(
        *np.unique(requests.site[chosen], return_index=True), strict=True
    ):
        number = chosen[first]
        region = run.region_of(int(head.address[number]))[0]
        floating = run.sites[site].call.endswith(".float") or (
            region is not None and region.array.dtype.kind == "f"
        )
        gathered[site] = not floating and _is_gathered(run.sites[site])
        kinds = (
            (LOOP_CLOCKS, SHARED_CLOCKS)
            if head.shared[number]
            else (FLOAT_CLOCKS, INTEGER_CLOCKS)
        )
        cost[site] = kinds[not floating]
        if (
            head.shared[number]
            and not floating
            and not gathered[site]
            and _counts(run.sites[site])
        ):
            cost[site] = COUNT_CLOCKS
            gathered[site] = True
    clocks[chosen] = cost[requests.site[chosen]]
    clocks *= np.where(gathered[requests.site], 1, np.maximum(requests.wavefronts, 1))
    return clocks, _busiest_slice(
        requests, accesses, head, times * cost[requests.site], gathered[requests.site]
    )


def _busiest_slice(
    requests: Requests, accesses: Events, head: Events, costs: Array, gathered: Array
) -> float:
    """The most clocks that one slice needs for a block on average."""
    mine = np.flatnonzero(accesses.atomic & ~accesses.shared)
    if not len(mine):
        return 0.0
    request = np.repeat(np.arange(len(costs)), requests.lanes)[mine]
    address = accesses.address[mine]
    places, lanes = np.unique(np.stack([request, address]), axis=1, return_counts=True)
    rounds = np.where(gathered[places[0]], 1, lanes)
    sectors, of = np.unique(
        np.stack([places[0], places[1] // SECTOR_BYTES]), axis=1, return_inverse=True
    )
    most = largest(of.reshape(-1), rounds)
    spans, span = np.unique(
        sectors[1] * SECTOR_BYTES // SPAN_BYTES, return_inverse=True
    )
    total = np.bincount(span.reshape(-1), most * costs[sectors[0]])
    return float(
        total[
            np.isin(spans, _shared(head.block[places[0]], places[1]) // SPAN_BYTES)
        ].max(initial=0.0)
    )


def _shared(block: Array, address: Array) -> Array:
    """The addresses that several blocks change; all of them where only one block was
    traced.
    """
    found, times = np.unique(
        np.unique(np.stack([block, address]), axis=1)[1], return_counts=True
    )
    return found[times > 1] if block.min() < block.max() else found


def _is_gathered(site: Site) -> bool:
    """Whether a compiler adds within the warp first: an operation of integers at a
    fixed index, its result unused.
    """
    return (
        bool(re.fullmatch(r"\d+", _written(site)[0]))
        and not site.used
        and site.call in _GATHERED
    )


def _counts(site: Site) -> bool:
    """Whether an atomic of integers adds 1, and nothing uses its result."""
    one = re.fullmatch(r"(\w+(\.\w+)*\()?1[uUlL]*\)?", _written(site)[1])
    return one is not None and not site.used and site.call == "atomic.add"


def _written(site: Site) -> tuple[str, str]:
    """The index and the value of an atomic as the source writes them, in Python or in
    C++; "" for what is not found.
    """
    if found := _IN_C.search(site.text):
        return found["index"] or "0", found["value"].strip()
    try:
        call = ast.parse(site.text.strip(), mode="eval").body
    except SyntaxError:
        return "", ""
    given = (
        [ast.unparse(one) for one in call.args[1:3]]
        if isinstance(call, ast.Call)
        else []
    )
    index, value, *_ = *given, "", ""
    return index, value
