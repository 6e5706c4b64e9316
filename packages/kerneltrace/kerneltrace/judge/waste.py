"""Find what a traced kernel wastes: each piece with its line, and the demands that the
kernel would have without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import PART_BYTES, WIDEST, WORD, Demands
from kerneltrace.judge.estimate import L2_CLOCKS, SHARED_CLOCKS
from kerneltrace.judge.races import races
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.events import (
    LINE_BYTES,
    SECTOR_BYTES,
    Access,
    Events,
    in_order,
    starts,
)
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import INTEGER_DIVISION, Site
from kerneltrace.machine.traced_memory import Array

SCATTERED = 1.5
"""Sectors by those that would do, above which a request is uncoalesced."""
USED = 0.7
"""The part of the sectors above which a request is for a vector, and not for one field
of a record.
"""
REGULAR = 3
"""Distances between neighboring addresses, above which they are scattered: more than a
matrix's rows have.
"""


class Waste(NamedTuple):
    """A waste of one kind, and the fields of Demands (or `registers` a thread) that
    change without it.
    """

    kind: str
    line: int
    source: str
    sentence: str
    changes: dict[str, Any]
    always: bool = False
    """Whether it is remarked whatever it costs."""
    least_clocks: float = 0.0
    """What it costs at least, where the estimates with and without it don't differ."""
    stores: bool = False
    """Whether stores waste it, and no loads."""


def waste_at(
    site: Site,
    kind: str,
    sentence: str,
    *,
    always: bool = False,
    least_clocks: float = 0.0,
    **changes: Any,
) -> Waste:
    """A waste in the line of a site."""
    return Waste(
        kind,
        site.line,
        site.text,
        sentence,
        changes,
        always,
        least_clocks,
        stores=site.kind == "store",
    )


