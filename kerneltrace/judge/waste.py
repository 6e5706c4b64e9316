"""Find what a traced kernel wastes: each piece with its line, and the demands that the kernel would have without it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import Demands
from kerneltrace.judge.races import races
from kerneltrace.log.event_log import SITES
from kerneltrace.log.events import LINE_BYTES, SECTOR_BYTES, in_order, starts
from kerneltrace.log.execution import Execution
from kerneltrace.log.grid import WARP
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array

SCATTERED = 1.5
"""Sectors by those that would do, above which a request is uncoalesced."""
WIDEST = 16
"""Bytes that one load of a thread can bring (PTX ISA, "ld": vectors of up to four 4-byte elements)."""
_LOAD, _STORE, _ATOMIC = 1, 2, 3


class Waste(NamedTuple):
    """A waste of one kind, and the fields of Demands (or `registers` a thread) that change without it."""

    kind: str
    line: int
    source: str
    sentence: str
    changes: dict[str, Any]


def _at(site: Site, kind: str, sentence: str, **changes: Any) -> Waste:
    return Waste(kind, site.line, site.text, sentence, changes)


class MemoryWaste:
    """What the requests of a run waste."""

    def __init__(self, run: Execution, requests: Requests, arrays: Array, asks: Demands) -> None:
        """`arrays` numbers the array that each request goes to."""
        self._run, self._requests, self._arrays, self._asks = run, requests, arrays, asks
        self._accesses = run.accesses.only(requests.order)
        self._head = self._accesses.only(requests.first)
        self._kind, self._size = self._accesses.log.kinds[requests.site], self._head.size
        self._global = ~self._head.shared & ~self._head.constant

    def __iter__(self) -> Iterator[Waste]:
        if not len(self._requests.first):
            return
        yield from self._bank_conflicts()
        yield from self._scattered()
        yield from self._narrow()
        yield from self._contended()
        yield from self._needless_atomics()
        yield from self._half_empty()

    def _by_site(self, chosen: Array) -> Iterator[tuple[Site, Array]]:
        for number in np.unique(self._requests.site[chosen]):
            yield self._run.sites[number], chosen & (self._requests.site == number)

    def _passes(self, mask: Array, fewest: Array) -> Array:
        return np.where(mask, np.minimum(fewest, self._asks.passes), self._asks.passes)

    def _bank_conflicts(self) -> Iterator[Waste]:
        requests = self._requests
        fewest = np.maximum(-(-requests.lanes * self._size // LINE_BYTES), 1)
        for site, mask in self._by_site(self._head.shared & (self._kind != _ATOMIC) & (requests.ways > 1)):
            passes = f"{requests.wavefronts[mask].sum():,} passes where {fewest[mask].sum():,} would do"
            sentence = (
                f"Up to {requests.ways[mask].max()} words of one bank for a request: {passes}."
                " Pad the rows, or let lanes differ in the last index."
            )
            yield _at(site, "bank conflicts", sentence, passes=self._passes(mask, fewest))

    def _scattered(self) -> Iterator[Waste]:
        requests, asks = self._requests, self._asks
        fewest = np.maximum(-(-requests.asked // SECTOR_BYTES), 1)
        many = requests.sectors > np.maximum(SCATTERED * fewest, fewest + 1)  # a misaligned one needs one more
        for site, mask in self._by_site(self._global & many):
            is_load = site.kind == "load"
            same = self._global & ((self._kind == _LOAD) == is_load)
            excess = float((requests.sectors - fewest)[mask].sum())
            used, stride = self._used(same & (self._arrays == self._arrays[mask][0])), self._stride(mask)
            changes: dict[str, Any] = {"passes": self._passes(mask, np.maximum(-(-requests.asked // LINE_BYTES), 1))}
            number = self._footprint(int(self._arrays[mask][0]), is_load)
            whole = asks.footprints[number]
            least = replace(whole, n_bytes=whole.n_bytes * used)
            changes["footprints"] = (*asks.footprints[:number], least, *asks.footprints[number + 1 :])
            if is_load:
                changes["load_bytes"] = asks.load_bytes * (1 - excess / requests.sectors[same].sum())
                changes["l1_miss_bytes"] = max(asks.l1_miss_bytes - whole.n_bytes * (1 - used), 1.0)
            else:
                parts = (2 * SECTOR_BYTES * requests.sectors - requests.asked).astype(float)
                changes["store_bytes"] = asks.store_bytes * (1 - 2 * SECTOR_BYTES * excess / parts[same].sum())
            each = f"{requests.sectors[mask].mean():.3g} sectors a request where {fewest[mask].mean():.3g} would do"
            if is_load and 0 < stride <= WIDEST and used > 0.99:
                sentence = (
                    f"{each}: each thread reads neighbours one by one. Load them as one vector of {stride} bytes."
                )
                yield _at(site, "narrow loads", sentence, **changes)
                continue
            apart = f"neighbouring lanes are {stride} bytes apart" if stride else "neighbouring lanes are scattered"
            yield _at(site, "uncoalesced", f"{each}: {apart}. Let them take neighbouring elements.", **changes)

    def _footprint(self, array: int, is_load: bool) -> int:
        pairs = zip(self._arrays[~self._head.shared].tolist(), (self._kind == _LOAD)[~self._head.shared], strict=True)
        return sorted({(name, bool(load)) for name, load in pairs}).index((array, is_load))

    def _used(self, mask: Array) -> float:
        """The part of the sectors of some requests that its block asks for in any of them."""
        mine = self._accesses.only(np.repeat(mask, self._requests.lanes))
        address, block = mine.address, mine.block.astype("i8") << 40
        asked = len(np.unique(block + address)) * int(mine.size.min())
        return min(asked / (SECTOR_BYTES * len(np.unique(block + address // SECTOR_BYTES))), 1.0)

    def _stride(self, mask: Array) -> int:
        """Bytes between neighbouring lanes of the first request, 0 where they differ."""
        first = int(np.flatnonzero(mask)[0])
        begin = self._requests.first[first]
        apart = np.unique(np.diff(self._accesses.address[begin : begin + self._requests.lanes[first]]))
        return abs(int(apart[0])) if len(apart) == 1 else 0

    def _narrow(self) -> Iterator[Waste]:
        requests, asks = self._requests, self._asks
        whole = self._global & (self._kind == _LOAD) & (requests.asked == WARP * self._size) & (self._size < 4)
        for site, mask in self._by_site(whole):
            size = int(self._size[mask].max())
            weights = np.where(mask, asks.weights * size / 4, asks.weights)
            fewer = float((asks.weights - weights).sum())
            loads = float(asks.weights[self._global & (self._kind == _LOAD)].sum())
            fewer_loads: dict[str, Any] = {"weights": weights, "instructions": asks.instructions - fewer}
            fewer_loads["global_waits"] = asks.global_waits * (1 - fewer / loads)
            sentence = (
                f"{WARP * size} bytes a request: let each thread load {4 // size} or more neighbours as one vector."
            )
            yield _at(site, "narrow loads", sentence, **fewer_loads)

    def _contended(self) -> Iterator[Waste]:
        requests = self._requests
        for site, mask in self._by_site(self._kind == _ATOMIC):
            collided, lanes = int(requests.collisions[mask].sum()), int(requests.lanes[mask].sum())
            most = int(requests.rounds[mask].max())
            changes: dict[str, Any] = {"passes": self._passes(mask & self._head.shared, np.ones(len(mask), int))}
            if self._global[mask].any():
                changes["hottest"] = self._asks.hottest / most
            sentence = (
                f"{collided:,} of {lanes:,} atomics find another lane of their warp at their address, up to {most} of"
                " one. Let the lanes add up by shuffles or in copies of their own, and one of them change the address."
            )
            if 2 * collided >= lanes:
                yield _at(site, "atomics", sentence, **changes)

    def _needless_atomics(self) -> Iterator[Waste]:
        for site, mask in self._by_site(self._kind == _ATOMIC):
            if site.used:
                continue
            mine = self._accesses.only(np.repeat(mask, self._requests.lanes))
            every = self._accesses.only(np.isin(self._accesses.memory, mine.memory))
            order = in_order(every.memory - int(every.memory.min()), np.zeros(len(every), "i8"))
            memory, thread = every.memory[order], every.thread[order]
            first = starts(memory)
            alone = (np.maximum.reduceat(thread, first) == np.minimum.reduceat(thread, first)).all()
            if alone and len(np.unique(mine.thread)) > WARP and len(first) > WARP:
                sentence = (
                    f"No two threads reach the same of its {len(first):,} addresses: a plain read and write will do."
                )
                yield _at(site, "needless atomics", sentence)

    def _half_empty(self) -> Iterator[Waste]:
        """Requests that fewer warps could make, if those lanes that take part in a block stood together."""
        key = self._head.key
        _, group = np.unique(np.stack([key, self._head.block.astype("i8")]), axis=1, return_inverse=True)
        group = group.reshape(-1)
        made, lanes = np.bincount(group), np.bincount(group, self._requests.lanes)
        part = (np.ceil(lanes / WARP) / made)[group]
        by_branch: dict[Site, Array] = {}
        for site, mask in self._by_site(part < 1):
            leaders_only = self._requests.lanes[mask].max() == 1  # a lane of each warp hands on what the warp made
            if not leaders_only and (branch := self._branch_of(site)) is not None:
                by_branch[branch] = by_branch.get(branch, np.zeros(len(part), bool)) | mask
        for branch, mask in by_branch.items():
            weights = np.where(mask, self._asks.weights * part, self._asks.weights)
            less = float(weights.sum() / self._asks.weights.sum())
            changes = {name: getattr(self._asks, name) * less for name in ("instructions", "arithmetic", "special")}
            sentence = (
                f"Lanes of a warp part here: {mask.sum():,} requests of warps are made where"
                f" {(part[mask]).sum():,.0f} would do. Let whole warps take the same way."
            )
            yield _at(branch, "divergence", sentence, weights=weights, **changes)

    def _branch_of(self, site: Site) -> Site | None:
        """The nearest branch above a site at which lanes of at least a quarter of the warps part, in each block.

        In a guard at the end of the data those of a few blocks part.
        """
        numbers = (n for n, one in enumerate(self._run.sites) if one.kind in ("branch", "for"))
        before = [n for n in numbers if self._run.sites[n].function == site.function]
        before = [n for n in before if self._run.sites[n].line <= site.line and self._parts(n)]
        return max((self._run.sites[n] for n in before), key=lambda one: one.line, default=None)

    def _parts(self, number: int) -> bool:
        mine = self._run.others.only(self._run.others.site == number)
        order = in_order(mine.warp, mine.key)
        value, first = mine.value[order], starts(mine.key[order], mine.warp[order])
        if not len(first):
            return False
        divergent = np.maximum.reduceat(value, first) != np.minimum.reduceat(value, first)
        block = mine.block[order][first]
        return bool(divergent.mean() >= 0.25) and np.isin(block, block[divergent]).all()  # type: ignore[return-value]


def float64_by_accident(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Arithmetic on float64 in a kernel whose floating-point arrays are all shorter, and that doesn't name the type."""
    program, kinds = run.program, {region.array.dtype for region in run.regions if region.array.dtype.kind in "fc"}
    if not program.float64 or not kinds or kinds & {np.dtype("f8"), np.dtype("c16")} or program.names_float64:
        return
    line, source = min(program.float64.items())
    more = sorted(set(program.float64) - {line})
    others = f" The same in line{'s' * (len(more) > 1)} {', '.join(map(str, more))}." if more else ""
    sentence = (
        f"{source} is computed in float64: float32 with a Python float or an integer gives float64 in numba. Write"
        f" float32(...) around the other number.{others}"
    )
    yield Waste("float64", line, source, sentence, {"double": 0.0})


