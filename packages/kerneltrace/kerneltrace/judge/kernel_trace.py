"""What a trace shows: counts by array and source line, mistakes, and the data that
figures are drawn from.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpufacts import Device
from kerneltrace._arguments import flag, positive, text, whole
from kerneltrace._tables import ShownAsTable, Table
from kerneltrace._text import brief_repr, nearest
from kerneltrace.errors import KernelError
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
from kerneltrace.judge.warp_order import in_program_order
from kerneltrace.machine.address_space import Region
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.events import KINDS, Events
from kerneltrace.machine.execution import Execution, LaunchSettings
from kerneltrace.machine.grid import MAX_GRID, WARP, Dim3, as_dim3, place
from kerneltrace.machine.program import Operations
from kerneltrace.machine.traced_memory import Array
from kerneltrace.proof.kernel import proof_of_run
from kerneltrace.proof.verdict import Proof

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


@dataclass(frozen=True)
class WarpStep:
    """One branch, or one request to memory, of one warp.

    `lanes` has a number for each of the 32 lanes. At a branch it is 1 where the lane
    takes it, 0 where it doesn't, and -1 where it isn't there; at a request 1 where the
    lane takes part, and else -1.
    """

    kind: str
    """branch, load, store or atomic."""
    line: int
    text: str
    lanes: tuple[int, ...]
    request: Request | None
    """None at a branch."""

    @property
    def parts(self) -> bool:
        """Whether lanes part here: some take the branch, and some don't."""
        return 0 in self.lanes and 1 in self.lanes