class MemoryWaste:
    """What the requests of a run waste."""

    def __init__(
        self, run: Execution, requests: Requests, arrays: Array, asks: Demands
    ) -> None:
        """`arrays` numbers the array that each request goes to."""
        self._run = run
        self._requests = requests
        self._arrays = arrays
        self._asks = asks
        self._accesses = run.accesses.only(requests.order)
        self._head = self._accesses.only(requests.first)
        self._kind = self._accesses.log.kinds[requests.site]
        self._size = self._head.size
        self._global = ~self._head.shared & ~self._head.constant

    def __iter__(self) -> Iterator[Waste]:
        if not len(self._requests.first):
            return
        yield from self._bank_conflicts()
        yield from self._scattered_constants()
        yield from self._scattered()
        yield from self._contended()
        yield from self._needless_atomics()

    def busiest_load(self) -> Site | None:
        """The place that makes most requests to load from global memory."""
        loads = self._requests.site[self._global & (self._kind == Access.LOAD)]
        return self._run.sites[np.bincount(loads).argmax()] if len(loads) else None

    def _by_line(self, chosen: Array) -> Iterator[tuple[Site, Array]]:
        """The chosen requests of one kind in one line to one array: a compiler unrolls
        a loop into many places.
        """
        first_of_line: dict[tuple[str, int, str], int] = {}
        numbers = np.array(
            [
                first_of_line.setdefault((site.function, site.line, site.kind), number)
                for number, site in enumerate(self._run.sites)
            ]
        )  # (sites,)
        group = self._arrays.astype("i8") << 16 | numbers[self._requests.site]
        for number in np.unique(group[chosen]):
            mask = chosen & (group == number)
            yield self._run.sites[self._requests.site[mask][0]], mask

    def _passes(self, mask: Array, fewest: Array | int) -> Array:
        return np.where(mask, np.minimum(fewest, self._asks.passes), self._asks.passes)

    def _bank_conflicts(self) -> Iterator[Waste]:
        requests = self._requests
        fewest = np.maximum(-(-requests.lanes * self._size // LINE_BYTES), 1)
        conflicting = requests.ways > 1
        chosen = self._head.shared & (self._kind != Access.ATOMIC) & conflicting
        for site, mask in self._by_line(chosen):
            ways = requests.ways[mask].max()
            passes = requests.wavefronts[mask].sum()
            sentence = (
                f"Up to {ways} words of one bank for a request: {passes:,} passes"
                f" where {fewest[mask].sum():,} would do. Pad the rows, or let lanes"
                " differ in the last index."
            )
            yield waste_at(
                site, "bank conflicts", sentence, passes=self._passes(mask, fewest)
            )

    def _scattered_constants(self) -> Iterator[Waste]:
        requests = self._requests
        one_by_one = self._head.constant & (requests.rounds > 1)
        for site, mask in self._by_line(one_by_one):
            sentence = (
                f"{requests.rounds[mask].mean():.3g} addresses of constant memory a"
                " request, which are read one after another. Let the lanes of a warp"
                " read the same, or take global or shared memory."
            )
            passes = self._passes(mask, 1)
            yield waste_at(site, "constant memory", sentence, passes=passes)

    def _scattered(self) -> Iterator[Waste]:
        requests = self._requests
        fewest = self._fewest_sectors()
        # a misaligned one needs one more
        many = requests.sectors > np.maximum(SCATTERED * fewest, fewest + 1)
        for site, mask in self._by_line(self._global & many):
            is_load = site.kind == "load"
            array = int(self._arrays[mask][0])
            size = int(self._size[mask].min())
            used = self._used(self._same_kind(is_load) & (self._arrays == array))
            apart = self._apart(mask)
            stride = abs(int(apart[0])) if len(apart) == 1 else 0
            is_vector = (
                is_load
                and 0 < stride <= WIDEST
                and used * stride >= max(2 * size, USED * stride)
            )
            sectors = (
                f"{requests.sectors[mask].mean():.3g} sectors a request where"
                f" {fewest[mask].mean():.3g} would do"
            )
            kind, advice = self._advice(mask, stride, is_vector)
            yield waste_at(
                site,
                kind,
                f"{sectors}: {advice}",
                always=is_vector and used * stride >= 3 * size,
                **self._coalesced(mask, fewest, array, is_load, is_vector, used),
            )

    def _advice(self, mask: Array, stride: int, is_vector: bool) -> tuple[str, str]:
        """The kind of remark on requests whose lanes are `stride` bytes apart, 0 for
        scattered ones, and what to do.
        """
        if is_vector:
            words = (
                f"each thread reads neighbors, which one vector of {stride} bytes would"
                " bring."
            )
            return "narrow loads", words
        if self._lies_in_rows(mask):
            words = (
                f"rows of {self._run.settings.block.x} threads let a warp take parts of"
                f" several rows. Let blockDim.x be a multiple of {WARP}."
            )
            return "block size", words
        where = f"{stride} bytes apart" if stride else "scattered"
        words = f"neighboring lanes are {where}. Let them take neighboring elements."
        return "uncoalesced", words

    def _same_kind(self, is_load: bool) -> Array:
        """The loads from global memory, or all other requests to it."""
        loads = self._kind == Access.LOAD
        chosen: Array = self._global & (loads if is_load else ~loads)
        return chosen

    def _fewest_sectors(self) -> Array:
        """The sectors that each request would need if its lanes stood side by side."""
        requests = self._requests
        first_lane = self._accesses.lane[requests.first]
        last_lane = self._accesses.lane[requests.first + requests.lanes - 1]
        # lanes may stand aside
        side_by_side = (np.abs(last_lane - first_lane) + 1) * self._size
        shared = requests.n_bytes < requests.lanes * self._size
        needed = np.maximum(requests.n_bytes, np.where(shared, 0, side_by_side))
        sectors: Array = np.maximum(-(-needed // SECTOR_BYTES), 1)
        return sectors

    def _coalesced(
        self,
        mask: Array,
        fewest: Array,
        array: int,
        is_load: bool,
        is_vector: bool,
        used: float,
    ) -> dict[str, Any]:
        """The demands that change if the requests in `mask` needed only the `fewest`
        sectors, of which `used` is the part that their block asks for.
        """
        requests = self._requests
        asks = self._asks
        fewest_lines = np.maximum(-(-requests.n_bytes // LINE_BYTES), 1)
        changes: dict[str, Any] = {"passes": self._passes(mask, fewest_lines)}
        kind = Access(self._kind[mask][0])
        places = [(part.array, part.kind) for part in asks.footprints]
        number = places.index((array, kind))
        whole = asks.footprints[number]
        kept_bytes = whole.n_bytes * (1.0 if is_vector else used)
        smaller = replace(
            whole,
            n_bytes=kept_bytes,
            alone=0.0,
            scattered=whole.scattered and is_vector,
        )
        others = asks.footprints
        changes["footprints"] = (*others[:number], smaller, *others[number + 1 :])
        if is_load:
            excess = float((requests.sectors - fewest)[mask].sum())
            sectors = requests.sectors[self._same_kind(is_load)].sum()
            changes["load_bytes"] = asks.load_bytes * (1 - excess / sectors)
            loaded = sum(
                part.n_bytes for part in asks.footprints if part.kind == Access.LOAD
            )
            share = whole.n_bytes / loaded
            changes["l1_miss_bytes"] = asks.l1_miss_bytes * (1 - share) + kept_bytes
        else:
            excess_bytes = PART_BYTES * requests.sectors - SECTOR_BYTES * fewest
            saved = float((excess_bytes * asks.weights)[mask].sum())
            changes["store_bytes"] = max(asks.store_bytes - saved, 0.0)
        return changes

    def _used(self, mask: Array) -> float:
        """The part of the sectors of some requests that its block asks for in any of
        them.
        """
        accesses = self._accesses.only(np.repeat(mask, self._requests.lanes))
        address = accesses.address
        block = accesses.block.astype("i8") << 40
        n_bytes = len(np.unique(block + address)) * int(accesses.size.min())
        sectors = len(np.unique(block + address // SECTOR_BYTES))
        return min(n_bytes / (SECTOR_BYTES * sectors), 1.0)

    def _apart(self, mask: Array) -> Array:
        """The distances in bytes between neighboring lanes of the first request."""
        first = int(np.flatnonzero(mask)[0])
        begin = self._requests.first[first]
        end = begin + self._requests.lanes[first]
        return np.unique(np.diff(self._accesses.address[begin:end]))

    def _lies_in_rows(self, mask: Array) -> bool:
        """Whether the lanes of the first request are neighbors in memory wherever they
        are in a row of their block, of which a warp has several.
        """
        width = self._run.settings.block.x
        if width % WARP == 0 or width == 1:
            return False
        first = int(np.flatnonzero(mask)[0])
        begin = self._requests.first[first]
        lanes = self._accesses.only(slice(begin, begin + self._requests.lanes[first]))
        in_row = np.diff(lanes.thread // width) == 0
        apart = np.diff(lanes.address)[in_row]
        return bool(len(apart) and (np.abs(apart) == self._size[first]).all())

    def _contended(self) -> Iterator[Waste]:
        requests = self._requests
        for site, mask in self._by_line(self._kind == Access.ATOMIC):
            collisions = int(requests.collisions[mask].sum())
            lanes = int(requests.lanes[mask].sum())
            if 2 * collisions < lanes:
                continue
            most = int(requests.rounds[mask].max())
            changes: dict[str, Any] = {
                "passes": self._passes(mask & self._head.shared, 1)
            }
            region, _ = self._run.region_of(int(self._head.address[mask][0]))
            is_float = region is not None and region.array.dtype.kind == "f"
            is_global = bool(self._global[mask].any())
            if is_global:
                changes["hottest"] = self._asks.hottest / most
            sentence = (
                f"{collisions:,} of {lanes:,} atomics find another lane of their warp"
                f" at their address, up to {most} of one. Let the lanes add up by"
                " shuffles or in copies of their own, and one of them change the"
                " address."
            )
            # No compiler adds floats within a warp; what atomics on memory of one block
            # take, no estimate knows.
            always = is_global and is_float
            yield waste_at(site, "atomics", sentence, always=always, **changes)

    def _needless_atomics(self) -> Iterator[Waste]:
        asks = self._asks
        for site, mask in self._by_line(self._kind == Access.ATOMIC):
            atomics = self._accesses.only(np.repeat(mask, self._requests.lanes))
            if site.used or not self._is_private(atomics):
                continue
            addresses = np.unique(atomics.memory)
            distances = max(len(np.unique(np.diff(addresses))), len(self._apart(mask)))
            # What indices read from memory scatter may meet elsewhere in other data.
            if distances > REGULAR or len(addresses) <= WARP:
                continue
            # a register adds up what goes to one address
            once = len(addresses) / len(atomics)
            is_shared = self._head.shared[mask][0]
            yield waste_at(
                site,
                "atomics",
                f"{len(addresses):,} addresses, and none is another thread's too: a"
                " plain read and write will do.",
                always=True,
                least_clocks=SHARED_CLOCKS if is_shared else L2_CLOCKS,
                weights=np.where(mask, asks.weights * once, asks.weights),
                passes=self._passes(mask & self._head.shared, 2),
            )

    def _is_private(self, atomics: Events) -> bool:
        """Whether atomics of more than a warp's threads change addresses that only one
        thread each accesses.
        """
        if len(np.unique(atomics.thread)) <= WARP:
            return False
        there = self._accesses.only(np.isin(self._accesses.memory, atomics.memory))
        memory = there.memory
        order = in_order(memory - int(memory.min()), np.zeros(len(there), "i8"))
        first = starts(memory[order])
        thread = there.thread[order]
        largest = np.maximum.reduceat(thread, first)  # (addresses,)
        return bool((largest == np.minimum.reduceat(thread, first)).all())


def float64_by_accident(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Arithmetic on float64 in a kernel whose floating-point arrays are all shorter,
    and that doesn't name the type.
    """
    program = run.program
    if not program.lines["double"] or program.names_float64:
        return
    dtypes = {region.array.dtype for region in run.regions}
    floats = {dtype for dtype in dtypes if dtype.kind in "fc"}
    if not floats or floats & {np.dtype("f8"), np.dtype("c16")}:
        return
    sentence = (
        "It is computed in float64: a number such as 0.5 is a float64 for numba and a"
        " double in C++, and float32 with it gives float64, in numba with an integer"
        " too. Write float32(0.5), or 0.5f in C++."
    )
    yield _in_lines(program.lines["double"], "float64", sentence, double=0.0)


def divisions(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Divisions of integers by what no compiler knows."""
    if asks.divisions:
        sentence = (
            f"A division of integers takes {INTEGER_DIVISION} instructions where the"
            " compiler doesn't know the divisor. Make it a constant, a power of two if"
            " possible, or get quotients from the indices of blocks and threads."
        )
        yield _in_lines(
            run.program.lines["divisions"],
            "integer division",
            sentence,
            instructions=asks.instructions - asks.divisions,
            arithmetic=asks.arithmetic - asks.divisions,
        )


def local_memory(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Accesses to what threads keep in local memory."""
    spill_bytes = run.program.spill_bytes
    spilled = spill_bytes / WORD * asks.warps
    if spill_bytes:
        sentence = (
            f"The compiler spills registers: {spill_bytes} bytes a thread are stored to"
            " local memory or loaded, in a loop again and again. Keep fewer values at a"
            " time, or allow more registers (__launch_bounds__, maxrregcount)."
        )
        changes = {
            "instructions": asks.instructions - spilled,
            "local": asks.local - spilled,
        }
        yield Waste("local memory", 0, "", sentence, changes, always=True)
    if asks.local > spilled:
        sentence = (
            "What a thread keeps here lies in local memory, behind the caches, and not"
            " in registers: an index isn't known when the kernel is compiled. Let loops"
            " of fixed bounds, which are unrolled, make the indices, or take shared"
            " memory."
        )
        yield _in_lines(
            run.program.lines["local"],
            "local memory",
            sentence,
            instructions=asks.instructions - asks.local + spilled,
            local=spilled,
        )


def _in_lines(
    lines: dict[int, str], kind: str, sentence: str, **changes: float
) -> Waste:
    """A waste that the first of some lines is remarked for, and the others in it."""
    line, source = min(lines.items())
    more = sorted(set(lines) - {line})
    if more:
        words = "line" if len(more) == 1 else "lines"
        sentence += f" The same in {words} {', '.join(map(str, more))}."
    return Waste(kind, line, source, sentence, changes, always=True)


def needless_barriers(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Barriers without which no two accesses of this run would conflict.

    Those in loops that went round once, and of blocks half of whose threads access no
    memory, are not judged.
    """
    threads = len(np.unique(run.accesses.thread))
    if 2 * threads < run.settings.block_size * len(run.settings.blocks.numbers):
        return
    opened = run.log.opened_by
    # with the phases that begin there: a compiler unrolls loops
    lines: dict[tuple[str, int], list[int]] = {}
    for phase, (_, key) in sorted(opened.items()):
        site = run.sites[key % SITES]
        lines.setdefault((site.function, site.line), []).append(phase)
    once = _in_loops_of_one_turn(run)
    for phases in lines.values():
        numbers = {opened[phase][1] % SITES for phase in phases}
        site = run.sites[min(numbers)]
        if site.call != "syncthreads" or numbers & once:
            continue
        if not _races_without(run, phases):
            share = len(phases) / len(opened) * asks.barriers
            yield waste_at(
                site,
                "barrier",
                "No thread reads or writes after it what another thread wrote or read"
                " before it.",
                always=True,
                barriers=asks.barriers - share,
                near_waits=asks.near_waits - share,
            )


def _races_without(run: Execution, phases: list[int]) -> bool:
    """Whether accesses of the run would conflict if these phases were parts of those
    before.
    """
    log = run.accesses.log
    last = max(int(log.phases.max()), *phases)
    joined = np.arange(last + 1, dtype=log.phases.dtype)  # (phases,)
    for phase in phases:
        before, _ = run.log.opened_by[phase]
        joined[phase] = joined[before]
    without = replace(log, phases=joined[log.phases])
    accesses = replace(run.accesses, log=without)
    events = replace(run.events, log=without)
    return bool(races(accesses, lambda: events, run.sites))


def _in_loops_of_one_turn(run: Execution) -> set[int]:
    """The sites of barriers that a block came to only once in a loop."""
    log = run.accesses.log
    blocks = (log.threads // log.block_size).tolist()
    block_of = dict(zip(log.phases.tolist(), blocks, strict=True))
    owners = run.log.owners()
    turns = Counter[tuple[int, int, int | None]]()
    for phase, (_, key) in run.log.opened_by.items():
        for loop in _loops(run, owners, key):
            turns[key % SITES, loop, block_of.get(phase)] += 1
    return {site for (site, *_), n in turns.items() if n == 1}


def _loops(run: Execution, owners: dict[int, int], key: int) -> Iterator[int]:
    """The keys of the loops around a place, innermost first, by the `owners` of
    contexts: the keys of the loops and calls that have them.
    """
    while context := key // SITES * SITES:
        key = owners.get(context, 0)
        if run.sites[key % SITES].kind in ("for", "while"):
            yield key
