"""Calculate how many blocks of a kernel fit on one SM, and which resource runs out
first.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneltrace._arguments import as_capability, whole
from kerneltrace._tables import Shown
from kerneltrace._text import brief_repr
from kerneltrace.machine.grid import WARP

CAPABILITIES = Path(__file__).parents[1] / "data" / "compute_capabilities.csv"
MAX_BLOCK = 1024  # threads
MAX_REGISTERS = 255  # a thread
_DEFAULT_SHARED_BYTES = 48 * 1024  # a block; more needs an opt-in at the launch


@dataclass(frozen=True)
class Limits:
    """The resources of one SM of a compute capability, and the granularity at which it
    allocates them.

    Registers are allocated to warps, `register_granularity` at a time, from the
    register file of the warp's sub-partition. Shared memory is allocated to blocks,
    `reserved_shared_bytes_per_block` more than asked for. `shared_bytes_per_block` is
    the most that a block may opt in to; without that it is 48 KiB.

    The last six are rates a clock: results of a kind, lanes of load and store units,
    bytes. 0 is unknown.
    """

    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int
    shared_granularity_bytes: int
    register_granularity: int
    sub_partitions: int
    float32_per_clock: int
    float64_per_clock: int
    special_per_clock: int
    load_store_lanes: int
    shared_bytes_per_clock: int
    l2_bytes_per_clock: int


@dataclass(frozen=True, repr=False)
class Occupancy(Shown):
    """Blocks and warps that one SM holds at the same time.

    `allows` holds, for each resource, the blocks that would fit if it alone were the
    limit; `limited_by` the smallest.
    """

    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    allows: Mapping[str, int]
    compute_capability: tuple[int, int]

    @property
    def fraction(self) -> float:
        """Resident warps divided by the most that the SM can hold, 0 to 1."""
        return self.warps_per_sm / self.max_warps_per_sm

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that run out first, of "warps", "blocks", "registers" and
        "shared memory".
        """
        return tuple(
            name for name, blocks in self.allows.items() if blocks == self.blocks_per_sm
        )

    def __str__(self) -> str:
        allowed = ", ".join(f"{name} {blocks}" for name, blocks in self.allows.items())
        major, minor = self.compute_capability
        blocks = "block" if self.blocks_per_sm == 1 else "blocks"
        return (
            f"{self.fraction:.0%} occupancy: {self.blocks_per_sm} {blocks},"
            f" {self.warps_per_sm} of {self.max_warps_per_sm} warps an SM"
            f" (compute capability {major}.{minor})."
            f" Limited by {' and '.join(self.limited_by)}."
            f" Blocks allowed by each: {allowed}."
        )


@functools.cache
def capabilities() -> dict[tuple[int, int], Limits]:
    """The limits of every compute capability in data/compute_capabilities.csv."""
    with CAPABILITIES.open(newline="", encoding="utf-8") as file:
        return dict(map(_limits_of_row, csv.DictReader(file)))


def _limits_of_row(row: Mapping[str, str]) -> tuple[tuple[int, int], Limits]:
    major, minor = row["compute_capability"].split(".")
    return (int(major), int(minor)), Limits(
        *(int(row[field.name]) for field in dataclasses.fields(Limits))
    )


def limits(compute_capability: tuple[int, int]) -> Limits:
    """The limits of one compute capability such as (8, 0); ValueError with the known
    ones for another.
    """
    pair = as_capability(compute_capability)
    table = capabilities()
    if pair not in table:
        raise ValueError(
            f"Expected a compute capability out of {', '.join(map(str, table))}; got"
            f" {pair}."
        )
    return table[pair]


def occupancy(
    block: int | tuple[int, ...],
    *,
    registers: int,
    shared_bytes: int = 0,
    compute_capability: tuple[int, int],
) -> Occupancy:
    """Count the blocks of `block` threads (a number, or up to three extents) that one
    SM holds at the same time.

    `registers` a thread, `shared_bytes` a block, static and dynamic together.
    ValueError for what can't be launched: over 1,024 threads, 255 registers a thread,
    the registers of an SM, or the shared memory of a block. Source: cuda_occupancy.h of
    CUDA 13.0, with shared memory carved out at its largest and one barrier a block;
    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """
    sm = limits(compute_capability)
    threads = _threads(block)
    registers = whole("registers", registers, least=1)
    shared_bytes = whole(
        "shared_bytes", shared_bytes, least=0, advice="It is in bytes."
    )
    _check(threads, registers, shared_bytes, sm)
    warps = math.ceil(threads / WARP)
    registers_a_warp = _round_up(registers * WARP, sm.register_granularity)
    # A launch is checked as if registers came from all sub-partitions alike, so it
    # counts warps in groups of four.
    needed = registers_a_warp * _round_up(warps, sm.sub_partitions)
    if needed > sm.registers_per_sm:
        raise ValueError(
            f"A block of {threads} threads with {registers} registers each takes"
            f" {needed:,} registers, and an SM has {sm.registers_per_sm:,}: the launch"
            " fails. Use fewer threads, or compile with a register cap."
        )
    registers_of_partition = sm.registers_per_sm // sm.sub_partitions
    warps_of_partition = registers_of_partition // registers_a_warp
    shared = _round_up(
        shared_bytes + sm.reserved_shared_bytes_per_block, sm.shared_granularity_bytes
    )
    allows = {
        "warps": sm.max_warps_per_sm // warps,
        "blocks": sm.max_blocks_per_sm,
        "registers": warps_of_partition * sm.sub_partitions // warps,
    }
    if shared_bytes:
        allows["shared memory"] = sm.shared_bytes_per_sm // shared
    blocks = min(allows.values())
    major, minor = compute_capability
    return Occupancy(
        blocks, blocks * warps, sm.max_warps_per_sm, allows, (major, minor)
    )


def _threads(block: Any) -> int:
    if not isinstance(block, tuple | list):
        return whole("block", block, least=1)
    if not 1 <= len(block) <= 3:
        raise ValueError(
            f"Expected a block of one to three extents, got {brief_repr(block)}."
        )
    return math.prod(
        whole(f"block[{i}]", extent, least=1) for i, extent in enumerate(block)
    )


def _check(threads: int, registers: int, shared_bytes: int, sm: Limits) -> None:
    """Raise ValueError for what can't be launched even on an idle SM."""
    if threads > MAX_BLOCK:
        raise ValueError(
            f"Expected a block of at most {MAX_BLOCK:,} threads, got {threads:,}."
            " Launch more blocks."
        )
    if registers > MAX_REGISTERS:
        raise ValueError(
            f"Expected at most {MAX_REGISTERS} registers a thread, got {registers}: no"
            " compiler gives more."
        )
    if shared_bytes > sm.shared_bytes_per_block:
        raise ValueError(
            f"Expected at most {sm.shared_bytes_per_block:,} B of shared memory a block"
            f" ({_DEFAULT_SHARED_BYTES:,} B unless the launch opts in), got"
            f" {shared_bytes:,} B. Use a smaller tile."
        )


def _round_up(value: int, step: int) -> int:
    """`value` rounded up to a multiple of `step`."""
    return -(-value // step) * step
