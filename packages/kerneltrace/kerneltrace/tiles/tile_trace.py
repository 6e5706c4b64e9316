"""`tiles.trace`: what a Triton kernel asks of memory and arithmetic, tile by tile, and
its mistakes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpufacts import Device, find
from kerneltrace._arguments import positive, whole
from kerneltrace._tables import Shown, ShownAsTable, Table
from kerneltrace._text import brief_repr, nearest
from kerneltrace._units import format_bytes
from kerneltrace.judge.estimate import Estimate, rates
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.occupancy import Occupancy
from kerneltrace.machine.events import SECTOR_BYTES
from kerneltrace.machine.grid import MAX_GRID, WARP, as_dim3
from kerneltrace.machine.traced_memory import Array
from kerneltrace.tiles.binding import python_of
from kerneltrace.tiles.compiling import TileCode, occupancy
from kerneltrace.tiles.running import KINDS, Access, TileArray, TileRun, arguments
from kerneltrace.tiles.traffic import Traffic, assumed, moved, time


@dataclass(frozen=True, repr=False)
class TileCounts(Shown):
    """Sums over the accesses of programs, which are one tl.load, tl.store or atomic
    each.
    """

    elements: int
    bytes: int
    """Asked for, by all programs together."""
    distinct_bytes: int
    """Each byte of an array once."""
    sectors: int
    """Of 32 bytes: the distinct ones of each access."""

    @property
    def reuse(self) -> float:
        """How often a byte is asked for on average; NaN where none is."""
        return self.bytes / self.distinct_bytes if self.distinct_bytes else math.nan

    def __str__(self) -> str:
        return (
            f"{self.elements:,} elements, {format_bytes(self.bytes)} asked for,"
            f" {format_bytes(self.distinct_bytes)} distinct: {self.reuse:.3g} times"
            f" each; {self.sectors:,} sectors"
        )


class TileTrace(ShownAsTable):
    """What the programs of a launch asked for, and the mistakes found."""

    def __init__(
        self, run: TileRun, ran: int, completed: bool, options: tuple[int, int]
    ) -> None:
        self._run = run
        self.grid = run.grid
        self.kernel = run.name
        self._options = options
        self.programs = run.programs
        self.traced = ran
        """Programs that ran; fewer than `programs` where trace was asked for fewer."""
        written = {array.name for array in run.arrays if array.seen - {"load"}}
        self.findings = tuple(
            Finding(kind, line, words, n, program, array)
            for (kind, line, array), (n, words, program) in run.mistakes.items()
            # an array that is only read may be NaN
            if kind != "unset" or array in written
        )
        self.ok = not self.findings
        """Whether no mistake was found."""
        self.notes = (
            (*self._unwritten(), *self._spread())
            if completed and ran == run.programs
            else ()
        )
        self.flop = run.flop
        self.dot_flop = dict(run.dot_flop)

    @property
    def flop_per_byte(self) -> float:
        """FLOP, those of tl.dot too, for each byte asked for."""
        return (self.flop + sum(self.dot_flop.values())) / max(self.count().bytes, 1)

    @cached_property
    def _rows(self) -> Array:
        """The accesses, with the columns of Access."""
        return np.array(self._run.rows, np.int64).reshape(-1, 4)

    def _column(self, field: str) -> Array:
        """One of the fields of Access for all accesses."""
        column: Array = self._rows[:, Access._fields.index(field)]
        return column

    @cached_property
    def _sectors(self) -> list[Array]:
        """The distinct sectors that each access touches, by number
        within their array.
        """
        sectors = []
        for row, at in zip(self._run.rows, self._run.places, strict=True):
            size = self._run.arrays[row.array].array.itemsize
            sectors.append(np.unique(at.astype(int) * size // SECTOR_BYTES))
        return sectors

    def _picked(
        self, array: str = "", line: int = 0, kind: str = "", program: int | None = None
    ) -> Array:
        """Numbers of the accesses that these arguments leave."""
        mask = np.ones(len(self._rows), bool)
        if kind:
            mask &= self._column("kind") == _index("kind", kind, KINDS)
        if array:
            names = tuple(array.name for array in self._run.arrays)
            mask &= self._column("array") == _index("array", array, names)
        if line:
            mask &= self._column("line") == line
        if program is not None:
            mask &= self._column("program") == program
        return np.flatnonzero(mask)

    def count(self, array: str = "", line: int = 0, kind: str = "") -> TileCounts:
        """Counts of the accesses to one array, of one line, of one kind (load, store or
        atomic).
        """
        picked = self._picked(array, line, kind)
        elements = n_bytes = distinct = 0
        for number, tile_array in enumerate(self._run.arrays):
            of_array = self._column("array")[picked] == number
            hits = self._hits(tile_array, picked[of_array])
            size = tile_array.array.itemsize
            elements += int(hits.sum())
            n_bytes += int(hits.sum()) * size
            distinct += int((hits > 0).sum()) * size
        sectors = sum(len(self._sectors[i]) for i in picked)
        return TileCounts(elements, n_bytes, distinct, sectors)

    def _hits(self, array: TileArray, picked: Array) -> Array:
        """How often each place of an array was touched by some accesses."""
        places = [self._run.places[i] for i in picked]
        return np.bincount(
            np.concatenate(places) if places else [], minlength=array.span
        )

    def touched(self, array: str, program: Any = None, kind: str = "load") -> Array:
        """How often each element of an array was touched: by one program, given by its
        place or number, or by all.
        """
        if isinstance(program, tuple):
            x, y, z = (*program, 0, 0)[:3]
            program = x + self.grid.x * (y + self.grid.y * z)
        picked = self._picked(array, 0, kind, program)
        tile_array = next(
            candidate for candidate in self._run.arrays if candidate.name == array
        )
        return tile_array.shaped(self._hits(tile_array, picked)).copy()

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
        program = self._column("program")
        step = np.arange(len(program)) - np.searchsorted(program, program)
        wave = program // self._at_a_time(fit, chip)
        accesses = [
            (row.array, KINDS[row.kind], sectors)
            for row, sectors in zip(self._run.rows, self._sectors, strict=True)
        ]
        sizes = [array.span * array.array.itemsize for array in self._run.arrays]
        order = np.stack([wave, step, program], 1)  # (accesses, 3)
        return fit, notes, moved(accesses, sizes, chip, order)

    def _at_a_time(self, fit: Occupancy, chip: Device) -> int:
        """The programs that the whole GPU has room for."""
        return fit.blocks_per_sm * (chip.sms or 0)

    def traffic(self, device: str | Device, code: TileCode | None = None) -> Traffic:
        """Bytes through L2 and DRAM on a GPU, in the order in which its programs start.

        As many programs run at a time as fit, by `code` or by what is assumed without
        it.
        """
        chip = find(device)
        fit, _, bytes_moved = self._replayed(chip, code)
        array_of_access = self._column("array")
        by_array = [
            {
                array.name: int(column[array_of_access == i].sum())
                for i, array in enumerate(self._run.arrays)
            }
            for column in bytes_moved.T
        ]
        asked, read, written = by_array
        at_a_time = min(self._at_a_time(fit, chip), self.programs)
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

        With a `grid` its programs are taken to do what those that ran did on average,
        and `programs` of trace lets few of a large grid run. `longer` is how many times
        as many turns the loops make that load and compute: 8 for 64 turns of which 8
        were traced. UnknownDevice for a GPU whose rates are unknown.
        """
        chip = find(device)
        fit, notes, bytes_moved = self._replayed(chip, code)
        programs = self.programs
        if grid is not None:
            programs = math.prod(as_dim3("grid", grid, MAX_GRID))
        per_traced = programs / self.traced
        turns = per_traced * positive("longer", longer)
        # What a program comes to more than once is in a loop.
        _, place, times = np.unique(
            self._rows[:, :2], axis=0, return_inverse=True, return_counts=True
        )
        weights = np.where(times[place] > 1, turns, per_traced)  # (accesses,)
        l2_bytes, read_bytes, write_bytes = weights @ bytes_moved
        demands = {
            "L2 cache": l2_bytes,
            "memory": read_bytes + write_bytes,
            "arithmetic": turns * (self.flop - self._run.special),
            "special": turns * self._run.special,
        }
        dots = {dtype: flop * turns for dtype, flop in self.dot_flop.items()}
        return time(self.kernel, chip, demands, dots, fit, programs, notes)

    def _unwritten(self) -> Iterator[Finding]:
        """Arrays that programs store to, but not to all elements."""
        for array in self._run.arrays:
            name = array.name
            unstored = np.argwhere(self.touched(name, kind="store") == 0)
            if len(unstored) and len(self._picked(name, kind="store")):
                first = ", ".join(map(str, unstored[0]))
                words = (
                    f"{len(unstored):,} of the {array.array.size:,} elements of {name}"
                    f" are never stored, the first is {name}[{first}]."
                )
                yield Finding("unwritten", 0, words, array=name, mistake=False)

    def _spread(self) -> Iterator[Finding]:
        """Accesses of which at least half of each sector goes unused: neighbors in a
        tile aren't in memory.
        """
        for line, kind, number in np.unique(self._rows[:, 1:], axis=0).tolist():
            name = self._run.arrays[number].name
            counts = self.count(name, line, KINDS[kind])
            n = len(self._picked(name, line, KINDS[kind]))
            times = counts.sectors * SECTOR_BYTES / max(counts.bytes, 1)
            if counts.elements >= WARP * n and times >= 2:
                words = (
                    f"each {KINDS[kind]} of {name} moves {times:.3g} times the bytes it"
                    " asks for: its elements lie apart."
                )
                yield Finding("spread", line, words, array=name, mistake=False)

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
        return Table(tuple(map(self._row, self._run.arrays)), headings, title, notes)

    def _row(self, array: TileArray) -> tuple[str, ...]:
        loads = self.count(array.name, kind="load")
        stores = self.count(array.name, kind="store")
        total = self.count(array.name)
        shape = " x ".join(map(str, array.array.shape))
        reuse = used = ""
        if total.bytes:
            reuse = f"{total.reuse:.3g}"
            used = f"{total.bytes / max(total.sectors * SECTOR_BYTES, 1):.0%}"
        return (
            array.name,
            f"{array.dtype} {shape}",
            format_bytes(loads.bytes) if loads.bytes else "",
            format_bytes(stores.bytes) if stores.bytes else "",
            format_bytes(total.distinct_bytes),
            reuse,
            used,
        )


