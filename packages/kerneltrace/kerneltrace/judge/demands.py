"""What a block of a traced launch asks of a multiprocessor and of memory, before any
device is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kerneltrace.judge.atomics import atomic_clocks
from kerneltrace.judge.counts import Requests, operations
from kerneltrace.judge.footprints import (
    Footprint,
    footprints,
    packed,
    pairs,
    sectors_of,
    stored_in_part,
)
from kerneltrace.machine.address_space import DYNAMIC_SHARED
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.events import (
    LINE_BYTES,
    SECTOR_BYTES,
    Access,
    Events,
    in_order,
    largest,
    starts,
)
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP, Dim3
from kerneltrace.machine.program import Operations
from kerneltrace.machine.traced_memory import Array

FIRST_TOUCH = 2.5
"""Clocks of the load and store units for a line that a warp loads for the first time;
later ones take 1. Fitted to "matmul, coalesced" (RTX A6000, 3090, 4090) and "float32
transpose, coalesced writes" (RTX 2080 Ti).
"""
SLICE_BYTES = 64
"""Bytes a clock of an L2 slice ("NVIDIA A100 Tensor Core GPU Architecture", L2 cache),
used or not.
"""
PART_BYTES = 104
"""Bytes of the L2 cache's rate that a store of a part of a sector takes, which is read
and written back. Fitted to "transpose, not coalesced" (H100) and "transpose, coalesced
reads" of both types (RTX 2080 Ti).
"""
WIDEST = 16
"""Bytes that one load of a thread can bring (PTX ISA, "ld": vectors of up to four
4-byte elements).
"""
PACKED = 2
"""Least clocks of such a load from shared memory, which returns a register of all lanes
a clock, and two where lanes read the same (Greg Smith of NVIDIA,
forums.developer.nvidia.com/t/77228).
"""
WORD = 4  # bytes of a register
IN_FLIGHT = 4
"""Turns of a loop whose loads are taken to be under way together, as if the compiler
unrolled it four times.
"""


@dataclass(frozen=True)
class Demands:
    """Means over the blocks of a launch. Instructions are those of warps; waits are on
    the longest path of a block.
    """

    kernel: str
    grid: Dim3
    rows: Dim3
    """Along each axis of the grid the most neighbors that were run."""
    threads: int
    """Of a block."""
    warps: int
    shared_bytes: int
    local_bytes: int
    """Of the local arrays of a thread that are in registers."""
    instructions: float
    arithmetic: float
    """Instructions on numbers; those on float64, and divisions and functions of
    float32, are in the next two.
    """
    double: float
    special: float
    tensor: float
    """FLOP of matrix instructions, as Operations counts them."""
    tensor_double: float
    """FLOP of matrix instructions on float64."""
    divisions: float
    """Instructions on numbers that divide integers."""
    local: float
    """Loads and stores of local memory, of warps."""
    dots: float
    """Instructions on numbers that Triton makes of the same where it has no tensor
    cores; 0 for other compilers.
    """
    passes: Array
    """For each request of all blocks: to shared memory its wavefronts (for atomics
    clocks), to constant memory its distinct addresses, to other memory clocks to look
    up its lines.
    """
    weights: Array
    """The part that each is of an instruction of a block, since a compiler merges loads
    of neighboring words.
    """
    is_shared: Array
    shuffles: float
    load_bytes: float
    """Bytes that loads ask of the L1 cache, in whole sectors."""
    l1_miss_bytes: float
    """Bytes for the distinct sectors loaded: what the L2 cache has to give, if L1 keeps
    them for the block.
    """
    store_bytes: float
    """Bytes of the sectors stored, twice for atomics and where a store leaves a part of
    its sector.
    """
    footprints: tuple[Footprint, ...]
    global_waits: float
    near_waits: float
    """For shared and constant memory and at barriers."""
    barriers: float
    hottest: float
    """Clocks that a slice of the L2 cache does the atomics on its ATOMIC_SPAN bytes,
    the busiest ones, for a block.
    """

    def load_store_clocks(self, lanes: int, shared_bytes: int) -> float:
        """Clocks that a block keeps the load and store units busy, which take `lanes`
        lanes a clock.

        Shared memory gives `shared_bytes` a clock.
        """
        clocks = self.passes * np.where(self.is_shared, LINE_BYTES / shared_bytes, 1)
        busy = float(np.maximum(clocks, WARP / lanes) @ self.weights)
        return busy + self.local * WARP / lanes + self.shuffles


def demands(run: Execution, requests: Requests, names: Array, longer: float) -> Demands:
    """The demands of a run whose long loops make `longer` times the turns.

    `requests` are its accesses', `names` says which array each goes to.
    """
    grid = run.settings.grid
    blocks = math.prod(grid)
    warps = -(-run.settings.block_size // WARP)
    accesses = run.accesses.only(requests.order)
    kind = accesses.log.kinds[requests.site]  # (requests,)
    head = accesses.only(requests.first)
    outer = ~head.shared & ~head.constant
    is_load = kind == Access.LOAD
    looping = _in_long_loop(run, head, outer & is_load, outer & ~is_load)
    weight = requests.weight
    times = np.where(looping, longer, 1.0) * weight / blocks
    per_block = (longer if looping.any() else 1.0) / blocks
    weights, vectors = _weights(requests, accesses, head, times)
    # a warp with few lanes takes as long
    spread = int(weight.sum()) * WARP / max(int(requests.lanes @ weight), 1)
    counts, branching = _operations(run, spread)
    global_waits, near_waits, barriers = _waits(run, head, outer, is_load, times)
    shuffles = run.log.shuffles / blocks
    # Each spill is taken to be made once: it may be in a loop.
    local = per_block * counts.local + run.program.spill_bytes / WORD * warps
    # A request to global memory takes an instruction for its address, a branch one for
    # its comparison.
    others = (
        weights[~outer].sum()
        + 2 * times[outer].sum()
        + 2 * per_block * branching
        + shuffles
        + local
        + barriers * warps
    )
    moved = SECTOR_BYTES * requests.sectors
    owner, sectors = pairs(*sectors_of(requests, accesses, outer))  # (pairs,)
    loaded = is_load[owner]
    clocks, hottest = atomic_clocks(run, requests, accesses, times)
    is_atomic = kind == Access.ATOMIC
    is_store = kind == Access.STORE
    parts, alone = stored_in_part(requests, accesses, is_store & outer)
    stored = (PART_BYTES - SECTOR_BYTES) * parts + np.where(is_atomic, 2, 1) * moved
    lookups = _lines(requests, is_load, owner, sectors * SECTOR_BYTES // LINE_BYTES)
    near_passes = np.where(is_atomic, clocks, np.maximum(requests.rounds, vectors))
    return Demands(
        kernel=run.settings.fn.__name__,
        grid=grid,
        rows=Dim3(*map(len, run.settings.blocks.rows())),
        threads=run.settings.block_size,
        warps=warps,
        shared_bytes=run.layout.static_bytes + run.layout.dynamic_bytes,
        local_bytes=sum(
            n_bytes
            for name, n_bytes in run.memory.local_bytes.items()
            if name not in run.program.in_memory
        ),
        instructions=float(per_block * counts.instructions + others),
        arithmetic=per_block * counts.instructions,
        double=per_block * counts.double,
        special=per_block * counts.special,
        tensor=per_block * counts.tensor * WARP,
        tensor_double=per_block * counts.tensor_double * WARP,
        dots=per_block * counts.products if run.program.is_triton else 0.0,
        divisions=per_block * counts.divisions,
        local=local,
        passes=np.where(outer, lookups, near_passes),
        weights=weights,
        is_shared=head.shared,
        shuffles=shuffles,
        load_bytes=float((moved * times)[outer & is_load].sum()),
        l1_miss_bytes=_missed_bytes(head.block, times, owner[loaded], sectors[loaded]),
        store_bytes=float((stored * times)[outer & ~is_load].sum()),
        footprints=footprints(
            run.settings.blocks,
            names,
            sectors,
            head.block,
            kind,
            times * blocks,
            owner,
            alone,
        ),
        global_waits=global_waits,
        near_waits=near_waits,
        barriers=barriers,
        hottest=hottest,
    )


def _waits(
    run: Execution, head: Events, outer: Array, is_load: Array, times: Array
) -> tuple[float, float, float]:
    """Waits of a block for global memory, for shared memory and at barriers, and its
    barriers; of its slowest warp.
    """
    global_waits = _load_waits(run, head, outer & is_load, times, IN_FLIGHT)
    all_turns = len(is_load)
    shared_waits = _load_waits(run, head, ~outer & is_load, times, all_turns)
    most = largest(head.phase, times)  # (phases,)
    turns = 1 / math.prod(run.settings.grid)
    if len(most):
        blocks = run.settings.blocks.weights_of(head.block)
        turns = float(most.sum() / largest(head.phase, blocks).sum())
    barriers = run.log.barriers * turns
    return global_waits, shared_waits + barriers, barriers


def _load_waits(
    run: Execution, head: Events, chosen: Array, times: Array, at_once: int
) -> float:
    """Waits of a block's slowest warp for the chosen loads.

    Loads of one place in the source wait `at_once` turns at a time, and those of
    different places together. A load that needs others waits after them, and one that
    needs what it brought waits in each turn.
    """
    waits = np.array([site.waits for site in run.sites])  # (sites, 2)
    loads_before, needs_itself = waits[head.site].T  # (requests,) each
    reading = np.flatnonzero(chosen)
    step = packed(head.phase, loads_before)[reading]
    place = packed(step, packed(head.warp, head.site)[reading])
    _, first, turns = np.unique(place, return_index=True, return_counts=True)
    turns = np.where(needs_itself[reading[first]], turns, np.ceil(turns / at_once))
    return float(largest(step[first], turns * times[reading[first]]).sum())


def _operations(run: Execution, spread: float) -> tuple[Operations, int]:
    """Operations of warps, which may be fractions, and their branches.

    The condition of a branch is worked out once for all lanes of a warp. Of all else
    the threads are counted, and `spread` says how many lanes take as long as one that
    takes part.
    """
    others = run.others
    order = in_order(others.warp, others.key)
    once = others.only(order[starts(others.key[order], others.warp[order])])
    blocks = run.settings.blocks
    straight = np.array(operations(others.only(slice(0)), run.program, blocks))
    both = np.array(operations(once, run.program, blocks))
    counts = Operations(*(straight * spread / WARP + both - straight).tolist())
    is_branch = np.array([site.kind == "branch" for site in run.sites])
    return counts, int(is_branch[once.site] @ blocks.weights_of(once.block))


def _in_long_loop(run: Execution, head: Events, loads: Array, stores: Array) -> Array:
    """Which requests are in a loop that goes through global memory: one that loads, and
    does not store if one doesn't.

    The loop meant is the outermost one around a request.
    """
    outermost = np.zeros(run.log.fresh // SITES + 1, "i8")  # (contexts,), 0 for none
    for key, contexts in run.log.contexts_by_key.items():
        site = key % SITES
        loop = outermost[key // SITES]
        if not loop and run.sites[site].kind in ("for", "while"):
            loop = site
        outermost[np.array(contexts) // SITES] = loop
    loops = outermost[head.key // SITES]  # (requests,)
    reading = set(loops[loads].tolist()) - {0}
    writing = set(loops[stores].tolist())
    only_reading = reading - writing
    return np.isin(loops, list(only_reading or reading))


def _weights(
    requests: Requests, accesses: Events, head: Events, times: Array
) -> tuple[Array, Array]:
    """The instructions of a block that each request is, and the clocks that it takes at
    least if that loads a vector.

    A block makes each so many `times`. Loads from shared memory are parts of an
    instruction where a compiler merges them.

    Between two barriers it loads the same words once, and neighboring words of up to
    16 bytes, which begin at a multiple of that, together. (LLVM's load/store vectorizer
    does; it shows in the machine code of published kernels.) It merges none from
    dynamic shared memory, whose rows may begin anywhere.
    """
    weights = times.copy()
    vectors = np.zeros(len(times))
    of_fixed_size = head.shared & (head.address < DYNAMIC_SHARED)
    is_load = accesses.log.kinds[requests.site] == Access.LOAD
    chosen = np.flatnonzero(of_fixed_size & is_load)
    if not len(chosen):
        return weights, vectors
    first = head.only(chosen)
    last = accesses.only((requests.first + requests.lanes - 1)[chosen])
    span = last.address - first.address
    step = packed(packed(first.phase, first.warp), first.site)
    _, source = np.unique(step, return_inverse=True)
    _, source = np.unique(packed(source, span - span.min()), return_inverse=True)
    _, at, word, repeats = np.unique(
        packed(source, first.address),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    # of the distinct loads, by vectors of which they may be parts
    _, vector, sizes = np.unique(
        packed(source[at], first.address[at] // WIDEST),
        return_inverse=True,
        return_counts=True,
    )
    members = sizes[vector]
    full = (members * int(first.size.min()) == WIDEST) & (span[at] % WIDEST == 0)
    weights[chosen] /= (repeats * np.where(full, members, 1))[word]
    is_vector = full & (members > 1)
    vectors[chosen] = np.where(is_vector[word], PACKED, 0)
    return weights, vectors


def _missed_bytes(block: Array, times: Array, owner: Array, sectors: Array) -> float:
    """Bytes that the L2 cache spends on a block's sectors: SLICE_BYTES on one that
    comes alone of its line.
    """
    first = np.unique(packed(block[owner], sectors), return_index=True)[1]
    owner = owner[first]
    sectors = sectors[first]
    lines = packed(block[owner], sectors * SECTOR_BYTES // LINE_BYTES)
    _, line, n = np.unique(lines, return_inverse=True, return_counts=True)
    return float(times[owner] @ np.maximum(SECTOR_BYTES, SLICE_BYTES / n[line]))


def _lines(requests: Requests, is_load: Array, owner: Array, lines: Array) -> Array:
    """Clocks to look up the lines of each request, which is the `owner` of those in
    `lines`.
    """
    owner, lines = pairs(owner, lines)
    first = np.unique(packed(requests.warp[owner], lines), return_index=True)[1]
    first = first[is_load[owner[first]]]
    clocks = np.ones(len(owner))
    clocks[first] = FIRST_TOUCH
    return np.bincount(owner, clocks, len(is_load))
