"""Find what a traced kernel wastes: each piece with its line, and the demands that the
kernel would have without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import PART_BYTES, WIDEST, Demands
from kerneltrace.judge.estimate import L2_CLOCKS, SHARED_CLOCKS
from kerneltrace.judge.races import races
from kerneltrace.log.event_log import SITES
from kerneltrace.log.events import LINE_BYTES, SECTOR_BYTES, in_order, starts
from kerneltrace.log.execution import Execution
from kerneltrace.log.grid import WARP
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array

SCATTERED = 1.5
"""Sectors by those that would do, above which a request is uncoalesced."""
USED = 0.7
"""The part of the sectors above which a request is for a vector, and not for one field
of a record.
"""
REGULAR = 3
"""Distances between neighbouring addresses, above which they are scattered: more than a
matrix's rows have.
"""
_LOAD = 1
_ATOMIC = 3
_PLAIN = "a plain read and write will do"


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
    return Waste(kind, site.line, site.text, sentence, changes, always, least_clocks)


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
        yield from self._scattered()
        yield from self._contended()
        yield from self._needless_atomics()

    def busiest_load(self) -> Site | None:
        """The place that makes most requests to load from global memory."""
        loads = self._requests.site[self._global & (self._kind == _LOAD)]
        return self._run.sites[np.bincount(loads).argmax()] if len(loads) else None

    def _by_line(self, chosen: Array) -> Iterator[tuple[Site, Array]]:
        """The chosen requests of one kind in one line to one array: a compiler unrolls
        a loop into many places.
        """
        places: dict[Any, int] = {}
        of = [
            places.setdefault((site.function, site.line, site.kind), n)
            for n, site in enumerate(self._run.sites)
        ]
        group = self._arrays.astype("i8") << 16 | np.array(of)[self._requests.site]
        for number in np.unique(group[chosen]):
            yield self._run.sites[number & 0xFFFF], chosen & (group == number)

    def _passes(self, mask: Array, fewest: Array) -> Array:
        return np.where(mask, np.minimum(fewest, self._asks.passes), self._asks.passes)

    def _bank_conflicts(self) -> Iterator[Waste]:
        requests = self._requests
        fewest = np.maximum(-(-requests.lanes * self._size // LINE_BYTES), 1)
        for site, mask in self._by_line(
            self._head.shared & (self._kind != _ATOMIC) & (requests.ways > 1)
        ):
            passes = (
                f"{requests.wavefronts[mask].sum():,} passes where"
                f" {fewest[mask].sum():,} would do"
            )
            sentence = (
                f"Up to {requests.ways[mask].max()} words of one bank for a request:"
                f" {passes}. Pad the rows, or let lanes differ in the last index."
            )
            yield waste_at(
                site, "bank conflicts", sentence, passes=self._passes(mask, fewest)
            )

    def _scattered(self) -> Iterator[Waste]:
        requests = self._requests
        asks = self._asks
        begin, end = (
            self._accesses.lane[requests.first + last]
            for last in (0, requests.lanes - 1)
        )
        side_by_side = np.where(
            requests.asked < requests.lanes * self._size,
            0,
            (np.abs(end - begin) + 1) * self._size,
        )
        # lanes may stand aside
        fewest = np.maximum(
            -(-np.maximum(requests.asked, side_by_side) // SECTOR_BYTES), 1
        )
        # a misaligned one needs one more
        many = requests.sectors > np.maximum(SCATTERED * fewest, fewest + 1)
        for site, mask in self._by_line(self._global & many):
            is_load = site.kind == "load"
            size = int(self._size[mask].min())
            same = self._global & ((self._kind == _LOAD) == is_load)
            excess = float((requests.sectors - fewest)[mask].sum())
            used = self._used(same & (self._arrays == self._arrays[mask][0]))
            apart = self._apart(mask)
            stride = abs(int(apart[0])) if len(apart) == 1 else 0
            changes: dict[str, Any] = {
                "passes": self._passes(
                    mask, np.maximum(-(-requests.asked // LINE_BYTES), 1)
                )
            }
            number = self._footprint(int(self._arrays[mask][0]), is_load)
            whole = asks.footprints[number]
            is_vector = (
                is_load
                and 0 < stride <= WIDEST
                and used * stride >= max(2 * size, USED * stride)
            )
            kept = 1.0 if is_vector else used
            least = replace(
                whole,
                n_bytes=whole.n_bytes * kept,
                alone=0.0,
                scattered=whole.scattered and is_vector,
            )
            changes["footprints"] = (
                *asks.footprints[:number],
                least,
                *asks.footprints[number + 1 :],
            )
            if is_load:
                changes["load_bytes"] = asks.load_bytes * (
                    1 - excess / requests.sectors[same].sum()
                )
                share = whole.n_bytes / sum(
                    each.n_bytes for each in asks.footprints if each.is_load
                )
                changes["l1_miss_bytes"] = (
                    asks.l1_miss_bytes * (1 - share) + whole.n_bytes * kept
                )
            else:
                saved = (
                    PART_BYTES * requests.sectors - SECTOR_BYTES * fewest
                ) * asks.weights
                changes["store_bytes"] = max(
                    asks.store_bytes - float(saved[mask].sum()), 0.0
                )
            each = (
                f"{requests.sectors[mask].mean():.3g} sectors a request where"
                f" {fewest[mask].mean():.3g} would do"
            )
            where = f"{stride} bytes apart" if stride else "scattered"
            kind = "uncoalesced"
            mend = (
                f"neighbouring lanes are {where}. Let them take neighbouring elements."
            )
            if is_vector:
                kind = "narrow loads"
                mend = (
                    f"each thread reads neighbours, which one vector of {stride} bytes"
                    " would bring."
                )
            yield waste_at(
                site,
                kind,
                f"{each}: {mend}",
                always=is_vector and used * stride >= 3 * size,
                **changes,
            )

    def _footprint(self, array: int, is_load: bool) -> int:
        pairs = zip(
            self._arrays[~self._head.shared].tolist(),
            (self._kind == _LOAD)[~self._head.shared],
            strict=True,
        )
        return sorted({(name, bool(load)) for name, load in pairs}).index(
            (array, is_load)
        )

    def _used(self, mask: Array) -> float:
        """The part of the sectors of some requests that its block asks for in any of
        them.
        """
        mine = self._accesses.only(np.repeat(mask, self._requests.lanes))
        address = mine.address
        block = mine.block.astype("i8") << 40
        asked = len(np.unique(block + address)) * int(mine.size.min())
        return min(
            asked / (SECTOR_BYTES * len(np.unique(block + address // SECTOR_BYTES))),
            1.0,
        )

    def _apart(self, mask: Array) -> Array:
        """The distances in bytes between neighbouring lanes of the first request."""
        first = int(np.flatnonzero(mask)[0])
        begin = self._requests.first[first]
        return np.unique(
            np.diff(self._accesses.address[begin : begin + self._requests.lanes[first]])
        )

    def _contended(self) -> Iterator[Waste]:
        requests = self._requests
        for site, mask in self._by_line(self._kind == _ATOMIC):
            collided = int(requests.collisions[mask].sum())
            lanes = int(requests.lanes[mask].sum())
            most = int(requests.rounds[mask].max())
            changes: dict[str, Any] = {
                "passes": self._passes(
                    mask & self._head.shared, np.ones(len(mask), int)
                )
            }
            region = self._run.region_of(int(self._head.address[mask][0]))[0]
            # No compiler adds floats within a warp; what atomics on memory of one block
            # take, no estimate knows.
            always = (
                bool(self._global[mask].any())
                and region is not None
                and region.array.dtype.kind == "f"
            )
            if self._global[mask].any():
                changes["hottest"] = self._asks.hottest / most
            sentence = (
                f"{collided:,} of {lanes:,} atomics find another lane of their warp at"
                f" their address, up to {most} of one. Let the lanes add up by shuffles"
                " or in copies of their own, and one of them change the address."
            )
            if 2 * collided >= lanes:
                yield waste_at(site, "atomics", sentence, always=always, **changes)

    def _needless_atomics(self) -> Iterator[Waste]:
        asks = self._asks
        for site, mask in self._by_line(self._kind == _ATOMIC):
            if site.used:
                continue
            mine = self._accesses.only(np.repeat(mask, self._requests.lanes))
            every = self._accesses.only(np.isin(self._accesses.memory, mine.memory))
            order = in_order(
                every.memory - int(every.memory.min()), np.zeros(len(every), "i8")
            )
            memory = every.memory[order]
            thread = every.thread[order]
            first = starts(memory)
            alone = (
                np.maximum.reduceat(thread, first) == np.minimum.reduceat(thread, first)
            ).all()
            # What indices read from memory scatter may meet elsewhere in other data.
            regular = (
                max(len(np.unique(np.diff(memory[first]))), len(self._apart(mask)))
                <= REGULAR
            )
            if (
                alone
                and len(np.unique(mine.thread)) > WARP
                and len(first) > WARP
                and regular
            ):
                # a register adds up what goes to one address
                once = len(np.unique(mine.memory)) / len(mine)
                yield waste_at(
                    site,
                    "atomics",
                    f"{len(first):,} addresses, and none is another thread's too:"
                    f" {_PLAIN}.",
                    always=True,
                    least_clocks=(
                        SHARED_CLOCKS if self._head.shared[mask][0] else L2_CLOCKS
                    ),
                    weights=np.where(mask, asks.weights * once, asks.weights),
                    passes=self._passes(
                        mask & self._head.shared, np.full(len(mask), 2)
                    ),
                )


def float64_by_accident(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Arithmetic on float64 in a kernel whose floating-point arrays are all shorter,
    and that doesn't name the type.
    """
    program = run.program
    kinds = {
        region.array.dtype for region in run.regions if region.array.dtype.kind in "fc"
    }
    if (
        not program.float64
        or not kinds
        or kinds & {np.dtype("f8"), np.dtype("c16")}
        or program.names_float64
    ):
        return
    line, source = min(program.float64.items())
    more = sorted(set(program.float64) - {line})
    others = (
        f" The same in line{'s' * (len(more) > 1)} {', '.join(map(str, more))}."
        if more
        else ""
    )
    sentence = (
        "It is computed in float64: a number such as 0.5 is a float64 for numba and a"
        " double in C++, and float32 with it gives float64, in numba with an integer"
        f" too. Write float32(0.5), or 0.5f in C++.{others}"
    )
    yield Waste("float64", line, source, sentence, {"double": 0.0}, always=True)


