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
from kerneltrace.machine.chosen_blocks import ChosenBlocks
from kerneltrace.machine.events import SECTOR_BYTES, Events, largest
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array

INTEGER_CLOCKS = 1.0
FLOAT_CLOCKS = 3.0
"""Of an L2 slice for a round. Fitted to "histogram of zeros, global atomics" on an RTX
3080 (0.92), and to "int32 sum" and "float32 sum, global atomics" on an RTX A6000 (1.06
and 3.0) of kerneltrace_published/kernel_times.csv.
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
"""Neighboring memory of one L2 slice. Fitted to "histogram of bytes, global atomics"
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
    costs = np.zeros(len(run.sites))  # of a round
    gathered = np.zeros(len(run.sites), bool)  # those with one round a request
    numbers, first = np.unique(requests.site[chosen], return_index=True)
    for number, request in zip(numbers, chosen[first], strict=True):
        site = run.sites[number]
        region, _ = run.region_of(int(head.address[request]))
        is_float = site.call.endswith(".float") or (
            region is not None and region.array.dtype.kind == "f"
        )
        costs[number], gathered[number] = _cost(site, head.shared[request], is_float)
    cost = costs[requests.site]  # (requests,)
    in_one_round = gathered[requests.site]
    clocks[chosen] = cost[chosen]
    clocks *= np.where(in_one_round, 1, np.maximum(requests.wavefronts, 1))
    of_those_that_ran = cost * times / requests.weight
    blocks = run.settings.blocks
    slice_clocks = _busiest_slice(
        requests, accesses, of_those_that_ran, in_one_round, blocks
    )
    return clocks, slice_clocks


def _cost(site: Site, is_shared: bool, is_float: bool) -> tuple[float, bool]:
    """Clocks of a round of the atomics of a site, and whether a request takes only
    one.
    """
    if is_float:
        return LOOP_CLOCKS if is_shared else FLOAT_CLOCKS, False
    if _is_gathered(site):
        return SHARED_CLOCKS if is_shared else INTEGER_CLOCKS, True
    if not is_shared:
        return INTEGER_CLOCKS, False
    return (COUNT_CLOCKS, True) if _counts(site) else (SHARED_CLOCKS, False)


def _busiest_slice(
    requests: Requests,
    accesses: Events,
    costs: Array,
    gathered: Array,
    blocks: ChosenBlocks,
) -> float:
    """The most clocks that one slice needs for a block on average."""
    changes = np.flatnonzero(accesses.atomic & ~accesses.shared)
    if not len(changes):
        return 0.0
    request = np.repeat(np.arange(len(costs)), requests.lanes)[changes]
    address = accesses.address[changes]
    # distinct addresses of each request
    (request, address), lanes = np.unique(
        np.stack([request, address]), axis=1, return_counts=True
    )
    rounds = np.where(gathered[request], 1, lanes)
    (of_sector, sector), place = np.unique(
        np.stack([request, address // SECTOR_BYTES]), axis=1, return_inverse=True
    )
    most = largest(place.reshape(-1), rounds)
    spans, span = np.unique(sector * SECTOR_BYTES // SPAN_BYTES, return_inverse=True)
    span = span.reshape(-1)
    block_of = accesses.block[requests.first]  # (requests,)
    clocks = np.bincount(span, most * costs[of_sector])  # (spans,)
    clocks *= blocks.shares(span, block_of[of_sector])
    shared = np.isin(spans, _shared(block_of[request], address) // SPAN_BYTES)
    return float(clocks[shared].max(initial=0.0))


def _shared(block: Array, address: Array) -> Array:
    """The addresses that several blocks change; all of them where only one block was
    traced.
    """
    of_each_block = np.unique(np.stack([block, address]), axis=1)[1]
    addresses, blocks = np.unique(of_each_block, return_counts=True)
    return addresses[blocks > 1] if block.min() < block.max() else addresses


def _is_gathered(site: Site) -> bool:
    """Whether a compiler adds within the warp first: an operation of integers at a
    fixed index, its result unused.
    """
    if site.used or site.call not in _GATHERED:
        return False
    index, _ = _index_and_value(site)
    return re.fullmatch(r"\d+", index) is not None


def _counts(site: Site) -> bool:
    """Whether an atomic of integers adds 1, and nothing uses its result."""
    if site.used or site.call != "atomic.add":
        return False
    _, value = _index_and_value(site)
    return re.fullmatch(r"(\w+(\.\w+)*\()?1[uUlL]*\)?", value) is not None


def _index_and_value(site: Site) -> tuple[str, str]:
    """The index and the value of an atomic as the source writes them, in Python or in
    C++; "" for what is not found.
    """
    if match := _IN_C.search(site.text):
        return match["index"] or "0", match["value"].strip()
    try:
        call = ast.parse(site.text.strip(), mode="eval").body
    except SyntaxError:
        return "", ""
    arguments = call.args[1:3] if isinstance(call, ast.Call) else []
    index, value, *_ = [*map(ast.unparse, arguments), "", ""]
    return index, value
