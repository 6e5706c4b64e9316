"""Review a traced kernel as a performance engineer would: what wastes time in which
line, how much, and its counter.

A cost is the difference of two estimates: of the kernel as it is, and of one whose
demands lack the waste. Less than WORTH of the estimate on the GPU in question is left
out, or less than LEAST of what is of no use on any GPU.
"""

from __future__ import annotations

import dataclasses
import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpufacts import Device, find
from kerneltrace._arguments import text
from kerneltrace._tables import Shown, ShownAsTable, Table
from kerneltrace._text import brief_repr
from kerneltrace._units import format_seconds
from kerneltrace.judge.counts import Requests
from kerneltrace.judge.demands import Demands
from kerneltrace.judge.divergence import as_executed, divergence
from kerneltrace.judge.estimate import (
    MEMORY_CLOCKS,
    REGISTERS,
    SCALAR_DOTS,
    Estimate,
    estimate,
    has_scalar_dots,
    rates,
    room_for,
)
from kerneltrace.judge.waste import (
    MemoryWaste,
    Waste,
    divisions,
    float64_by_accident,
    local_memory,
    needless_barriers,
)
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import MAX_GRID, WARP, Dim3
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array

WORTH = 0.05
"""The share of the estimate from which on remarks of one kind are worth making."""
LEAST = 0.01
"""The same for a waste that is of no use on any GPU."""
WAVES = 8  # how often the grid that is assumed without one fills the GPU
METRICS = {
    "float64": "sm__inst_executed_pipe_fp64.sum",
    "bank conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "uncoalesced": (
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    ),
    "atomics": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "narrow loads": "smsp__inst_executed_op_global_ld.sum",
    "bytes in flight": (
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    ),
    "divergence": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "reuse": "lts__t_bytes.sum",
    "tensor cores": "sm__inst_executed_pipe_tensor.sum",
    "constant memory": (
        "smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio"
    ),
    "local memory": "smsp__inst_executed_op_local_ld.sum",
    "integer division": "smsp__sass_thread_inst_executed_op_integer_pred_on.sum",
    "block size": "smsp__thread_inst_executed_per_inst_executed.ratio",
}
"""The metric for `ncu --metrics` that confirms it; of stores, with `op_st` in place of
`op_ld`.
"""


@dataclass(frozen=True, repr=False)
class Remark(Shown):
    """What one line of a kernel wastes, and the metric of Nsight Compute in which it
    shows.
    """

    line: int
    """0 where it concerns the whole launch."""
    source: str
    kind: str
    """A key of METRICS."""
    sentence: str
    cost_ms: float
    """Calculated milliseconds that the launch would be faster without it; costs of
    several remarks don't add up.
    """
    share: float
    """The same as a share of the estimate, 0 to 1."""
    metric: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return (
            f"[{self.kind}] {where}{self.sentence} ({self.share:.0%} of the time;"
            f" {self.metric})"
        )


@dataclass(frozen=True, repr=False)
class Review(ShownAsTable):
    """The remarks on a kernel, the costliest first, the estimate that costs refer to,
    and whether it has mistakes.
    """

    remarks: tuple[Remark, ...]
    estimate: Estimate
    grid: Dim3
    mistakes: bool = False
    device_assumed: str = ""
    """Why that GPU stands for a short name such as "H100"."""
    traced_grid: Dim3 | None = None
    """The grid that was traced, where costs are calculated for a larger one."""

    def of(self, kind: str) -> tuple[Remark, ...]:
        """The remarks of one kind, a key of METRICS; ValueError for another."""
        if text("kind", kind) not in METRICS:
            raise ValueError(
                f"Expected a kind out of {', '.join(METRICS)}; got {brief_repr(kind)}."
            )
        return tuple(remark for remark in self.remarks if remark.kind == kind)

    def __str__(self) -> str:
        """Three parts for each remark, in lines that a terminal holds: where and how
        much, the source, what to do.
        """
        table = self.table()
        lines = []
        for line, source, kind, cost, share, sentence, metric in table.rows:
            place = f"line {line}, " if line else ""
            lines.append(f"{kind}, {place}{cost} ({share}), {metric}")
            if source:  # a remark on the whole launch has none
                lines.append(f"    {source}")
            lines += textwrap.wrap(
                sentence, 100, initial_indent="  ", subsequent_indent="  "
            )
        return "\n".join([table.title, *lines, *table.notes])

    def table(self) -> Table:
        """What a cell shows."""
        rows = tuple(
            (
                str(remark.line or ""),
                remark.source,
                remark.kind,
                format_seconds(1e-3 * remark.cost_ms),
                f"{remark.share:.0%}",
                remark.sentence,
                remark.metric,
            )
            for remark in self.remarks
        )
        kernel = self.estimate.kernel
        device = self.estimate.device
        seconds = format_seconds(self.estimate.seconds)
        grid = tuple(self.grid)
        title = f"{kernel} on {device}: {seconds} calculated for a grid of {grid}"
        notes = [self.device_assumed] if self.device_assumed else []
        if self.traced_grid is not None:
            title += f", the traced {tuple(self.traced_grid)} repeated"
            notes.append(
                f"The traced grid of {tuple(self.traced_grid)} is repeated until it"
                f" fills this GPU {WAVES} times. grid= takes yours."
            )
        if self.mistakes:
            first = "The trace found mistakes, which it prints: mend them first."
            title = f"{first} {title}"
        elif not rows:
            notes.append("Nothing to remark.")
        if not rows:
            return Table((), (), title, tuple(notes))
        notes.append("Costs are calculated one by one, and don't add up.")
        headings = ("line", "source", "kind", "cost", "share", "remark", "metric")
        return Table(rows, headings, title, tuple(notes))


