"""Calculate the time that a traced kernel would take on a GPU, by parts, and what
limits it.

The blocks that an SM holds together are customers in a closed queueing network: each
needs its SM and its share of memory, and waits for latencies in between; other blocks
use what one leaves idle. Mean value analysis (Reiser and Lavenberg 1980) gives their
throughput, so that occupancy hides latency as far as it does, and no more. The warps of
a block use arithmetic, load and store units and the L2 cache side by side. They start
together, wait together for what they share in L1 and at barriers, and leave room for
the next block when the last of them is done.

Rates are in data/compute_capabilities.csv. Constants that were fitted name the rows of
kerneltrace_published/kernel_times.csv that they were fitted to: never one that is held
out there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpufacts import Device, find
from kerneltrace._tables import ShownAsTable, Table
from kerneltrace._units import format_seconds
from kerneltrace.errors import UnknownDevice
from kerneltrace.judge.demands import Demands
from kerneltrace.judge.footprints import Footprint
from kerneltrace.judge.occupancy import (
    MAX_REGISTERS,
    Limits,
    Occupancy,
    limits,
    occupancy,
)
from kerneltrace.machine.events import Access
from kerneltrace.machine.grid import WARP, Dim3

L1_CLOCKS = 40
L2_CLOCKS = 295
MEMORY_CLOCKS = 690
"""Latencies: medians of what github.com/markdewing/AI_kernels measured on seven GPUs,
V100 to B200.
"""
L2_WAYS = 16
"""Lines of a set of the L2 cache (Jia et al. 2018, arXiv:1804.06826)."""
SHARED_CLOCKS = 30
"""Latency of shared memory: 29 to 30 on A100, H100 and RTX 4090 (Luo et al. 2024,
arXiv:2402.13499).
"""
MEMORY_SHARE = 0.91
"""Of the data sheet's bandwidth: BabelStream's triad on V100 and H200
(data/published/memcpy_bandwidth.csv).
"""
SCATTERED_SHARE = 0.67
"""The same for memory that is touched in short pieces, most of them on a DRAM page of
their own. Fitted to transposes on H100 (padded, 2 and more a thread), RTX A6000 (tiles
of 16) and RTX 2080 Ti (float64).
"""
LAUNCH_S = 1e-6
"""From one short kernel to the next, without a graph ("Getting Started with CUDA
Graphs", developer.nvidia.com).
"""
REGISTERS = 32
"""Registers a thread if the caller does not say, besides those of local arrays; 64
warps of an SM have as many.
"""
ARRAY_REGISTERS = 12
"""More of them in a kernel with local arrays, which are unrolled: "matmul, 8 a thread"
compiles to 44 (Boehm) and 54 (Mao), "matmul, 8 x 8 a thread" to 128 (Boehm) for compute
capability 8.6.
"""
SHARED = ("memory",)
"""What all SMs share."""
FLOAT32_SHARE = 0.6
"""Of the data sheet's float32 rate where it takes every issue slot (128 results a
clock): cuBLAS has 0.60 of it on an RTX A6000, 0.69 on an RTX 3090 and 0.58 on an RTX
4090, in the sources of "matmul"; but 0.98 on an A100, which has half as many units
(github.com/yencal/gpu-gemm).
"""
BARRIER_CLOCKS = 80
WARP_CLOCKS = 40
"""Of a barrier, and of a warp to start before the block's first one. Fitted, with
FIRST_TOUCH of demands.py, to all rows that are not held out; sums in shared memory (RTX
A6000, RTX 3080) and padded transposes (H100) decide.
"""
DEPENDENT_CLOCKS = 4
"""From an operation to one that needs its result: 4 on Volta (Jia et al. 2018,
arXiv:1804.06826).
"""
TRITON_TENSOR = (8, 0)
"""The compute capability from which on Triton uses tensor cores: below, it makes fused
multiply-adds of float32 out of tl.dot (triton-lang/triton pull request 5066).
"""
SCALAR_DOTS = (
    "Triton has no tensor cores below compute capability 8.0: tl.dot is scalar"
    " arithmetic there."
)
CLASSES = {
    "memory": "memory",
    "L2 cache": "memory",
    "latency": "latency",
    "launch": "latency",
    "atomics": "atomics",
}
"""The class of a limit; all others are arithmetic."""
INTERVALS = {
    "arithmetic": (0.7, 1.19),
    "atomics": (0.73, 1.76),
    "latency": (0.55, 1.52),
    "memory": (0.92, 1.22),
}
"""Published over calculated time, by class: what contains 90 % of the rows that are
left out source by source (kerneltrace_published/kernel_times.py calculates it from
those that are not held out).
"""
TESTED_CAPABILITIES = ("6.0", "7.5", "8.0", "8.6", "8.9", "9.0")
TESTED_S = 1.8e-4
"""Compute capabilities of those rows, and about the shortest of their times."""
_UNKNOWN = (
    "Not known: how L1 replaces lines, how far the compiler unrolls loops and"
    " reorders loads, the clock under load."
)


@dataclass(frozen=True, repr=False)
class Estimate(ShownAsTable):
    """A calculated time in seconds, with the interval that published times support, and
    its parts.

    `parts` are the seconds that each resource of an SM is busy, or that nothing is, for
    latency; they overlap, so that `seconds` is less than their sum. `assumed` says in
    sentences what the trace left open, `untested` why no published time is comparable:
    it is empty where some are. `occupancy` is of the SMs' room for warps, 0 to 1, in
    this launch.
    """

    kernel: str
    device: str
    seconds: float
    parts: Mapping[str, float]
    occupancy: float
    assumed: tuple[str, ...]
    untested: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    """Published over calculated time between which the interval lies; None for that of
    the limit's class.
    """

    @property
    def limit(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def interval_s(self) -> tuple[float, float]:
        """Seconds between which the time is expected, as often as INTERVALS says, or
        within `span`.
        """
        low, high = self.span or INTERVALS[CLASSES.get(self.limit, "arithmetic")]
        return low * self.seconds, high * self.seconds

    def table(self) -> Table:
        """What a cell shows."""
        low, high = map(format_seconds, self.interval_s)
        rows = tuple(
            (part, format_seconds(busy_s), "limits" if part == self.limit else "")
            for part, busy_s in self.parts.items()
        )
        time = f"{format_seconds(self.seconds)} ({low} to {high})"
        title = f"{self.kernel} on {self.device}: {time}, calculated"
        notes = f"{100 * self.occupancy:.3g}% occupancy.", *self.untested, *self.assumed
        return Table(rows, ("if alone", "time", ""), title, notes)


def estimate(
    asks: Demands,
    device: str | Device,
    *,
    grid: Dim3,
    registers: int | None,
    warm: bool = False,
) -> Estimate:
    """The time of a launch of `grid` blocks on a device; UnknownDevice for one whose
    rates are unknown.

    Without `registers` a thread, 32 and those that local arrays need are assumed.
    `warm` launches find in the L2 cache what the one before left there.
    """
    chip = find(device)
    sm = rates(chip)
    assumed = _assumed(asks, chip, grid, registers)
    if has_scalar_dots(asks, chip):
        assumed = (SCALAR_DOTS, *assumed)
    if registers is None:
        registers = _registers(asks)
    room = room_for(asks, chip, registers)
    sms = chip.sms or 0
    hz = chip.boost_hz or 0.0
    bandwidth = chip.bandwidth_bytes_per_s or 0.0
    total = math.prod(grid)
    active = min(sms, total)
    together = min(room.blocks_per_sm * sms, total)
    loaded, moved = _memory_bytes(asks, grid, together, chip.l2_bytes or 0.0, warm)
    memory_per_clock = MEMORY_SHARE * bandwidth / active / hz
    services = _with_tensor_cores(asks, chip, memory_per_clock, moved)
    latency = _latency(asks, loaded)
    stations = _side_by_side(services, asks.warps)
    full_waves, rest = divmod(total, room.blocks_per_sm * sms)
    last = -(-rest // sms)  # blocks of an SM in the last, incomplete wave
    clocks = 0.0
    for waves, blocks in ((full_waves, room.blocks_per_sm), (1, last)):
        if waves and blocks:
            clocks += waves * blocks / throughput(stations, latency, blocks, active)
    blocks_an_sm = -(-total // sms)
    side_by_side = min(room.blocks_per_sm, blocks_an_sm)
    parts = {name: blocks_an_sm * busy / hz for name, busy in services.items()}
    parts |= {
        "latency": blocks_an_sm * latency / side_by_side / hz,
        "atomics": asks.hottest * total / hz,
        "launch": LAUNCH_S,
    }
    seconds = max(clocks / hz, parts["atomics"]) + LAUNCH_S
    room_for_warps = sms * sm.max_warps_per_sm
    return Estimate(
        asks.kernel,
        chip.name,
        seconds,
        parts={part: busy_s for part, busy_s in parts.items() if busy_s},
        occupancy=min(room.fraction, total * asks.warps / room_for_warps),
        assumed=assumed,
        untested=_untested(chip, seconds, total),
    )


def room_for(asks: Demands, chip: Device, registers: int) -> Occupancy:
    """The blocks that an SM of a device holds at the same time."""
    return occupancy(
        asks.threads,
        registers=registers,
        shared_bytes=asks.shared_bytes,
        compute_capability=capability(chip),
    )


def has_scalar_dots(asks: Demands, chip: Device) -> bool:
    """Whether the kernel multiplies matrices without the tensor cores of a device,
    since Triton compiles it.
    """
    return asks.dots > 0 and capability(chip) < TRITON_TENSOR


def _registers(asks: Demands) -> int:
    """Registers a thread, where nobody says how many."""
    if not asks.local_bytes:
        return REGISTERS
    return min(REGISTERS + ARRAY_REGISTERS + asks.local_bytes // 4, MAX_REGISTERS)


def _assumed(
    asks: Demands, chip: Device, grid: Dim3, registers: int | None
) -> tuple[str, ...]:
    """What the trace, and the caller, left open, in sentences."""
    sentences = [_UNKNOWN]
    if chip.assumed:
        sentences.insert(0, chip.assumed)
    if registers is None:
        sentences.append(
            f"{_registers(asks)} registers a thread are assumed; pass registers if the"
            " compiler says otherwise."
        )
    alone = [
        axis
        for axis, traced, full in zip("xyz", asks.rows, grid, strict=True)
        if traced == 1 and full > 1
    ]
    if alone:
        sentences.append(
            f"Blocks are taken to share no data along {', '.join(alone)}: trace two or"
            " more there."
        )
    return tuple(sentences)


def _untested(chip: Device, seconds: float, blocks: int) -> tuple[str, ...]:
    """Why no published time that was compared is like this one."""
    reasons = []
    if str(chip.compute_capability) not in TESTED_CAPABILITIES:
        reasons.append(f"of compute capability {chip.compute_capability}")
    if seconds < TESTED_S:
        reasons.append(f"below {format_seconds(TESTED_S)}")
    if blocks < (chip.sms or 0):
        reasons.append("with fewer blocks than SMs")
    return tuple(
        f"Untested: no published time {reason} was compared." for reason in reasons
    )


def _latency(asks: Demands, loaded: float) -> float:
    """Clocks that a block waits; `loaded` are the bytes that it brings from memory."""
    missed = asks.l1_miss_bytes / max(asks.load_bytes, 1.0)
    far = min(loaded / max(asks.l1_miss_bytes, 1.0), 1.0)
    below_l1 = L2_CLOCKS - L1_CLOCKS + far * (MEMORY_CLOCKS - L2_CLOCKS)
    global_clocks = L1_CLOCKS + missed * below_l1
    clocks = (
        asks.global_waits * global_clocks
        + asks.near_waits * SHARED_CLOCKS
        + _dependent_clocks(asks)
    )
    if asks.barriers:
        clocks += asks.barriers * BARRIER_CLOCKS + asks.warps * WARP_CLOCKS
    return clocks


def _dependent_clocks(asks: Demands) -> float:
    """Clocks in which a warp waits for results of its own arithmetic: each number in a
    local array is a chain.
    """
    return DEPENDENT_CLOCKS * asks.arithmetic / asks.warps / (1 + asks.local_bytes // 4)


def _with_tensor_cores(
    asks: Demands, chip: Device, memory_per_clock: float, moved: float
) -> dict[str, float]:
    """As _services, with the tensor cores of a device or what Triton does without."""
    sm = rates(chip)
    if has_scalar_dots(asks, chip):
        # They wait for nothing: a thread adds to many numbers in turn.
        scalar = replace(
            asks,
            instructions=asks.instructions + asks.dots,
            arithmetic=asks.arithmetic + asks.dots,
        )
        return _services(scalar, sm, memory_per_clock, moved)
    services = _services(asks, sm, memory_per_clock, moved)
    clocks = 0.0
    if asks.tensor:
        clocks += tensor_clocks(asks.tensor, "float16", chip)
    if asks.tensor_double:
        clocks += _double_clocks(asks.tensor_double, sm, chip)
    if clocks:
        services["tensor cores"] = clocks
    return services


def _services(
    asks: Demands, sm: Limits, memory_per_clock: float, moved: float
) -> dict[str, float]:
    """Clocks that a block keeps each resource busy; `moved` are its bytes from and to
    memory.
    """
    share = FLOAT32_SHARE if sm.float32_per_clock == WARP * sm.sub_partitions else 1.0
    return {
        "arithmetic": max(
            asks.instructions / sm.sub_partitions,
            asks.arithmetic * WARP / sm.float32_per_clock / share,
            asks.double * WARP / sm.float64_per_clock,
            asks.special * WARP / sm.special_per_clock,
        ),
        "load and store": asks.load_store_clocks(
            sm.load_store_lanes, sm.shared_bytes_per_clock
        ),
        "L2 cache": (asks.l1_miss_bytes + asks.store_bytes) / sm.l2_bytes_per_clock,
        "memory": moved / memory_per_clock,
    }


def _side_by_side(services: Mapping[str, float], warps: int) -> dict[str, float]:
    """The services of a block whose warps use what an SM has, and the L2 cache, side by
    side.
    """
    inside = [busy for name, busy in services.items() if name != "memory"]
    return {
        "SM": max(inside) + (sum(inside) - max(inside)) / warps,
        "memory": services["memory"],
    }


def rates(chip: Device) -> Limits:
    """The rates of a device's SMs; UnknownDevice where gpufacts lacks something."""
    facts = {
        "compute_capability": chip.compute_capability,
        "sms": chip.sms,
        "boost_hz": chip.boost_hz,
        "bandwidth_bytes_per_s": chip.bandwidth_bytes_per_s,
    }
    missing = [name for name, value in facts.items() if not value]
    if not missing:
        sm = limits(capability(chip))
        if sm.load_store_lanes:
            return sm
        missing.append(
            f"the load and store units of compute capability {chip.compute_capability}"
        )
    raise UnknownDevice(
        f"{chip.name} has no time for a kernel: unknown are {', '.join(missing)}. Take"
        " another GPU."
    )


