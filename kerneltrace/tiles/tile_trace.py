"""`tiles.trace`: what a Triton kernel asks of memory and arithmetic, tile by tile, and
its mistakes.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kerneltrace.arguments import brief_repr, nearest, positive, whole
from kerneltrace.devices import Device, named
from kerneltrace.errors import BadArgument, KernelError
from kerneltrace.judge.estimate import Estimate, rates
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.occupancy import Occupancy
from kerneltrace.log.events import SECTOR_BYTES
from kerneltrace.log.grid import MAX_GRID, WARP, as_dim3
from kerneltrace.log.traced_memory import Array
from kerneltrace.tables import Shown, ShownAsTable, Table
from kerneltrace.tiles.binding import python_of
from kerneltrace.tiles.compiling import TileCode, occupancy
from kerneltrace.tiles.running import KINDS, Run, TileArray, arguments
from kerneltrace.tiles.traffic import Traffic, assumed, moved, time
from kerneltrace.units import format_bytes


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
        self, run: Run, ran: int, done: bool, options: tuple[int, int]
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
            for (kind, line, array), (n, words, program) in run.found.items()
            # an array that is only read may be NaN
            if kind != "unset" or array in written
        )
        self.ok = not self.findings
        """Whether no mistake was found."""
        self.notes = (
            (*self._unwritten(), *self._spread())
            if done and ran == run.programs
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
        return np.array(self._run.rows, np.int64).reshape(-1, 4)

    @cached_property
    def _sectors(self) -> list[Array]:
        """The distinct sectors that each access touches, by number
        within their array.
        """
        sizes = [self._run.arrays[row[3]].array.itemsize for row in self._run.rows]
        return [
            np.unique(at.astype(int) * n // SECTOR_BYTES)
            for at, n in zip(self._run.places, sizes, strict=True)
        ]

    def _picked(
        self, array: str = "", line: int = 0, kind: str = "", program: int | None = None
    ) -> Array:
        """Numbers of the accesses that these arguments leave."""
        names = tuple(one.name for one in self._run.arrays)
        mask = np.ones(len(self._rows), bool)
        for column, what, given, known in (
            (2, "kind", kind, KINDS),
            (3, "array", array, names),
        ):
            if given and given not in known:
                raise KernelError(
                    f"There is no {what} {brief_repr(given)}; known are"
                    f" {', '.join(nearest(given, known))}."
                )
            mask &= not given or self._rows[:, column] == known.index(given)
        mask &= not line or self._rows[:, 1] == line
        mask &= program is None or self._rows[:, 0] == program
        return np.flatnonzero(mask)

    def count(self, array: str = "", line: int = 0, kind: str = "") -> TileCounts:
        """Counts of the accesses to one array, of one line, of one kind (load, store or
        atomic).
        """
        picked = self._picked(array, line, kind)
        elements = n_bytes = distinct = 0
        for number, one in enumerate(self._run.arrays):
            hits = self._hits(one, picked[self._rows[picked, 3] == number])
            size = one.array.itemsize
            elements = elements + int(hits.sum())
            n_bytes = n_bytes + int(hits.sum()) * size
            distinct += int((hits > 0).sum()) * size
        return TileCounts(
            elements, n_bytes, distinct, sum(len(self._sectors[i]) for i in picked)
        )

    def _hits(self, one: TileArray, picked: Array) -> Array:
        """How often each place of an array was touched by some accesses."""
        places = [self._run.places[i] for i in picked]
        return np.bincount(np.concatenate(places) if places else [], minlength=one.span)

    def touched(self, array: str, program: Any = None, kind: str = "load") -> Array:
        """How often each element of an array was touched: by one program, given by its
        place or number, or by all.
        """
        if isinstance(program, tuple):
            at = (*program, 0, 0)[:3]
            program = at[0] + self.grid.x * (at[1] + self.grid.y * at[2])
        picked = self._picked(array, 0, kind, program)
        one = next(one for one in self._run.arrays if one.name == array)
        return one.shaped(self._hits(one, picked)).copy()

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
        program = self._rows[:, 0]
        step = np.arange(len(program)) - np.searchsorted(program, program)
        accesses = [
            (row[3], KINDS[row[2]], self._sectors[i])
            for i, row in enumerate(self._run.rows)
        ]
        sizes = [one.span * one.array.itemsize for one in self._run.arrays]
        waves = np.stack(
            [program // (fit.blocks_per_sm * (chip.sms or 0)), step, program], 1
        )
        return fit, notes, moved(accesses, sizes, chip, waves)

    def traffic(self, device: str | Device, code: TileCode | None = None) -> Traffic:
        """Bytes through L2 and DRAM on a GPU of the catalogue, in the order in which
        its programs start.

        As many programs run at a time as fit, by `code` or by what is assumed without
        it.
        """
        chip = named(device)
        fit, _, found = self._replayed(chip, code)
        by_array = [
            {
                one.name: int(column[self._rows[:, 3] == i].sum())
                for i, one in enumerate(self._run.arrays)
            }
            for column in found.T
        ]
        return Traffic(
            chip.name,
            min(fit.blocks_per_sm * (chip.sms or 0), self.programs),
            *by_array,
        )

    def estimate(
        self,
        device: str | Device,
        *,
        grid: Any = None,
        longer: float = 1.0,
        code: TileCode | None = None,
    ) -> Estimate:
        """Calculate the time on a GPU of the catalogue: of DRAM, L2, tensor cores and
        other arithmetic the longest.

        With a `grid` its programs are taken to do what those that ran did on average,
        and `programs` of trace lets few of a large grid run. `longer` is how many times
        as many turns the loops make that load and compute: 8 for 64 turns of which 8
        were traced. UnknownDevice for a GPU whose rates are unknown.
        """
        chip = named(device)
        fit, notes, found = self._replayed(chip, code)
        programs = (
            self.programs
            if grid is None
            else math.prod(as_dim3("grid", grid, MAX_GRID))
        )
        each = programs / self.traced
        turns = each * positive("longer", longer, BadArgument)
        # What a program comes to more than once is in a loop.
        _, same, times = np.unique(
            self._rows[:, :2], axis=0, return_inverse=True, return_counts=True
        )
        n_bytes = np.where(times[same] > 1, turns, each) @ found
        asked = {"L2 cache": n_bytes[0], "memory": n_bytes[1] + n_bytes[2]}
        asked |= {
            "arithmetic": turns * (self.flop - self._run.special),
            "special": turns * self._run.special,
        }
        dots = {dtype: flop * turns for dtype, flop in self.dot_flop.items()}
        return time(self.kernel, chip, asked, dots, fit, programs, notes)

    def _unwritten(self) -> Any:
        """Arrays that programs store to, but not to all elements."""
        for one in self._run.arrays:
            left = np.argwhere(self.touched(one.name, kind="store") == 0)
            if len(left) and len(self._picked(one.name, kind="store")):
                words = (
                    f"{len(left):,} of the {one.array.size:,} elements of {one.name}"
                    " are never stored, the first is"
                )
                first = ", ".join(map(str, left[0]))
                yield Finding(
                    "unwritten",
                    0,
                    f"{words} {one.name}[{first}].",
                    array=one.name,
                    mistake=False,
                )

    def _spread(self) -> Any:
        """Accesses of which at least half of each sector goes unused: neighbours in a
        tile aren't in memory.
        """
        for line, kind, number in np.unique(self._rows[:, 1:], axis=0).tolist():
            name = self._run.arrays[number].name
            kind = KINDS[kind]
            counts = self.count(name, line, kind)
            n = len(self._picked(name, line, kind))
            times = counts.sectors * SECTOR_BYTES / max(counts.bytes, 1)
            if counts.elements >= WARP * n and times >= 2:
                words = (
                    f"each {kind} of {name} moves {times:.3g} times the bytes it asks"
                    " for: its elements lie apart."
                )
                yield Finding("spread", line, words, array=name, mistake=False)

    def table(self) -> Table:
        """What a cell shows."""
        rows = []
        for one in self._run.arrays:
            loads, stores, both = (
                self.count(one.name, kind=kind) for kind in ("load", "store", "")
            )
            used = (
                f"{both.bytes / max(both.sectors * SECTOR_BYTES, 1):.0%}"
                if both.bytes
                else ""
            )
            asked = [
                format_bytes(counts.bytes) if counts.bytes else ""
                for counts in (loads, stores)
            ]
            shape = " x ".join(map(str, one.array.shape))
            rows.append(
                (
                    one.name,
                    f"{one.dtype} {shape}",
                    *asked,
                    format_bytes(both.distinct_bytes),
                    f"{both.reuse:.3g}" if both.bytes else "",
                    used,
                )
            )
        dots = "".join(
            f", {flop:,} FLOP of tl.dot on {dtype}"
            for dtype, flop in self.dot_flop.items()
        )
        some = f" of which {self.traced:,} ran" if self.traced < self.programs else ""
        title = f"{self.kernel}: {self.programs:,} programs{some}"
        work = f"{self.flop:,} FLOP{dots}; {self.flop_per_byte:.3g} FLOP a byte."
        found = (
            *(map(str, self.findings) if self.findings else ("No mistakes found.",)),
            *map(str, self.notes),
        )
        headings = (
            "array",
            "elements",
            "loads",
            "stores",
            "distinct",
            "times each",
            "asked/moved",
        )
        return Table(tuple(rows), headings, title, (*found, work))


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
    tuned = getattr(kernel, "configs", [])
    named = {**(tuned[0].kwargs if tuned else {}), **named}
    if not inspect.isfunction(function):
        raise KernelError(
            f"Expected a function under @triton.jit, got {brief_repr(kernel)}."
        )
    if callable(grid):
        grid = grid(named)
    run = Run(function, as_dim3("grid", grid, MAX_GRID))
    ran = (
        run.programs
        if programs is None
        else min(whole("programs", programs, KernelError, least=1), run.programs)
    )
    done = run.all(function, arguments(run, function, args, named), ran)
    return TileTrace(run, ran, done, (num_warps, num_stages))