def review(
    run: Execution,
    requests: Requests,
    arrays: Array,
    asks: Demands,
    device: str | Device,
    grid: Dim3 | None,
    registers: int | None,
    mistakes: bool,
) -> Review:
    """The remarks on a run whose demands are `asks`; `arrays` says which array each of
    its requests goes to.

    Without a `grid` the traced one is taken to be repeated until it fills the GPU WAVES
    times.
    """
    chip = find(device)
    traced_grid = None if grid else asks.grid
    grid = grid or _filling(asks, chip)

    def seconds(
        registers: int | None = registers, blocks: Dim3 = grid, **changes: Any
    ) -> float:
        changed = dataclasses.replace(asks, **changes)
        return estimate(changed, chip, grid=blocks, registers=registers).seconds

    asks = as_executed(run, requests, asks)
    now = estimate(asks, chip, grid=grid, registers=registers)
    memory = MemoryWaste(run, requests, arrays, asks)
    wastes = [
        *float64_by_accident(run, asks),
        *memory,
        *divergence(run, requests, asks),
        *needless_barriers(run, asks),
        *_few_in_flight(memory.busiest_load(), asks, chip, grid),
        *_capped(run, asks, chip, registers),
        *_scalar_dots(run, asks, chip),
        *divisions(run, asks),
        *local_memory(run, asks),
        *_part_of_a_warp(asks, grid),
    ]
    hz = chip.boost_hz or math.inf
    costs_s = [
        max(now.seconds - seconds(**waste.changes), waste.least_clocks / hz)
        for waste in wastes
    ]
    remarks = _remarks(wastes, costs_s, now.seconds)
    by_cost = tuple(sorted(remarks, key=lambda remark: -remark.cost_ms))
    return Review(by_cost, now, grid, mistakes, chip.assumed, traced_grid)


