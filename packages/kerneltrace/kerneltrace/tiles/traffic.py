"""What programs of tiles move through a GPU's L2 cache, and the time that this and
their arithmetic would take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufacts import Device
from kerneltrace._tables import ShownAsTable, Table
from kerneltrace._units import format_bytes
from kerneltrace.errors import UnknownDevice
from kerneltrace.judge.estimate import (
    LAUNCH_S,
    MEMORY_SHARE,
    SCALAR_DOTS,
    TRITON_TENSOR,
    Estimate,
    capability,
    rates,
)
from kerneltrace.judge.occupancy import MAX_REGISTERS, Occupancy, occupancy
from kerneltrace.machine.events import SECTOR_BYTES
from kerneltrace.machine.grid import WARP, Dim3
from kerneltrace.machine.traced_memory import Array
from kerneltrace.tiles.arrays import Pages

_SM_REGISTERS = 65_536
_OTHER_REGISTERS = 40
"""Registers a thread besides those of the largest tile that it keeps, where no compiler
says.
"""
TENSOR_SHARE = 0.8
"""Of the data sheet's rate of tensor cores: the median of what torch.matmul reaches in
bfloat16 on seven GPUs of NVIDIA (trainplan/data/published/matmul_efficiency.csv, 0.73
to 0.87).
None of the published times of Triton kernels is in it.
"""
SPAN = (0.73, 1.49)
TESTED = ("8.0", "9.0")
"""Published over calculated time of all rows of kerneltrace_published/tile_times.csv,
and their compute capabilities. Nothing else is fitted to these rows, and none is left
out of the span.
"""
_IN_TURNS = (
    "Tensor cores and other arithmetic wait for each other: the SM has one program at a"
    " time."
)
_EVEN = 1.1
_LONGEST = (
    "SMs wait for the longest program, which has {times:.1f} times the operations of a"
    " mean one."
)
_NOT_KNOWN = (
    "Not known: what L1 and shared memory keep, waits between a program's steps, the"
    " clock under load."
)


@dataclass(frozen=True, repr=False)
class Traffic(ShownAsTable):
    """Bytes by array that programs ask of L2, and that L2 moves from and to memory
    (DRAM).
    """

    device: str
    at_a_time: int
    """Programs that run together."""
    l2_bytes: Mapping[str, int]
    dram_read_bytes: Mapping[str, int]
    dram_write_bytes: Mapping[str, int]
    device_assumed: str = ""
    """Why that GPU stands for a short name such as "H100"."""

    def table(self) -> Table:
        """A row for each array."""
        columns = self.l2_bytes, self.dram_read_bytes, self.dram_write_bytes
        rows = tuple(
            (name, *(format_bytes(column[name]) for column in columns))
            for name in self.l2_bytes
        )
        title = (
            f"Traffic on {self.device}, {self.at_a_time:,} programs at a time,"
            " calculated"
        )
        note = (
            "An L2 cache that evicts what was used longest ago (LRU), in sectors of 32"
            " bytes; empty at first."
        )
        notes = (self.device_assumed, note) if self.device_assumed else (note,)
        return Table(rows, ("array", "L2", "DRAM reads", "DRAM writes"), title, notes)


def room(device: Device, warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """The programs that an SM holds at a time."""
    needs = {"registers": registers, "shared_bytes": shared_bytes}
    return occupancy(warps * WARP, **needs, compute_capability=capability(device))


def assumed(
    device: Device, widest: int, staged: int, warps: int, stages: int
) -> tuple[Occupancy, str]:
    """The programs that an SM holds without a compiler's word, and what is assumed for
    it.

    `widest` and `staged` are bytes of the largest tile, and of the operands of the
    largest tl.dot.
    """
    threads = warps * WARP
    # Loops are pipelined by asynchronous copies, which 8.0 was the first to have.
    shared = staged * (stages if capability(device) >= TRITON_TENSOR else 1)
    registers = min(
        widest // 4 // threads + _OTHER_REGISTERS,
        MAX_REGISTERS,
        _SM_REGISTERS // threads,
    )
    words = (
        f"{registers} registers a thread and {shared:,} B of shared memory a program"
        " are assumed: pass code=tiles.compile(...) for the compiler's."
    )
    return room(device, warps, registers, shared), words


def moved(
    accesses: list[tuple[int, str, Array]],
    sizes: list[int],
    device: Device,
    waves: Array,
) -> Array:
    """Bytes asked of L2, read from DRAM and written to it, by access: shape (accesses,
    3).

    `accesses` are array, kind and sectors of each access, `waves` its wave of programs
    and its number within its program: programs of a wave take turns. L2 evicts the
    access whose sectors were used longest ago.
    """
    capacity = int((device.l2_bytes or 0) // SECTOR_BYTES)
    total = 0
    out = np.zeros((len(accesses), 3), np.int64)
    # by sector the turn of its last use, from 1, and whether it waits to be written
    used = [Pages(size // SECTOR_BYTES + 2) for size in sizes]
    dirty = [Pages(size // SECTOR_BYTES + 2, bool) for size in sizes]
    # sectors by the turn of their last use
    resident = np.zeros(len(accesses) + 2, np.int64)
    oldest = 1
    for turn, number in enumerate(np.lexsort(waves.T[::-1]), 1):
        array, kind, sectors = accesses[number]
        last = used[array].read(sectors)
        is_hit = last >= oldest
        np.subtract.at(resident, last[is_hit], 1)
        misses = int((~is_hit).sum())
        dirty[array].write(sectors[~is_hit], 0)
        read = 0 if kind == "store" else misses
        written = 0
        if kind != "load":
            written = int((dirty[array].read(sectors) == 0).sum())
            dirty[array].write(sectors, 1)
        out[number] = len(sectors), read, written
        used[array].write(sectors, turn)
        resident[turn] = len(sectors)
        total += misses
        while total > capacity and oldest < turn:
            total -= resident[oldest]
            oldest += 1
    return out * SECTOR_BYTES


@dataclass(frozen=True)
class Asked:
    """What a launch asks of a GPU."""

    kernel: str
    device: Device
    fit: Occupancy
    notes: tuple[str, ...]
    """What is assumed for it."""
    grid: Dim3
    bytes_moved: Array
    """Through L2, from DRAM and to it; shape (accesses, 3)."""
    operations: float
    """But those of tl.dot and special ones."""
    special: float
    """Operations of the special function units."""
    dots: Mapping[str, float]
    """FLOP of tl.dot by type."""
    uneven: float = 1.0
    """Operations of the program that has most, over those of a mean one."""

    @property
    def slots(self) -> int:
        """The programs that the whole GPU has room for."""
        return self.fit.blocks_per_sm * (self.device.sms or 0)

    def estimate(self, shares: Any = 1.0, programs: int = 0) -> Estimate:
        """The time with shares of the accesses' bytes, filling the GPU as so many
        programs do: the part that takes longest, and the launch.

        Of one program tensor cores and other arithmetic wait for each other, so that
        only programs that share an SM use both at once. UnknownDevice where a type's
        rate is unknown.
        """
        programs = programs or math.prod(self.grid)
        device = self.device
        fit = self.fit
        sms = device.sms or 0
        parts, notes = self._parts(shares, programs)
        at_once = min(fit.blocks_per_sm, math.ceil(programs / sms))
        in_turns = (parts["tensor cores"] + parts["arithmetic"]) / at_once
        if in_turns > max(parts.values()):
            notes = (*notes, _IN_TURNS)
        if device.assumed:
            notes = (device.assumed, *notes)
        warps = programs * fit.warps_per_sm / fit.blocks_per_sm
        filled = min(fit.fraction, warps / (sms * fit.max_warps_per_sm))
        untested: tuple[str, ...] = ()
        if device.compute_capability not in TESTED:
            of_chip = f"of compute capability {device.compute_capability}"
            untested = (f"Untested: no published time {of_chip} was compared.",)
        return Estimate(
            self.kernel,
            device.name,
            max(*parts.values(), in_turns) + LAUNCH_S,
            {part: busy for part, busy in parts.items() if busy},
            filled,
            (_NOT_KNOWN, *notes),
            untested,
            SPAN,
        )

    def _parts(
        self, shares: Any, programs: int
    ) -> tuple[dict[str, float], tuple[str, ...]]:
        """Seconds by what the launch asks of, and notes."""
        device = self.device
        sm = rates(device)
        sms = device.sms or 0
        clocks = sms * (device.boost_hz or 0.0)
        bandwidth = MEMORY_SHARE * (device.bandwidth_bytes_per_s or 0)
        tensor_s, scalar_clocks = dot_times(device, self.dots)
        busiest_clocks = max(
            scalar_clocks + self.operations / sm.float32_per_clock,
            self.special / sm.special_per_clock,
        )
        # SMs for each one that has a program: the others load nothing.
        spare = sms / min(sms, programs)
        # SMs that have no program left idle while the last wave runs.
        idle = spare
        if programs > self.slots:
            idle = math.ceil(programs / self.slots) * self.slots / programs
        # The longest program runs on one SM, however many the others have.
        longest = self.uneven * sms / programs
        idle = max(idle, longest)
        l2_bytes, read_bytes, write_bytes = (shares * self.bytes_moved).sum(0).tolist()
        parts = {
            "memory": (read_bytes + write_bytes) / bandwidth,
            "L2 cache": spare * l2_bytes / (sm.l2_bytes_per_clock * clocks),
            "tensor cores": idle * tensor_s,
            "arithmetic": idle / clocks * busiest_clocks,
            "launch": LAUNCH_S,
        }
        notes = (SCALAR_DOTS, *self.notes) if scalar_clocks else self.notes
        if idle == longest and self.uneven > _EVEN:
            notes = (*notes, _LONGEST.format(times=self.uneven))
        return parts, notes


def dot_times(device: Device, dots: Mapping[str, float]) -> tuple[float, float]:
    """Seconds of the tensor cores for FLOP of tl.dot by type, and clocks of an SM where
    Triton makes scalar arithmetic of them.

    Triton 3.7 compiles those on float16, bfloat16 and float32 to fma.f32 there, and
    none on integers.
    """
    sm = rates(device)
    is_scalar = capability(device) < TRITON_TENSOR
    scalar_rates = dict.fromkeys(
        ("float16", "bfloat16", "float32", "tf32"), 2 * sm.float32_per_clock
    )
    scalar_rates["float64"] = 2 * sm.float64_per_clock  # FLOP a clock
    by_type = scalar_rates if is_scalar else device.peaks
    unknown = [dtype for dtype in dots if not by_type.get(dtype)]
    if unknown and is_scalar:
        raise UnknownDevice(
            f"Triton compiles no tl.dot on {unknown[0]} for {device.name}, whose"
            " compute capability is below 8.0. Take another GPU or dtype."
        )
    if unknown:
        raise UnknownDevice(
            f"{device.name} has no known rate for tl.dot on {unknown[0]}. Take another"
            " GPU or dtype."
        )
    busy = sum(flop / by_type[dtype] for dtype, flop in dots.items())
    return (0.0, busy) if is_scalar else (busy / TENSOR_SHARE, 0.0)