def needless_barriers(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Barriers without which no two accesses of this run would conflict.

    Those in loops that went round once, and of blocks half of whose threads access no memory, are not judged.
    """
    opened, log = run.log.opened_by, run.accesses.log
    threads = len(np.unique(run.accesses.thread))
    if 2 * threads < run.settings.block_size * math.prod(run.settings.grid):
        return
    loops = _turns(run, {key for _, key in opened.values()})
    for number in sorted({key % SITES for _, key in opened.values()}):
        mine = {phase: (before, key) for phase, (before, key) in opened.items() if key % SITES == number}
        around = {loop for _, key in mine.values() for loop in _loops(run, key)}
        site = run.sites[number]
        if site.call != "syncthreads" or any(len(loops[loop]) == 1 for loop, _ in around):
            continue
        joined = np.arange(max(int(log.phases.max()), *mine) + 1, dtype=log.phases.dtype)
        for phase in sorted(mine):
            joined[phase] = joined[mine[phase][0]]
        without = replace(log, phases=joined[log.phases])
        accesses, events = (replace(some, log=without) for some in (run.accesses, run.events))
        if not races(accesses, lambda events=events: events, run.sites):  # type: ignore[misc]
            share = len(mine) / len(opened) * asks.barriers
            sentence = "No thread reads or writes after it what another thread wrote or read before it."
            yield _at(site, "barrier", sentence, barriers=asks.barriers - share, near_waits=asks.near_waits - share)


def _loops(run: Execution, key: int) -> Iterator[tuple[int, int]]:
    """The loops around a place, innermost first: their keys and the context of the turn."""
    owner = {context // SITES: key for key, contexts in run.log.contexts_by_key.items() for context in contexts}
    while context := key // SITES:
        key = owner[context]
        if run.sites[key % SITES].kind in ("for", "while"):
            yield key, context


def _turns(run: Execution, keys: set[int]) -> dict[int, set[int]]:
    """The turns in which some places are reached, by the loops around them."""
    turns: dict[int, set[int]] = {}
    for loop, context in (pair for key in keys for pair in _loops(run, key)):
        turns.setdefault(loop, set()).add(context)
    return turns


def busiest_load(run: Execution, requests: Requests) -> Site | None:
    """The place that makes most requests to load from global memory."""
    accesses = run.accesses.only(requests.order[requests.first])
    loads = requests.site[(accesses.log.kinds[requests.site] == _LOAD) & ~accesses.shared]
    return run.sites[np.bincount(loads).argmax()] if len(loads) else None


def shared_memory_line(run: Execution) -> Site | None:
    """The place that allocates most shared memory."""
    regions = run.layout.regions
    return run.sites[max(regions, key=lambda site: math.prod(regions[site].array.shape))] if regions else None