def needless_barriers(run: Execution, asks: Demands) -> Iterator[Waste]:
    """Barriers without which no two accesses of this run would conflict.

    Those in loops that went round once, and of blocks half of whose threads access no
    memory, are not judged.
    """
    opened = run.log.opened_by
    log = run.accesses.log
    threads = len(np.unique(run.accesses.thread))
    if 2 * threads < run.settings.block_size * math.prod(run.settings.grid):
        return
    loops = {key: _loops(run, key) for _, key in opened.values()}
    # with the phases that begin there: a compiler unrolls loops
    lines: dict[tuple[str, int], list[int]] = {}
    for phase, (_, key) in sorted(opened.items()):
        site = run.sites[key % SITES]
        lines.setdefault((site.function, site.line), []).append(phase)
    block_of = dict(
        zip(log.phases.tolist(), (log.threads // log.block_size).tolist(), strict=True)
    )
    turns = Counter(
        (key % SITES, loop, block_of.get(phase))
        for phase, (_, key) in opened.items()
        for loop, _ in loops[key]
    )
    once = {number for (number, *_), n in turns.items() if n == 1}
    for mine in lines.values():
        numbers = {opened[phase][1] % SITES for phase in mine}
        site = run.sites[min(numbers)]
        if site.call != "syncthreads" or numbers & once:
            continue
        joined = np.arange(
            max(int(log.phases.max()), *mine) + 1, dtype=log.phases.dtype
        )
        for phase in mine:
            joined[phase] = joined[opened[phase][0]]
        without = replace(log, phases=joined[log.phases])
        accesses, events = (
            replace(some, log=without) for some in (run.accesses, run.events)
        )
        if not races(accesses, lambda events=events: events, run.sites):  # type: ignore[misc]
            share = len(mine) / len(opened) * asks.barriers
            sentence = (
                "No thread reads or writes after it what another thread wrote or read"
                " before it."
            )
            less = {
                "barriers": asks.barriers - share,
                "near_waits": asks.near_waits - share,
            }
            yield waste_at(site, "barrier", sentence, always=True, **less)


def _loops(run: Execution, key: int) -> list[tuple[int, int]]:
    """The loops around a place, innermost first: their keys and the context of the
    turn.
    """
    found = []
    owners = run.log.contexts_by_key.items()
    while context := key // SITES * SITES:
        key = next((owner for owner, contexts in owners if context in contexts), 0)
        if run.sites[key % SITES].kind in ("for", "while"):
            found.append((key, context))
    return found