def _remarks(
    wastes: list[Waste], costs_s: list[float], seconds: float
) -> Iterable[Remark]:
    """The remarks that are worth making on a launch that takes so many seconds."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for waste, cost_s in zip(wastes, costs_s, strict=True):
        by_kind[waste.kind].append(cost_s)
    once: dict[tuple[str, int, str], Remark] = {}  # x[i] += 1 makes two requests
    for waste, cost_s in zip(wastes, costs_s, strict=True):
        total_s = sum(by_kind[waste.kind])
        mean_s = total_s / len(by_kind[waste.kind])
        is_dear = total_s >= WORTH * seconds and cost_s >= mean_s / 2
        is_useless = waste.always and cost_s >= LEAST * seconds
        if is_dear or is_useless:
            remark = Remark(
                waste.line,
                waste.source,
                waste.kind,
                waste.sentence,
                cost_ms=1e3 * cost_s,
                share=cost_s / seconds,
                metric=_metric(waste),
            )
            once.setdefault((waste.kind, waste.line, waste.source), remark)
    return once.values()


def _metric(waste: Waste) -> str:
    """The metric that confirms a waste: of loads, or of stores."""
    metric = METRICS[waste.kind]
    return metric.replace("_op_ld", "_op_st") if waste.stores else metric


def _filling(asks: Demands, chip: Device) -> Dim3:
    """The traced grid, repeated along its longest axis until it fills the GPU WAVES
    times.
    """
    blocks_an_sm = max(rates(chip).max_warps_per_sm // asks.warps, 1)
    blocks = WAVES * (chip.sms or 1) * blocks_an_sm
    axis = asks.grid.index(max(asks.grid))
    repeated = asks.grid[axis] * math.ceil(blocks / math.prod(asks.grid))
    extents = list(asks.grid)
    extents[axis] = min(repeated, MAX_GRID[axis])
    return Dim3(*extents)


def _few_in_flight(
    site: Site | None, asks: Demands, chip: Device, grid: Dim3
) -> Iterator[Waste]:
    """Loads that have less than half of the bandwidth times the latency under way
    between two waits (Little's law).
    """
    is_part_of_a_warp = asks.threads < WARP  # remarked as such
    if not asks.global_waits or site is None or is_part_of_a_warp:
        return
    bandwidth = chip.bandwidth_bytes_per_s or 0.0
    needed = bandwidth * MEMORY_CLOCKS / (chip.boost_hz or 1.0)
    room = room_for(asks, chip, REGISTERS)
    blocks = min(room.blocks_per_sm * (chip.sms or 1), math.prod(grid))
    under_way = blocks * asks.l1_miss_bytes / asks.global_waits
    if under_way < needed / 2:
        sentence = (
            f"{under_way:,.0f} bytes are under way at a time, where this GPU's memory"
            f" needs {needed:,.0f}. Let each thread load several numbers before it uses"
            " the first, or launch more threads."
        )
        changes = {"global_waits": asks.global_waits * under_way / needed}
        yield Waste("bytes in flight", site.line, site.text, sentence, changes)


def _capped(
    run: Execution, asks: Demands, chip: Device, registers: int | None
) -> Iterator[Waste]:
    """Shared memory or registers that let fewer than half of the warps be resident."""
    room = room_for(asks, chip, registers or REGISTERS)
    if room.fraction >= 0.5:
        return
    if "shared memory" in room.limited_by:
        site = _largest_shared_array(run)
        sentence = (
            f"{asks.shared_bytes:,} bytes of shared memory a block leave"
            f" {room.fraction:.0%} occupancy. Use a smaller tile."
        )
        changes = {"shared_bytes": 0}
        yield Waste("occupancy", site.line, site.text, sentence, changes)
    elif "registers" in room.limited_by and registers:
        sentence = (
            f"{registers} registers a thread leave {room.fraction:.0%} occupancy. Keep"
            " fewer values at a time."
        )
        yield Waste("occupancy", 0, "", sentence, {"registers": REGISTERS})


def _part_of_a_warp(asks: Demands, grid: Dim3) -> Iterator[Waste]:
    """Lanes that idle since a block is no multiple of a warp; blocks that share a warp
    without the waste do what several do now.
    """
    if asks.threads % WARP == 0:
        return
    together = max(WARP // asks.threads, 1)
    busy = asks.threads * together / (WARP * asks.warps)
    fields = ("instructions", "arithmetic", "double", "special", "shuffles", "weights")
    changes = {field: busy * getattr(asks, field) for field in fields}
    if together > 1:
        rows = (together, 1, 1)
        shares = [
            dataclasses.replace(
                part, n_bytes=part.of_blocks(rows), alone=together * part.alone
            )
            for part in asks.footprints
        ]
        blocks = Dim3(math.ceil(grid.x / together), grid.y, grid.z)
        changes |= {"footprints": tuple(shares), "blocks": blocks}
        changes["threads"] = together * asks.threads
    threads = "1 thread" if asks.threads == 1 else f"{asks.threads} threads"
    warps = "a warp" if asks.warps == 1 else f"{asks.warps} warps"
    sentence = (
        f"Blocks of {threads} fill {busy / together:.0%} of the lanes of {warps} each."
        f" Take a multiple of {WARP}, such as 128 or 256."
    )
    yield Waste("block size", 0, "", sentence, changes)


def _scalar_dots(run: Execution, asks: Demands, chip: Device) -> Iterator[Waste]:
    """Products of matrices that Triton makes without the GPU's tensor cores."""
    if not has_scalar_dots(asks, chip) or not chip.tensor_flop_per_s.get("float16"):
        return
    places = zip(run.program.counted_at, run.program.counted, strict=True)
    line = min(line for (_, line), operations in places if operations.products)
    sentence = (
        f"{SCALAR_DOTS} Take a library or CUDA C++ for float16 on this GPU, or another"
        " GPU."
    )
    yield Waste("tensor cores", line, "", sentence, {"dots": 0.0})


def _largest_shared_array(run: Execution) -> Site:
    """Where the largest shared array is made, or in C++ first used."""
    regions = run.layout.regions
    number = max(regions, key=lambda number: regions[number].array.nbytes)
    if run.sites[number].kind == "array":
        return run.sites[number]
    name = re.compile(rf"\b{re.escape(regions[number].name)}\b")
    uses = [site for site in run.sites if name.search(site.text)]
    return uses[0] if uses else run.sites[0]