def tensor_clocks(flop: float, dtype: str, chip: Device) -> float:
    """The least clocks of an SM for `flop` of matrix instructions (mma) on a dtype: the
    data sheet's dense rate.

    UnknownDevice where gpufacts has no such rate.
    """
    rate = chip.tensor_flop_per_s.get(dtype)
    if not (rate and chip.sms and chip.boost_hz):
        raise UnknownDevice(
            f"{chip.name} has no known rate of tensor cores for {dtype}. Take another"
            " GPU or dtype."
        )
    return flop * chip.sms * chip.boost_hz / rate


def _double_clocks(flop: float, sm: Limits, chip: Device) -> float:
    """The least clocks of an SM for `flop` of matrix instructions on float64: where the
    data sheet has no rate of tensor cores for them, the float64 units make them.
    """
    if chip.tensor_flop_per_s.get("float64"):
        return tensor_clocks(flop, "float64", chip)
    return flop / 2 / sm.float64_per_clock


def capability(chip: Device) -> tuple[int, int]:
    """The compute capability of a device that has one."""
    major, minor = str(chip.compute_capability).split(".")
    return int(major), int(minor)


def _memory_bytes(
    asks: Demands, grid: Dim3, together: int, l2_bytes: float, warm: bool
) -> tuple[float, float]:
    """Bytes a block that loads bring from memory, and those with what it stores.

    Blocks start along x first. Those that run together share what they have in common,
    and all do if L2 holds it.
    """
    wave = (
        min(together, grid.x),
        min(-(-together // grid.x), grid.y),
        min(-(-together // (grid.x * grid.y)), grid.z),
    )
    touched = sum(_by_array(asks.footprints, grid).values())
    fits = touched <= l2_bytes
    missed = 1 - l2_kept(touched / l2_bytes) if warm and l2_bytes else 1.0
    extent = grid if fits else wave
    loaded = 0.0
    stored = 0.0
    for part in asks.footprints:
        n_bytes = part.of_blocks(extent) / math.prod(extent)
        if not fits:
            n_bytes = max(n_bytes, part.alone)
            if part.scattered:
                n_bytes *= MEMORY_SHARE / SCATTERED_SHARE
        if part.kind == Access.LOAD:
            loaded += missed * n_bytes
        else:
            stored += missed * n_bytes
    return loaded, loaded + stored


def _by_array(parts: tuple[Footprint, ...], grid: Dim3) -> dict[int, float]:
    """Bytes of each array that a launch touches, in whatever way."""
    touched: dict[int, float] = {}
    for part in parts:
        times = 2 if part.kind == Access.ATOMIC else 1  # atomics read and write them
        n_bytes = part.of_blocks(grid) / times
        touched[part.array] = max(touched.get(part.array, 0.0), n_bytes)
    return touched


def l2_kept(share: float) -> float:
    """Of memory that launches go through again and again, in the same order, the part
    that the L2 cache keeps from one to the next; `share` is its size by the cache's.

    Addresses are hashed to sets, which hold L2_WAYS lines each, so that a set's number
    of lines follows Poisson's distribution. A set that has room for all of its lines
    keeps them; in others each line is evicted (LRU) before its next use.
    """
    mean = L2_WAYS * share
    if mean > L2_WAYS + 20 * math.sqrt(mean):
        return 0.0
    powers = (mean**n / math.factorial(n) for n in range(L2_WAYS))
    return round(math.exp(-mean) * sum(powers), 6)


def throughput(
    services: Mapping[str, float], latency: float, blocks: int, sms: int
) -> float:
    """Blocks that an SM finishes a clock with so many resident.

    A block keeps each station busy for `services` clocks; those in SHARED serve all
    `sms` SMs, a block of each at a time. It spends `latency` clocks outside of them.
    Approximate mean value analysis (Schweitzer 1979).
    """
    queues = dict.fromkeys(services, blocks / len(services))
    rate = 0.0
    for _ in range(100):  # more than enough to settle
        times = {}
        for name, busy in services.items():
            users = sms if name in SHARED else 1
            # itself, and those that it meets
            queue = 1 / users + queues[name] * (1 - 1 / (blocks * users))
            times[name] = busy * queue
        rate = blocks / (latency + sum(times.values()))
        queues = {name: rate * time for name, time in times.items()}
    return rate
