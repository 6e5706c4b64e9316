"""What a trace shows: counts by array and source line, mistakes, and the data that
figures are drawn from.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kerneltrace.arguments import brief_repr, flag, nearest, positive, text, whole
from kerneltrace.devices import Device
from kerneltrace.errors import BadArgument, KernelError
from kerneltrace.judge.counts import (
    HEADINGS,
    Branches,
    Counts,
    Requests,
    branches,
    count,
    operations,
)
from kerneltrace.judge.demands import Demands, demands
from kerneltrace.judge.estimate import Estimate, estimate
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.review import Review, review
from kerneltrace.log.address_space import Region
from kerneltrace.log.event_log import SITES
from kerneltrace.log.events import KINDS, Events
from kerneltrace.log.execution import Execution
from kerneltrace.log.grid import MAX_GRID, WARP, as_dim3
from kerneltrace.log.program import Operations
from kerneltrace.log.traced_memory import Array
from kerneltrace.tables import ShownAsTable, Table

LIMITS = "Counts, not times: no cache is simulated"


@dataclass(frozen=True)
class Request:
    """One instruction of one warp: the lanes that take part, and the addresses and size
    in bytes that they ask for.
    """

    lanes: Array
    addresses: Array
    size: int
    base: int
    """Address of element 0 of the array."""
    array: str
    space: str
    line: int
    text: str


class Trace(ShownAsTable):
    """What a kernel asked of a GPU: counts by source line and by array, and the
    mistakes found.
    """

    def __init__(
        self, done: Execution, findings: tuple[Finding, ...], schedules: int
    ) -> None:
        self._run = done
        self.findings = tuple(finding for finding in findings if finding.mistake)
        self.notes = tuple(finding for finding in findings if not finding.mistake)
        """What may be meant: elements never written, values in another order."""
        self.schedules = schedules
        self._demands: dict[float, Demands] = {}
        self.kernel = done.settings.fn.__name__
        self.grid = done.settings.grid
        self.block = done.settings.block
        self.ok = not self.findings
        """Whether no mistake was found."""
        blocks = math.prod(self.grid)
        size = math.prod(self.block)
        self.threads = blocks * size
        self.warps = blocks * -(-size // WARP)
        """Of the launch."""
        self.shared_bytes = done.layout.static_bytes + done.layout.dynamic_bytes
        """Of a block, static and dynamic."""
        self.shuffles = done.log.shuffles
        """Of warps, two for values of 8 bytes; each takes the lanes' time of a request
        to shared memory: both give 32 results a clock and multiprocessor (CUDA C++
        Programming Guide, "Arithmetic Instructions").
        """
        self.barriers = done.log.barriers
        """How often a block waited for all its threads, summed over blocks."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that the kernel could reach: its parameters, global
        arrays, shared arrays.
        """
        return tuple(dict.fromkeys(region.name for region in self._run.regions))

    # -- counts

    def count(
        self, array: str = "", *, line: int = 0, space: str = "", kind: str = ""
    ) -> Counts:
        """Counts of the requests to one array, of one source line of the kernel, to one
        space, or of one kind.

        `space` is global, shared or constant; `kind` is load, store or atomic.
        Arguments left out do not restrict.
        """
        return count(
            self._run.accesses, self._requests, self._mask(array, line, space, kind)
        )

    def _mask(
        self, array: str = "", line: int = 0, space: str = "", kind: str = ""
    ) -> Array:
        for name, given in (("array", array), ("space", space), ("kind", kind)):
            text(name, given, KernelError)
        _known("kind", kind or KINDS[0], KINDS)
        mask = self._sites(kind, line=line)[self._requests.site]
        if array:
            mask &= self._request_arrays == self.arrays.index(self._region(array).name)
        if space:
            shared = self._first_accesses.shared
            constant = self._first_accesses.constant
            spaces = {
                "shared": shared,
                "constant": constant,
                "global": ~shared & ~constant,
            }
            _known("space", space, spaces)
            mask &= spaces[space]
        return mask

    def _sites(self, *kinds: str, line: int = 0) -> Array:
        """Which sites are of certain kinds ("" for any), and in a line of the kernel
        itself.

        Lines of its device functions don't count: these may be in another cell or file.
        """
        sites = self._run.sites
        line = whole("line", line, KernelError, least=0)
        mask = np.array(["" in kinds or site.kind in kinds for site in sites])
        return mask & [
            not line or (site.function, site.line) == (self.kernel, line)
            for site in sites
        ]

    @cached_property
    def _requests(self) -> Requests:
        """The accesses, grouped by the warp instruction they belong to."""
        return Requests.of(self._run.accesses)

    @cached_property
    def _first_accesses(self) -> Events:
        """The first access of each request."""
        requests = self._requests
        return self._run.accesses.only(requests.order[requests.first])  # type: ignore[no-any-return]

    @cached_property
    def _request_arrays(self) -> Array:
        """For each request the index in `arrays` of the first array that its first
        address lies in.

        Where arrays overlap, one that the line names comes first.
        """
        address = self._first_accesses.address
        texts = [site.text for site in self._run.sites]
        found = np.full(len(address), -1)
        for by_name, region in itertools.product((True, False), self._run.regions):
            low, high = region.span
            mask = (found < 0) & (address >= low) & (address < high)
            if by_name:
                name = re.compile(rf"\b{re.escape(region.name)}\b")
                mask &= np.array([bool(name.search(text)) for text in texts])[
                    self._requests.site
                ]
            near = np.flatnonzero(mask)
            # a column of a matrix spans its other columns too
            inside = region.elements(address[near]) >= 0
            found[near[inside]] = self.arrays.index(region.name)
        return found

    def _region(self, array: str) -> Region:
        _known("array", array, self.arrays)
        return next(region for region in self._run.regions if region.name == array)

    def branches(self, line: int = 0) -> Branches:
        """Count the branches of warps and those that diverge, in the whole kernel or in
        one source line.
        """
        return branches(self._run.others, self._sites("branch", "for", line=line))

    @cached_property
    def _operations(self) -> Operations:
        return operations(self._run.others, self._run.program)

    @property
    def flop(self) -> int:
        """Operators and mathematical functions on floating-point numbers, as in the
        source; fma counts as two.
        """
        return self._operations.flop

    @property
    def integer_operations(self) -> int:
        """Operators on integers, most of which compute indices."""
        return self._operations.integer

    def estimate(
        self,
        device: str | Device,
        *,
        grid: Any = None,
        longer: float = 1.0,
        registers: int | None = None,
        warm: bool = False,
    ) -> Estimate:
        """Calculate how long this kernel would take on a GPU of the catalogue, by its
        name there or its driver's.

        Full sizes can't be traced: trace a few blocks, two or more along each axis of
        the grid, and pass the `grid` of the full launch. Its blocks are taken to do
        what the traced ones did on average, with `longer` times as many turns of the
        loops that go through global memory: 64 for 4,096 turns of which 64 were traced.
        `registers` a thread are what a compiler reports. `warm` says that the launch
        before left in the L2 cache what fits there. Raises UnknownDevice for a device
        that the catalogue lacks, or its rates.
        """
        asks, registers = self._asks(longer, registers)
        warm = flag("warm", warm, BadArgument)
        dims = self.grid if grid is None else as_dim3("grid", grid, MAX_GRID)
        return estimate(asks, device, grid=dims, registers=registers, warm=warm)

    def review(
        self,
        device: str | Device = "T4",
        *,
        grid: Any = None,
        longer: float = 1.0,
        registers: int | None = None,
    ) -> Review:
        """The review of each line on that GPU; without a `grid` the traced one is
        repeated until it fills the GPU.
        """
        asks, registers = self._asks(longer, registers)
        dims = None if grid is None else as_dim3("grid", grid, MAX_GRID)
        return review(
            self._run,
            self._requests,
            self._request_arrays,
            asks,
            device,
            dims,
            registers,
            not self.ok,
        )

    def _asks(self, longer: float, registers: int | None) -> tuple[Demands, int | None]:
        longer = positive("longer", longer, BadArgument)
        registers = (
            None
            if registers is None
            else whole("registers", registers, BadArgument, least=1)
        )
        if longer not in self._demands:
            self._demands[longer] = demands(
                self._run, self._requests, self._request_arrays, longer
            )
        return self._demands[longer], registers

    # -- data for figures

    def request(
        self,
        array: str = "",
        *,
        line: int = 0,
        kind: str = "",
        number: int = 0,
        warp: int = 0,
    ) -> Request:
        """The `number`-th request of a warp to an array or of a line; KernelError where
        it made no such request.
        """
        requests = self._requests
        accesses = self._run.accesses
        sites = self._run.sites
        number = whole("number", number, KernelError, least=0)
        warp = whole("warp", warp, KernelError, least=0)
        mine = np.flatnonzero(
            self._mask(array, line, "", kind) & (requests.warp == warp)
        )
        if number >= len(mine):
            told = (
                f"Warp {warp:,} made {len(mine):,} such requests, there is no number"
                f" {number:,}"
            )
            raise KernelError(
                f"{told}. Warps count from 0 to {self.warps - 1:,}, arrays are"
                f" {', '.join(self.arrays)}."
            )
        chosen = int(
            mine[np.argsort(self._first_accesses.at[mine], kind="stable")[number]]
        )
        members = accesses.only(
            requests.order[requests.first[chosen] :][: requests.lanes[chosen]]
        )
        site = sites[requests.site[chosen]]
        address = members.address
        region, _ = self._run.region_of(int(address[0]))
        name, space, base = (
            (region.name, region.space, region.base) if region else ("", "", 0)
        )
        return Request(
            members.lane,
            address,
            int(members.size[0]),
            base,
            name,
            space,
            site.line,
            site.text,
        )

    def busiest(self, array: str, kind: str = "load") -> int:
        """The most distinct elements of `array` that one thread reads, or accesses by
        another `kind`.
        """
        _known("kind", kind, KINDS)
        mine, element = self._run.pieces.reaching(self._region(array))
        picked = self._sites(kind)[mine.site]
        threads = np.unique(np.stack([mine.thread[picked], element[picked]]), axis=1)[0]
        return int(np.unique(threads, return_counts=True)[1].max(initial=0))

    def writers(self, array: str) -> tuple[Array, Array]:
        """For each element of an array the block, and the thread in it, that wrote it
        last; -1 where none did.
        """
        mine, element = self._run.accesses.reaching(self._region(array))
        last = np.full(self._region(array).array.shape, -1)
        size = math.prod(self.block)
        last.flat[element[mine.write]] = mine.thread[mine.write]
        return last // size, np.where(last < 0, -1, last % size)

    def paths(self, warp: int = 0) -> tuple[list[str], Array]:
        """The branches (`if` and `while`) that a warp reaches, and what each lane does
        there.

        Returns labels, "line 7: i < n", in the order in which they first came up, and
        an array (branches, 32) of 1 for taken, 0 for not taken, -1 for lanes that do
        not reach it.
        """
        events = self._run.others
        sites = self._run.sites
        warp = whole("warp", warp, KernelError, least=0, most=self.warps - 1)
        mine = events.only(self._sites("branch")[events.site] & (events.warp == warp))
        keys, row = np.unique(mine.key, return_inverse=True)
        found = np.full((len(keys), WARP), -1)
        found[row, mine.lane] = mine.value
        first = np.full(len(keys), np.iinfo("i8").max)
        np.minimum.at(first, row, mine.at)
        order = np.argsort(first)
        labels = [
            f"line {site.line}: {site.text}"
            for site in (sites[int(key) % SITES] for key in keys[order])
        ]
        return labels, found[order]

    # -- tables

    def by_array(self) -> Table:
        """Counts of each array that was accessed."""
        rows: list[tuple[str, ...]] = []
        for name in self.arrays:
            counts = self.count(name)
            region = self._region(name)
            if counts.requests:
                rows.append((name, region.space, *counts.cells()))
        headings = ("array", "space", *HEADINGS)
        # others hold for no array here
        used = [i for i, _ in enumerate(headings) if any(row[i] for row in rows)]
        return Table(
            tuple(tuple(row[i] for i in used) for row in rows),
            tuple(headings[i] for i in used),
            "By array",
        )

    def table(self) -> Table:
        """What a cell shows."""
        blocks = math.prod(self.grid)
        head = (
            f"{self.kernel}: {blocks:,} block{'s' * (blocks > 1)} of"
            f" {math.prod(self.block):,} threads"
        )
        by_array = self.by_array()
        rows: tuple[tuple[str, ...], ...] = by_array.rows or (("no access to memory",),)
        waits = (
            f"{self.shuffles:,} shuffles of warps, {self.barriers:,} barriers of blocks"
        )
        counted = f"{self.flop:,} FLOP, {self.integer_operations:,} integer operations"
        if not self._run.program.is_typed:
            counted = "operations are not counted, since numba's simulator has no types"
        work = f"{self.branches()}; {waits}; {counted}."
        found = (
            *(map(str, self.findings) if self.findings else ("No mistakes found.",)),
            *map(str, self.notes),
        )
        orders = (
            "."
            if self.schedules == 1
            else f"; the kernel ran in {self.schedules} orders of its threads."
        )
        return Table(
            rows,
            by_array.headings if by_array.rows else (),
            head,
            (*found, work, f"({LIMITS}{orders})"),
        )


def _known(what: str, given: str, known: Any) -> None:
    if text(what, given, KernelError) not in known:
        raise KernelError(
            f"There is no {what} {brief_repr(given)} in this trace. The nearest:"
            f" {', '.join(nearest(given, known))}."
        )
