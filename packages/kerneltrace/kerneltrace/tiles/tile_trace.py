"""`tiles.trace`: what a Triton kernel asks of memory and arithmetic, tile by tile, and
its mistakes.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufacts import Device, find
from kerneltrace._arguments import positive
from kerneltrace._tables import Shown, ShownAsTable, Table
from kerneltrace._text import brief_repr, nearest
from kerneltrace._units import format_bytes
from kerneltrace.errors import KernelError
from kerneltrace.judge.estimate import Estimate, rates
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.occupancy import Occupancy
from kerneltrace.judge.review import Review
from kerneltrace.machine.events import SECTOR_BYTES
from kerneltrace.machine.grid import MAX_GRID, as_dim3
from kerneltrace.machine.traced_memory import Array
from kerneltrace.proof.programs import program_proof
from kerneltrace.proof.verdict import Proof
from kerneltrace.ptx.triton import configured, python_of
from kerneltrace.tiles import sampling
from kerneltrace.tiles.arrays import Pages, TileArray
from kerneltrace.tiles.compiling import TileCode, occupancy
from kerneltrace.tiles.running import KINDS, Access, TileRun, arguments
from kerneltrace.tiles.sampling import Chosen
from kerneltrace.tiles.tensors import RUN, Tile
from kerneltrace.tiles.tile_review import Group, is_apart, reviewed
from kerneltrace.tiles.traffic import Asked, Traffic, assumed, moved

_OF_GROUP = ["line", "kind", "array"]
_AT_ONCE = 2**20
"""Places that are looked at together."""


@dataclass(frozen=True, repr=False)
class TileCounts(Shown):
    """Sums over the accesses of programs, which are one tl.load, tl.store or atomic
    each; where only a sample ran, for the whole grid.
    """

    elements: int
    bytes: int
    """Asked for, by all programs together."""
    distinct_bytes: int
    """Each byte of an array once, of the programs that ran."""
    sectors: int
    """Of 32 bytes: the distinct ones of each access."""
    reuse: float
    """How often the programs that ran ask for a byte on average; NaN where they ask for
    none.
    """

    def __str__(self) -> str:
        return (
            f"{self.elements:,} elements, {format_bytes(self.bytes)} asked for,"
            f" {format_bytes(self.distinct_bytes)} distinct: {self.reuse:.3g} times"
            f" each; {self.sectors:,} sectors"
        )


class TileTrace(ShownAsTable):
    """What the programs of a launch asked for, and the mistakes found."""

    def __init__(
        self,
        run: TileRun,
        chosen: Chosen,
        completed: bool,
        options: tuple[int, int],
        called: tuple[Any, dict[str, Any]],
    ) -> None:
        self._run = run
        self._called = called
        self._rows = np.array(run.rows, [(field, "i8") for field in Access._fields])
        at = np.searchsorted(chosen.numbers, self._rows["program"])
        self._weights = chosen.weights[at]
        """How many accesses of the whole grid each access stands for."""
        lanes = np.array([len(each) for each in run.patterns], np.int64)
        self._lanes = lanes[self._rows["pattern"]]
        """How many elements each access touches."""
        sizes = np.array([each.array.itemsize for each in run.arrays], np.int64)
        self._bytes = self._lanes * sizes[self._rows["array"]]
        """The bytes that each access asks for."""
        self._sectors = list(self._touched_sectors())
        self._n_sectors = np.array([len(each) for each in self._sectors], np.int64)
        self._chosen = chosen
        self.grid = run.grid
        self.kernel = run.name
        self._options = options
        self.programs = run.programs
        self.traced = len(chosen.numbers)
        """Programs that ran; fewer than `programs` where trace was asked for fewer, or
        where all would have taken too long.
        """
        all_ran = self.traced == run.programs
        written = {array.name for array in run.arrays if array.last.keys() - {"load"}}
        self.findings = tuple(
            Finding(kind, line, words, n, program, array)
            for (kind, line, array), (n, words, program) in run.mistakes.items()
            # an array that is only read may be NaN, and what did not run may write
            if kind != "unset" or (all_ran and array in written)
        )
        self.ok = not self.findings
        """Whether no mistake was found."""
        self.notes = (
            (*self._unwritten(), *self._spread()) if completed and all_ran else ()
        )
        whole_work = _summed_work(run, chosen)
        self.flop = whole_work.pop("flop", 0)
        self.special = whole_work.pop("special", 0)
        """Operations among these for special function units: exp, log, sqrt, sin."""
        self.dot_flop = {dtype: n for dtype, n in whole_work.items() if n}

    @property
    def flop_per_byte(self) -> float:
        """FLOP, those of tl.dot too, for each byte asked for."""
        asked = self._asked(self._picked())
        return (self.flop + sum(self.dot_flop.values())) / max(asked, 1)

    def _touched_sectors(self) -> Iterator[Array]:
        """The distinct sectors that each access touches, by number within their
        array.
        """
        by_pattern: dict[tuple[int, int, int], Array] = {}
        for row in self._run.rows:
            size = self._run.arrays[row.array].array.itemsize
            first, start = divmod(row.base * size, SECTOR_BYTES)
            key = row.pattern, start, size
            if key not in by_pattern:
                offsets = start + self._run.patterns[row.pattern] * size
                by_pattern[key] = np.unique(offsets // SECTOR_BYTES)
            yield first + by_pattern[key]

    def _picked(
        self, array: str = "", line: int = 0, kind: str = "", program: int | None = None
    ) -> Array:
        """Numbers of the accesses that these arguments leave."""
        mask = np.ones(len(self._rows), bool)
        if kind:
            mask &= self._rows["kind"] == _index("kind", kind, KINDS)
        if array:
            names = tuple(array.name for array in self._run.arrays)
            mask &= self._rows["array"] == _index("array", array, names)
        if line:
            mask &= self._rows["line"] == line
        if program is not None:
            mask &= self._rows["program"] == program
        return np.flatnonzero(mask)

    def count(self, array: str = "", line: int = 0, kind: str = "") -> TileCounts:
        """Counts of the accesses to one array, of one line, of one kind (load, store or
        atomic).
        """
        picked = self._picked(array, line, kind)
        weights = self._weights[picked]
        numbers = self._rows["array"][picked]
        distinct = 0
        for number in np.unique(numbers).tolist():
            tile_array = self._run.arrays[number]
            touched = self._touched(tile_array, picked[numbers == number])
            distinct += touched.count() * tile_array.array.itemsize
        n_bytes = self._bytes[picked]
        return TileCounts(
            elements=round(float(weights @ self._lanes[picked])),
            bytes=self._asked(picked),
            distinct_bytes=distinct,
            sectors=round(float(weights @ self._n_sectors[picked])),
            reuse=int(n_bytes.sum()) / distinct if distinct else math.nan,
        )

    def _asked(self, picked: Array) -> int:
        """The bytes that accesses ask for, in the whole grid."""
        return round(float(self._weights[picked] @ self._bytes[picked]))

    def _places(self, picked: Array) -> Iterator[tuple[Array, Array]]:
        """Places that accesses touch, some accesses at a time, and how often the same
        places are touched; shapes (accesses, lanes) and (accesses,).
        """
        keys = self._rows[["pattern", "base"]][picked]
        keys, times = np.unique(keys, return_counts=True)
        patterns = keys["pattern"]
        for of_pattern in np.split(
            np.arange(len(keys)), np.flatnonzero(np.diff(patterns)) + 1
        ):
            if not len(of_pattern):
                continue
            offsets = self._run.patterns[patterns[of_pattern[0]]]
            step = max(_AT_ONCE // max(len(offsets), 1), 1)
            for start in range(0, len(of_pattern), step):
                some = of_pattern[start : start + step]
                yield keys["base"][some, None] + offsets, times[some]

    def _touched(self, array: TileArray, picked: Array) -> Pages:
        """Which places of an array some accesses touch."""
        touched = Pages(array.span, bool)
        for places, _ in self._places(picked):
            touched.write(places, 1)
        return touched

    def touched(self, array: str, program: Any = None, kind: str = "load") -> Array:
        """How often each element of an array was touched: by one program, given by its
        place or number, or by all.
        """
        if program is not None:
            program = sampling.number_of(program, self.grid)
        picked = self._picked(array, 0, kind, program)
        names = [each.name for each in self._run.arrays]
        tile_array = self._run.arrays[names.index(array)]
        hits = np.zeros(tile_array.span, np.int32)
        for places, times in self._places(picked):
            np.add.at(hits, places, times[:, None].astype(np.int32))
        return tile_array.shaped(hits).copy()

    def _replayed(
        self, chip: Device, code: TileCode | None
    ) -> tuple[Occupancy, tuple[str, ...], Array]:
        """The programs that run at a time, notes, and what `moved` gives for them."""
        rates(chip)  # or UnknownDevice
        notes: tuple[str, ...] = ()
        if code is not None:
            fit = occupancy(code, chip)
        else:
            fit, words = assumed(
                chip, self._run.widest, self._run.staged, *self._options
            )
            notes = (words,)
        at_a_time = fit.blocks_per_sm * (chip.sms or 0)
        together = self._chosen.together
        if 1 < together < min(at_a_time, self.programs):
            notes += (
                f"L2 is simulated for the first {together:,} programs, of which"
                f" {at_a_time:,} run at a time: they may share more than that.",
            )
        program = self._rows["program"]
        picked = np.flatnonzero((program < together) | (together < 2))
        step = np.arange(len(program)) - np.searchsorted(program, program)
        order = np.stack([program // at_a_time, step, program], 1)[picked]
        accesses = [
            (array, KINDS[kind], self._sectors[i])
            for i, (array, kind) in zip(
                picked, self._rows[["array", "kind"]][picked].tolist(), strict=True
            )
        ]
        sizes = [array.span * array.array.itemsize for array in self._run.arrays]
        bytes_moved = moved(accesses, sizes, chip, order)
        return fit, notes, self._for_all(picked, bytes_moved)

    def _for_all(self, picked: Array, bytes_moved: Array) -> Array:
        """What `moved` gives for the accesses that are picked, and for the others the
        shares of those of the same line, array and kind.
        """
        if len(picked) == len(self._rows):
            return bytes_moved
        asked = self._n_sectors * SECTOR_BYTES
        is_load = self._rows["kind"] == KINDS.index("load")
        is_store = self._rows["kind"] == KINDS.index("store")
        out = np.stack([asked, asked * ~is_store, asked * ~is_load], 1).astype(float)
        _, group = np.unique(self._rows[_OF_GROUP], return_inverse=True)
        total = np.bincount(group[picked], asked[picked], group.max() + 1)
        for column in (1, 2):
            shares = np.bincount(
                group[picked], bytes_moved[:, column], group.max() + 1
            ) / np.maximum(total, 1)
            simulated = total[group] > 0
            out[simulated, column] = (asked * shares[group])[simulated]
        out[picked] = bytes_moved
        return out

    def traffic(self, device: str | Device, code: TileCode | None = None) -> Traffic:
        """Bytes through L2 and DRAM on a GPU, in the order in which its programs start.

        As many programs run at a time as fit, by `code` or by what is assumed without
        it.
        """
        chip = find(device)
        asks = self._asks(chip, None, 1.0, code)
        by_array = [
            {
                array.name: round(column[self._rows["array"] == i].sum())
                for i, array in enumerate(self._run.arrays)
            }
            for column in asks.bytes_moved.T
        ]
        asked, read, written = by_array
        at_a_time = min(asks.slots, self.programs)
        return Traffic(chip.name, at_a_time, asked, read, written, chip.assumed)

    def estimate(
        self,
        device: str | Device,
        *,
        grid: Any = None,
        longer: float = 1.0,
        code: TileCode | None = None,
    ) -> Estimate:
        """Calculate the time on a GPU: the longest of DRAM, L2, tensor cores and other
        arithmetic.

        With a `grid` its programs are taken to do what those of the trace's did on
        average. `longer` is how many times as many turns the loops make that load and
        compute: 8 for 64 turns of which 8 were traced. UnknownDevice for a GPU whose
        rates are unknown.
        """
        return self._asks(find(device), grid, longer, code).estimate()

    def review(
        self,
        device: str | Device,
        *,
        grid: Any = None,
        longer: float = 1.0,
        code: TileCode | None = None,
    ) -> Review:
        """What wastes time on a GPU, line by line, each with a calculated cost and the
        metric of Nsight Compute that would confirm it; arguments as for `estimate`.
        """
        asks = self._asks(find(device), grid, longer, code)
        groups = list(self._groups())
        return reviewed(asks, groups, self._run.file, not self.ok)

    def _asks(
        self, chip: Device, grid: Any, longer: float, code: TileCode | None
    ) -> Asked:
        """What a launch asks of a GPU."""
        fit, notes, bytes_moved = self._replayed(chip, code)
        full_grid = self.grid if grid is None else as_dim3("grid", grid, MAX_GRID)
        per_traced = math.prod(full_grid) / self.programs
        turns = per_traced * positive("longer", longer)
        # What a program comes to more than once is in a loop.
        _, place, times = np.unique(
            self._rows[["program", "line"]], return_inverse=True, return_counts=True
        )
        weights = np.where(times[place] > 1, turns, per_traced)  # (accesses,)
        return Asked(
            self.kernel,
            chip,
            fit,
            notes,
            full_grid,
            bytes_moved * (weights * self._weights)[:, None],
            turns * (self.flop - self.special),
            turns * self.special,
            {dtype: flop * turns for dtype, flop in self.dot_flop.items()},
            _uneven(self._run, self._chosen),
        )

    def _groups(self) -> Iterator[Group]:
        """The accesses by line, kind and array."""
        for line, kind, number in np.unique(self._rows[_OF_GROUP]).tolist():
            name = self._run.arrays[number].name
            accesses = self._picked(name, line, KINDS[kind])
            counts = self.count(name, line, KINDS[kind])
            n = max(round(self._weights[accesses].sum()), 1)
            yield Group(
                line,
                KINDS[kind],
                name,
                accesses,
                counts.elements // n,
                counts.sectors * SECTOR_BYTES / max(counts.bytes, 1),
                counts.reuse,
            )

    def proof(self) -> Proof:
        """Whether the kernel has no race between its programs, for any data and any
        grid, and by which argument; else why only this run was looked at.

        Lanes of one program aren't compared. Offsets have to be sums of products of
        program_id, arange, numbers and turns of loops, with // and %.
        """
        races = [str(finding) for finding in self.findings if finding.kind == "race"]
        if races:
            return Proof(False, f"This run has a race. {races[0]}")
        overlapping = [
            (one.name, other.name)
            for one, other in itertools.combinations(self._run.arrays, 2)
            if np.may_share_memory(one.array, other.array)
        ]
        function, values = self._called
        numbers = {
            name: value.data.item() if isinstance(value, Tile) else value
            for name, value in values.items()
        }
        arrays = [array.name for array in self._run.arrays]
        return program_proof(function, numbers, arrays, overlapping, self.grid)

    def _unwritten(self) -> Iterator[Finding]:
        """Arrays that programs store to, but not to all elements."""
        for array in self._run.arrays:
            name = array.name
            picked = self._picked(name, kind="store")
            if not len(picked):
                continue
            stored = self._touched(array, picked)
            missing = array.first_without(stored)
            if missing:
                size = array.array.size
                words = (
                    f"{size - stored.count():,} of the {size:,} elements of {name}"
                    f" are never stored, the first is {missing}."
                )
                yield Finding("unwritten", 0, words, array=name, mistake=False)

    def _spread(self) -> Iterator[Finding]:
        """Accesses of which at least half of each sector goes unused: neighbors in a
        tile aren't in memory.
        """
        for group in self._groups():
            if is_apart(group):
                words = (
                    f"each {group.kind} of {group.array} moves {group.spread:.3g} times"
                    " the bytes it asks for: its elements lie apart."
                )
                yield Finding(
                    "spread", group.line, words, array=group.array, mistake=False
                )

    def table(self) -> Table:
        """What a cell shows."""
        headings = (
            "array",
            "elements",
            "loads",
            "stores",
            "distinct",
            "times each",
            "asked/moved",
        )
        title = f"{self.kernel}: {self.programs:,} programs"
        if self.traced < self.programs:
            title += f" of which {self.traced:,} ran"
        work = f"{self.flop:,} FLOP"
        for dtype, flop in self.dot_flop.items():
            work += f", {flop:,} FLOP of tl.dot on {dtype}"
        work += f"; {self.flop_per_byte:.3g} FLOP a byte."
        findings = [str(finding) for finding in self.findings]
        notes = (*(findings or ["No mistakes found."]), *map(str, self.notes), work)
        if self.traced < self.programs:
            notes += (self._sampled(),)
        return Table(tuple(map(self._row, self._run.arrays)), headings, title, notes)

    def _sampled(self) -> str:
        """Which programs ran, in words."""
        return (
            f"{self.traced:,} of the {self.programs:,} programs were run,"
            f" {self._chosen.together:,} of them from the first on: counts are scaled"
            " to the whole grid, all else speaks of the programs that ran."
        )

    def _row(self, array: TileArray) -> tuple[str, ...]:
        loads = self._asked(self._picked(array.name, kind="load"))
        stores = self._asked(self._picked(array.name, kind="store"))
        total = self.count(array.name)
        shape = " x ".join(map(str, array.array.shape))
        reuse = used = ""
        if total.bytes:
            reuse = f"{total.reuse:.3g}"
            used = f"{total.bytes / max(total.sectors * SECTOR_BYTES, 1):.0%}"
        return (
            array.name,
            f"{array.dtype} {shape}",
            format_bytes(loads) if loads else "",
            format_bytes(stores) if stores else "",
            format_bytes(total.distinct_bytes),
            reuse,
            used,
        )


def trace(
    kernel: Any,
    grid: Any,
    *args: Any,
    num_warps: int = 0,
    num_stages: int = 0,
    programs: Any = None,
    **named: Any,
) -> TileTrace:
    """Run a kernel under @triton.jit on NumPy arrays or torch tensors, and return what
    it asks for and its mistakes.

    `grid` is a number, a tuple of up to three, or a function of the arguments by name;
    arguments follow as at a launch, tl.constexpr by name. What is not passed is of
    @triton.autotune's first configuration or @triton.heuristics; `num_warps` and
    `num_stages` are else 4 and 3. Results land in the arrays.

    `programs` says which programs run: "all", a number for so many from the first on,
    or a list of places such as [(0, 0), (3, 1)]. By default all of them do, unless the
    first makes so many elements that this takes too long: then the first ones run, for
    what they share in L2, and some at the edges and inside of the grid, whose counts
    are multiplied to those of the whole grid.
    """
    function = python_of(kernel)
    if not inspect.isfunction(function):
        raise TypeError(
            f"Expected a function under @triton.jit, got {brief_repr(kernel)}."
        )
    named, configuration = configured(kernel, args, named)
    num_warps = num_warps or getattr(configuration, "num_warps", 4)
    num_stages = num_stages or getattr(configuration, "num_stages", 3)
    if callable(grid):
        parameters = inspect.signature(function).parameters
        grid = grid({**dict(zip(parameters, args, strict=False)), **named})
    run = TileRun(function, as_dim3("grid", grid, MAX_GRID))
    options = num_warps, num_stages
    before = RUN.set(run)
    try:
        values = arguments(run, function, args, named)
        chosen, completed = _run_chosen(run, function, values, programs)
    finally:
        RUN.reset(before)
    return TileTrace(run, chosen, completed, options, (function, values))


def _run_chosen(
    run: TileRun, function: Any, values: dict[str, Any], programs: Any
) -> tuple[Chosen, bool]:
    """Run the programs that are asked for, or as many as can be afforded; False where a
    mistake ended them early.
    """
    chosen = sampling.asked_for(programs, run.grid)
    completed = True
    if chosen is None:
        completed = run.all(function, values, [0])
        chosen = sampling.affordable(run.grid, run.elements)
        # later programs may make more elements than the first did
        start = itertools.takewhile(
            lambda _: run.elements < 2 * sampling.BUDGET, range(1, chosen.together)
        )
        completed = completed and run.all(function, values, start)
        if completed and len(run.works) < chosen.together:
            chosen = sampling.affordable(run.grid, run.elements, len(run.works))
    rest = [number for number in chosen.numbers.tolist() if number not in run.works]
    completed = completed and run.all(function, values, rest)
    if run.line_of_end is None or run.program < chosen.together:
        return chosen, completed
    if programs is not None:
        raise KernelError(
            f"{run.where()} waits in line {run.line_of_end} for a program that did not"
            ' run: pass programs="all".'
        )
    run.keep(chosen.together)
    return sampling.first(run.grid, chosen.together), True


def _summed_work(run: TileRun, chosen: Chosen) -> dict[str, int]:
    """The operations of the whole grid by kind."""
    work: Counter[str] = Counter()
    for number, weight in zip(
        chosen.numbers.tolist(), chosen.weights.tolist(), strict=True
    ):
        for kind, n in run.works.get(number, {}).items():
            work[kind] += weight * n
    return {kind: round(n) for kind, n in work.items()}


def _uneven(run: TileRun, chosen: Chosen) -> float:
    """FLOP of the program that has most over those of a mean one: of tl.dot, or all
    where there is none. 1 without any.
    """
    works = [run.works.get(number, Counter()) for number in chosen.numbers.tolist()]
    of_dots = [work.total() - work["flop"] - work["special"] for work in works]
    flop = of_dots if any(of_dots) else [work["flop"] for work in works]
    mean = float(np.average(flop, weights=chosen.weights))
    return max(flop) / mean if mean else 1.0


def _index(parameter: str, name: str, known: tuple[str, ...]) -> int:
    """The number of a name among those that are known, or ValueError."""
    if name not in known:
        raise ValueError(
            f"There is no {parameter} {brief_repr(name)}; known are"
            f" {', '.join(nearest(name, known))}."
        )
    return known.index(name)