class Trace(ShownAsTable):
    """What a kernel asked of a GPU: counts by source line and by array, and the
    mistakes found.
    """

    def __init__(
        self, run: Execution, findings: tuple[Finding, ...], schedules: int
    ) -> None:
        self._run = run
        self.findings = tuple(finding for finding in findings if finding.mistake)
        notes = tuple(finding for finding in findings if not finding.mistake)
        self.notes = (*_sampling(run.settings), *notes)
        """What may be meant: elements never written, values in another order; and of
        how many blocks all this speaks, where some were left out.
        """
        self.schedules = schedules
        self._demands: dict[float, Demands] = {}
        self.kernel = run.settings.fn.__name__
        self.grid = run.settings.grid
        self.block = run.settings.block
        self._blocks = run.settings.blocks
        self.ok = not self.findings
        """Whether no mistake was found."""
        blocks = math.prod(self.grid)
        size = math.prod(self.block)
        self.threads = blocks * size
        self.warps = blocks * -(-size // WARP)
        """Of the launch."""
        self.shared_bytes = run.layout.static_bytes + run.layout.dynamic_bytes
        """Of a block, static and dynamic."""
        self.shuffles = run.log.shuffles
        """Of warps, two for values of 8 bytes; each takes the lanes' time of a request
        to shared memory: both give 32 results a clock and multiprocessor (CUDA C++
        Programming Guide, "Arithmetic Instructions").
        """
        self.barriers = run.log.barriers
        """How often a block waited for all its threads, summed over blocks."""

    @cached_property
    def blocks(self) -> tuple[Dim3, ...]:
        """The places of the blocks that ran."""
        numbers = self._blocks.numbers.tolist()
        return tuple(place(number, self.grid) for number in numbers)

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
            self._run.accesses,
            self._requests,
            self._mask(array, line, space, kind),
            self._blocks,
        )

    def _mask(
        self, array: str = "", line: int = 0, space: str = "", kind: str = ""
    ) -> Array:
        for name, value in (("array", array), ("space", space), ("kind", kind)):
            text(name, value)
        _check_name("kind", kind or "load", KINDS)
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
            _check_name("space", space, spaces)
            mask &= spaces[space]
        return mask

    def _sites(self, *kinds: str, line: int = 0) -> Array:
        """Which sites are of certain kinds ("" for any), and in a line of the kernel
        itself.

        Lines of its device functions don't count: these may be in another cell or file.
        """
        sites = self._run.sites
        line = whole("line", line, least=0)
        mask = np.array(["" in kinds or site.kind in kinds for site in sites])
        if line:
            place = (self.kernel, line)
            mask &= np.array([(site.function, site.line) == place for site in sites])
        return mask

    @cached_property
    def _requests(self) -> Requests:
        """The accesses, grouped by the warp instruction they belong to."""
        return Requests.of(self._run.accesses, self._blocks)

    @cached_property
    def _first_accesses(self) -> Events:
        """The first access of each request."""
        requests = self._requests
        first: Events = self._run.accesses.only(requests.order[requests.first])
        return first

    @cached_property
    def _request_arrays(self) -> Array:
        """For each request the index in `arrays` of the first array that its first
        address lies in.

        Where arrays overlap, one that the line names comes first.
        """
        address = self._first_accesses.address
        texts = [site.text for site in self._run.sites]
        number = np.full(len(address), -1)
        for by_name, region in itertools.product((True, False), self._run.regions):
            low, high = region.span
            mask = (number < 0) & (address >= low) & (address < high)
            if by_name:
                name = re.compile(rf"\b{re.escape(region.name)}\b")
                has_name = np.array([bool(name.search(text)) for text in texts])
                mask &= has_name[self._requests.site]
            near = np.flatnonzero(mask)
            # a column of a matrix spans its other columns too
            inside = region.elements(address[near]) >= 0
            number[near[inside]] = self.arrays.index(region.name)
        return number

    def _region(self, array: str) -> Region:
        _check_name("array", array, self.arrays)
        return next(region for region in self._run.regions if region.name == array)

    def branches(self, line: int = 0) -> Branches:
        """Count the branches of warps and those that diverge, in the whole kernel or in
        one source line.
        """
        return branches(
            self._run.others,
            self._sites("branch", "for", line=line),
            self._blocks,
        )

    @cached_property
    def _operations(self) -> Operations:
        return operations(self._run.others, self._run.program, self._blocks)

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
        """Calculate how long this kernel would take on a GPU that gpufacts knows.

        The grid is the traced one, of which a sample of blocks may have run, or
        another `grid`, whose blocks are taken to do what the traced ones did on
        average, with `longer` times as many turns of the loops that go through global
        memory: 64 for 4,096 turns of which 64 were traced.
        `registers` a thread are what a compiler reports. `warm` says that the launch
        before left in the L2 cache what fits there. Raises UnknownDevice for a device
        that gpufacts lacks, or its rates.
        """
        asks, registers = self._asks(longer, registers)
        warm = flag("warm", warm)
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
        repeated until it fills the GPU, unless only a sample of it ran.
        """
        asks, registers = self._asks(longer, registers)
        if grid is None and not self._blocks.all_run:
            grid = self.grid
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

    def proof(self) -> Proof:
        """Whether the kernel has no race for any data and any grid, and by which
        argument; else why only this run was looked at.

        Indices have to be sums of products of places in block and grid, sizes, and
        turns of loops, with // and %; kernels in CUDA C++ and Triton aren't proven.
        """
        races = [str(finding) for finding in self.findings if finding.kind == "race"]
        return proof_of_run(self._run, races)

    def _asks(self, longer: float, registers: int | None) -> tuple[Demands, int | None]:
        if not self.blocks:
            raise KernelError(
                "No block ran to its end, so there is nothing to calculate a time from."
                " Correct what the findings say first."
            )
        longer = positive("longer", longer)
        if registers is not None:
            registers = whole("registers", registers, least=1)
        else:
            registers = self._run.program.registers or None
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
        """The `number`-th request of a warp to an array or of a line; ValueError where
        it made no such request.
        """
        requests = self._requests
        number = whole("number", number, least=0)
        warp = whole("warp", warp, least=0)
        candidates = np.flatnonzero(
            self._mask(array, line, "", kind) & (requests.warp == warp)
        )
        if number >= len(candidates):
            raise ValueError(
                f"Warp {warp:,} made {len(candidates):,} such requests, there is no"
                f" number {number:,}. Warps count from 0 to {self.warps - 1:,}, arrays"
                f" are {', '.join(self.arrays)}."
            )
        in_time = np.argsort(self._first_accesses.at[candidates], kind="stable")
        return self._request(int(candidates[in_time[number]]))

    def _accesses_of(self, request: int) -> Events:
        """The accesses of a request, by its number."""
        begin = self._requests.first[request]
        end = begin + self._requests.lanes[request]
        accesses: Events = self._run.accesses.only(self._requests.order[begin:end])
        return accesses

    def _request(self, number: int) -> Request:
        """A request by its number."""
        accesses = self._accesses_of(number)
        site = self._run.sites[self._requests.site[number]]
        region, _ = self._run.region_of(int(accesses.address[0]))
        return Request(
            accesses.lane,
            accesses.address,
            size=int(accesses.size[0]),
            base=region.base if region else 0,
            array=region.name if region else "",
            space=region.space if region else "",
            line=site.line,
            text=site.text,
        )

    def busiest(self, array: str, kind: str = "load") -> int:
        """The most distinct elements of `array` that one thread reads, or accesses by
        another `kind`.
        """
        _check_name("kind", kind, KINDS)
        accesses, element = self._run.pieces.reaching(self._region(array))
        picked = self._sites(kind)[accesses.site]
        pairs = np.stack([accesses.thread[picked], element[picked]])
        threads, _ = np.unique(pairs, axis=1)
        _, elements = np.unique(threads, return_counts=True)
        return int(elements.max(initial=0))

    def writers(self, array: str) -> tuple[Array, Array]:
        """For each element of an array the block, and the thread in it, that wrote it
        last; -1 where none did.
        """
        region = self._region(array)
        accesses, element = self._run.accesses.reaching(region)
        last = np.full(region.array.shape, -1)
        last.flat[element[accesses.write]] = accesses.thread[accesses.write]
        size = math.prod(self.block)
        return last // size, np.where(last < 0, -1, last % size)

    def paths(self, warp: int = 0) -> tuple[list[str], Array]:
        """The branches (`if` and `while`) that a warp reaches, and what each lane does
        there.

        Returns labels, "line 7: i < n", in the order in which they first came up, and
        an array (branches, 32) of 1 for taken, 0 for not taken, -1 for lanes that do
        not reach it.
        """
        sites = self._run.sites
        events = self._branches_of(warp)
        keys, row = np.unique(events.key, return_inverse=True)
        ways = np.full((len(keys), WARP), -1)
        ways[row, events.lane] = events.value
        first = np.full(len(keys), np.iinfo("i8").max)
        np.minimum.at(first, row, events.at)
        order = np.argsort(first)
        branching = [sites[int(key) % SITES] for key in keys[order]]
        labels = [f"line {site.line}: {site.text}" for site in branching]
        return labels, ways[order]

    def _branches_of(self, warp: int) -> Events:
        """What the lanes of a warp logged at branches; ValueError for a warp that
        didn't run.
        """
        warp = whole("warp", warp, least=0, most=self.warps - 1)
        if warp // -(-math.prod(self.block) // WARP) not in self._blocks.numbers:
            raise ValueError(f"Warp {warp:,} is of a block that was not run.")
        events = self._run.others
        at_branch = self._sites("branch")[events.site]
        branches_of_warp: Events = events.only(at_branch & (events.warp == warp))
        return branches_of_warp

    def warp_steps(self, warp: int = 0) -> tuple[WarpStep, ...]:
        """What a warp does, a branch (`if` or a turn of `while`) or a request to memory
        at a time, in an order that agrees with that of each lane.

        ValueError for a warp that the launch doesn't have, or whose block wasn't run.
        """
        events = self._branches_of(warp)
        steps: list[WarpStep] = []
        visits = []
        for key in np.unique(events.key):
            here = events.only(events.key == key)
            site = self._run.sites[int(key) % SITES]
            ways = np.full(WARP, -1)
            ways[here.lane] = here.value
            lanes = tuple(ways.tolist())
            steps.append(WarpStep("branch", site.line, site.text, lanes, None))
            visits.append(_visits(here))
        for number in np.flatnonzero(self._requests.warp == warp).tolist():
            request = self._request(number)
            site = self._run.sites[self._requests.site[number]]
            ways = np.full(WARP, -1)
            ways[request.lanes] = 1
            lanes = tuple(ways.tolist())
            steps.append(WarpStep(site.kind, site.line, site.text, lanes, request))
            visits.append(_visits(self._accesses_of(number)))
        return tuple(steps[number] for number in in_program_order(visits))

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
        # columns without a value say nothing here
        columns = [i for i, _ in enumerate(headings) if any(row[i] for row in rows)]
        return Table(
            tuple(tuple(row[i] for i in columns) for row in rows),
            tuple(headings[i] for i in columns),
            "By array",
        )

    def table(self) -> Table:
        """What a cell shows."""
        n = math.prod(self.grid)
        blocks = f"{n:,} blocks" if n > 1 else f"{n:,} block"
        title = f"{self.kernel}: {blocks} of {math.prod(self.block):,} threads"
        by_array = self.by_array()
        rows: tuple[tuple[str, ...], ...] = by_array.rows or (("no access to memory",),)
        waits = (
            f"{self.shuffles:,} shuffles of warps, {self.barriers:,} barriers of blocks"
        )
        counted = f"{self.flop:,} FLOP, {self.integer_operations:,} integer operations"
        if not self._run.program.is_typed:
            counted = "operations are not counted, since numba's simulator has no types"
        limits = LIMITS
        if self.schedules != 1:
            limits += f"; the kernel ran in {self.schedules} orders of its threads"
        notes = (
            *(map(str, self.findings) if self.findings else ("No mistakes found.",)),
            *map(str, self.notes),
            f"{self.branches()}; {waits}; {counted}.",
            f"({limits}.)",
        )
        headings = by_array.headings if by_array.rows else ()
        return Table(rows, headings, title, notes)


def _visits(events: Events) -> list[tuple[int, int]]:
    """Pairs (lane, time) of a warp's events."""
    return list(zip(events.lane.tolist(), events.at.tolist(), strict=True))


def _sampling(settings: LaunchSettings) -> tuple[Finding, ...]:
    """A note that only some blocks ran; nothing where all did."""
    blocks = settings.blocks
    if blocks.all_run:
        return ()
    words = (
        f"{len(blocks.numbers):,} of the {blocks.of_grid:,} blocks were run: counts are"
        " scaled to the whole grid, all else speaks of the blocks that ran."
    )
    return (Finding("sampled", 0, words, mistake=False),)


def _check_name(what: str, name: str, names: Collection[str]) -> None:
    if text(what, name) not in names:
        raise ValueError(
            f"There is no {what} {brief_repr(name)} in this trace. The nearest:"
            f" {', '.join(nearest(name, names))}."
        )
