"""Find what a traced kernel wastes: each piece with its line, and the demands that the kernel would have without it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import WIDEST, Demands
from kerneltrace.judge.races import races
from kerneltrace.log.event_log import SITES
from kerneltrace.log.events import LINE_BYTES, SECTOR_BYTES, in_order, starts
from kerneltrace.log.execution import Execution
from kerneltrace.log.grid import WARP
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array

SCATTERED = 1.5
"""Sectors by those that would do, above which a request is uncoalesced."""
_LOAD, _ATOMIC = 1, 3
_PLAIN = "a plain read and write will do"


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
        yield from self._contended()
        yield from self._needless_atomics()
        yield from self._half_empty()

    def busiest_load(self) -> Site | None:
        """The place that makes most requests to load from global memory."""
        loads = self._requests.site[self._global & (self._kind == _LOAD)]
        return self._run.sites[np.bincount(loads).argmax()] if len(loads) else None

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
                share = whole.n_bytes / sum(each.n_bytes for each in asks.footprints if each.is_load)
                changes["l1_miss_bytes"] = asks.l1_miss_bytes * (1 - share) + whole.n_bytes * used
            else:
                parts = 2.0 * SECTOR_BYTES * requests.sectors - requests.asked
                changes["store_bytes"] = asks.store_bytes * (1 - 2 * SECTOR_BYTES * excess / parts[same].sum())
            each = f"{requests.sectors[mask].mean():.3g} sectors a request where {fewest[mask].mean():.3g} would do"
            apart = f"neighbouring lanes are {stride} bytes apart" if stride else "neighbouring lanes are scattered"
            kind, mend = "uncoalesced", f"{apart}. Let them take neighbouring elements."
            if is_load and 0 < stride <= WIDEST and used > 0.99:
                kind, mend = (
                    "narrow loads",
                    f"each thread reads neighbours, which one vector of {stride} bytes would bring.",
                )
            yield _at(site, kind, f"{each}: {mend}", **changes)

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
                yield _at(
                    site, "needless atomics", f"{len(first):,} addresses, and none is another thread's too: {_PLAIN}."
                )

    def _half_empty(self) -> Iterator[Waste]:
        """Requests that fewer warps could make, if those lanes that take part in a block stood together."""
        group = np.unique(np.stack([self._head.key, self._head.block]), axis=1, return_inverse=True)[1].reshape(-1)
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
        here = [
            one for one in enumerate(self._run.sites) if one[1].function == site.function and one[1].line <= site.line
        ]
        before = [one for n, one in here if one.kind in ("branch", "for") and self._parts(n)]
        return max(before, key=lambda one: one.line, default=None)

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
        f"It is computed in float64: a number such as 0.5 is a float64 for numba and a double in C++, and float32"
        f" with it gives float64, in numba with an integer too. Write float32(0.5), or 0.5f in C++.{others}"
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
    loops = {key: _loops(run, key) for _, key in opened.values()}
    turns = Counter(loop for around in {pair for each in loops.values() for pair in each} for loop in around[:1])
    for number in sorted({key % SITES for key in loops}):
        mine = {phase: (before, key) for phase, (before, key) in opened.items() if key % SITES == number}
        site = run.sites[number]
        if site.call != "syncthreads" or any(turns[loop] == 1 for _, key in mine.values() for loop, _ in loops[key]):
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


def _loops(run: Execution, key: int) -> list[tuple[int, int]]:
    """The loops around a place, innermost first: their keys and the context of the turn."""
    found, owners = [], run.log.contexts_by_key.items()
    while context := key // SITES * SITES:
        key = next(owner for owner, contexts in owners if context in contexts)
        if run.sites[key % SITES].kind in ("for", "while"):
            found.append((key, context))
    return found