def trace(
    kernel: Any,
    grid: Any,
    *args: Any,
    num_warps: int = 4,
    num_stages: int = 3,
    programs: int | None = None,
    **named: Any,
) -> TileTrace:
    """Run a kernel under @triton.jit on NumPy arrays or torch tensors, and return what
    it asks for and its mistakes.

    `grid` is a number, a tuple of up to three, or a function of the constants;
    arguments follow as at a launch, tl.constexpr by name; those of @triton.autotune
    default to its first configuration. Results land in the arrays. With `programs` only
    so many run, the first ones.
    """
    function = python_of(kernel)
    configurations = getattr(kernel, "configs", [])
    if configurations:
        named = {**configurations[0].kwargs, **named}
    if not inspect.isfunction(function):
        raise TypeError(
            f"Expected a function under @triton.jit, got {brief_repr(kernel)}."
        )
    if callable(grid):
        grid = grid(named)
    run = TileRun(function, as_dim3("grid", grid, MAX_GRID))
    ran = run.programs
    if programs is not None:
        ran = min(whole("programs", programs, least=1), ran)
    completed = run.all(function, arguments(run, function, args, named), ran)
    return TileTrace(run, ran, completed, (num_warps, num_stages))


def _index(parameter: str, name: str, known: tuple[str, ...]) -> int:
    """The number of a name among those that are known, or ValueError."""
    if name not in known:
        raise ValueError(
            f"There is no {parameter} {brief_repr(name)}; known are"
            f" {', '.join(nearest(name, known))}."
        )
    return known.index(name)
