"""What can be looked at in notebook 17's broken trainings, in the form in which a
cluster's tools show it.

What ranks computed, said to each other and left behind is real; GPUs, networks and
their tools' numbers are simulated.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from exercises.nb17 import health
from exercises.nb17.device_memory import MIB
from exercises.nb17.settings import CORES, LAYERS, Job, RankEvidence, rows_of
from labkit.core.display import Note, Table
from labkit.core.units import significant
from labkit.measure import catalog
from labkit.plot.lines import curves
from labkit.plot.schedules import gantt
from ranks import Span

LOOKS = {row["look"]: row for row in rows_of("looks")}
_LINES = {row["kind"]: row["text"] for row in rows_of("lines")}
_UNKNOWN = "group 1, call 0: gloo:unknown []"  # where this torch has no flight recorder
_CHARACTER = 16 * MIB  # of a segment, in the picture of the memory
_NOTE = (
    "GPUs, with a hundredth of the memory of real ones, networks and what tools say of"
    " them are simulated."
)
# Of a GPU's power limit: at rest, while NCCL's kernel spins
# (https://github.com/cupy/cupy/issues/3557), and while it computes at full clock; and
# of its SMs those with a block of that kernel, one a channel. All four are the game's
# own.
_REST = 0.12
_SPINS = 0.33
_COMPUTES = 0.9
_CHANNELS = 0.18


def _by_rank(
    broken: Any,
    cells: Callable[[RankEvidence, int], Sequence[object]],
    *headings: str,
    note: str = "",
) -> Table:
    rows = tuple(
        (f"rank\u00a0{i}", *map(str, cells(rank, i)))
        for i, rank in enumerate(health.of(broken.launched))
    )
    return Table(rows, ("", *headings), notes=(note,) if note else ())


def _draw(broken: Any, rank: int, look: str) -> random.Random:
    return random.Random(f"{broken.fault.noise} {rank} {look}")


def _some_steps(launched: Any) -> list[int]:
    """The first step, the last two that all ranks have done with a finite loss or
    nearly, and one in between.
    """
    nan = health.first_nan(launched)
    last = health.steps(launched) - 1 if nan is None else nan
    return sorted({0, last // 2, max(last - 1, 0), last}) if last >= 0 else []


def _loss_curve(broken: Any) -> object:
    return curves(
        {"training": health.losses(broken.launched)},
        title="Loss, the mean over all ranks' images",
    )


def _logs(broken: Any) -> Table:
    rows = []
    job = broken.job
    for i, rank in enumerate(health.of(broken.launched)):
        lines = [line for line in rank.log if not line.startswith("step")] + rank.log[
            -1:
        ]
        if rank.cpu_s and sum(rank.cpu_s):
            lines.insert(0, _LINES["old driver"].format(driver=broken.fault.driver))
        if rank.lost_peer:
            limit = round(60_000 * job.time_limit_minutes)
            ran = limit + _draw(broken, i, "log").randrange(4, 90)
            number, op, numel = re.findall(
                r", call (\d+): gloo:(\w+) \[+(\d*)", [_UNKNOWN, *rank.calls][-1]
            )[0]
            call = {
                "number": number,
                "op": op.replace("_", "").upper(),
                "numel": numel or 1,
            }
            lines.append(
                _LINES["watchdog"].format(rank=i, limit=limit, ran=ran, **call)
            )
        elif rank.error:
            lines += [rank.error, _LINES["elastic"].format(rank=i, pid=2000 + i)]
        rows += [(f"rank\u00a0{i}", line) for line in dict.fromkeys(lines)]
    return Table(tuple(rows), title="Each rank's warnings and last lines")


def gpu_shares(rank: RankEvidence, step_s: float) -> tuple[float, float]:
    """Shares of the time in which a GPU computes, and in which it spins in a
    collective; what is left it rests.
    """
    # what the alarm finds: a rank that waits for others, or one that is gone
    if rank.error:
        return 0.0, float(rank.lost_peer)
    computes, rests = (
        sum(part) / (len(rank.gpu_s) * step_s) for part in (rank.gpu_s, rank.loader_s)
    )
    return computes, 0.0 if sum(rank.cpu_s) else max(0.0, 1 - computes - rests)


def _smi(broken: Any) -> Table:
    gpu = catalog.find(broken.fault.gpu)
    step_s = health.step_s(broken.launched)

    def cells(rank: RankEvidence, i: int) -> list[str]:
        if rank.error.startswith("RuntimeError: CUDA"):
            return ["ERR!"] * 7
        draw = _draw(broken, i, "smi")
        computes, spins = gpu_shares(rank, step_s)
        active = computes * draw.uniform(0.78, 0.86) + spins * _CHANNELS
        # of its clock and power
        pace = 1 / broken.fault.times if i == broken.fault.slow_rank else 1.0
        power_w = (gpu.tdp_w or 0.0) * (
            _REST + (_SPINS - _REST) * spins + pace * (_COMPUTES - _REST) * computes
        )
        mhz = (gpu.boost_hz or 0.0) / 1e6 * pace * draw.uniform(0.99, 1.0)
        used = 0 if rank.error and not rank.lost_peer else rank.memory.reserved
        return [
            f"{100 * (computes + spins):.0f} %",
            f"{100 * active:.0f} %",
            f"{power_w * draw.uniform(0.96, 1.04):.0f} / {gpu.tdp_w:.0f} W",
            f"{mhz:,.0f} MHz",
            f"{draw.randrange(48, 67)} °C",
            f"{used / MIB:,.0f} / {rank.memory.capacity / MIB:,.0f} MiB",
            "HW Power Brake" if pace < 1 else "none",
        ]

    note = (
        f"{gpu.name}, driver {broken.fault.driver}; PyTorch is built for CUDA"
        f" {broken.job.torch_cuda}. {_NOTE}"
    )
    heads = (
        "GPU-Util",
        "SM active (DCGM)",
        "power",
        "SM clock",
        "temperature",
        "memory",
        "clocks limited by",
    )
    return _by_rank(broken, cells, *heads, note=note)


def _kernel_log(broken: Any) -> Table:
    def cells(rank: RankEvidence, i: int) -> list[str]:
        draw = _draw(broken, i, "dmesg")
        lost = rank.error.startswith("RuntimeError: CUDA")
        kind = (
            draw.choice(("xid 79", "xid 48"))
            if lost
            else draw.choice(("quiet", "quiet", "xid 63"))
        )
        return [_LINES[kind].format(bus=draw.randrange(10, 240), pid=2000 + i)]

    return _by_rank(broken, cells, "last line", note=_NOTE)


def _configuration(broken: Any) -> Table:
    now = dataclasses.asdict(broken.job)
    before = dataclasses.asdict(Job())
    rows = tuple(
        (name, str(before[name]), str(now[name]))
        for name in now
        if now[name] != before[name]
    )
    return Table(rows, ("setting", "last week", "this run"))


def _nccl(broken: Any) -> Table:
    def cells(rank: RankEvidence, i: int) -> list[str]:
        if sum(rank.cpu_s):
            return [_LINES["no nccl"]]
        if broken.job.nccl_net == "Socket":
            speed = 400_000 if broken.fault.fast_ethernet else 10_000
            return [_LINES["no device"].format(rank=i, speed=speed)]
        return [
            _LINES["port"].format(
                rank=i, rate=10 if i == broken.fault.slow_link else 400
            )
        ]

    return _by_rank(broken, cells, "lines that name a network", note=_NOTE)


def _loader(broken: Any) -> Table:
    workers = broken.job.loader_workers

    def cells(rank: RankEvidence, i: int) -> list[object]:
        steps = max(len(rank.loader_s), 1)
        waits = sum(rank.loader_s)
        slow = i in broken.fault.slow_loader
        read_mb_s = (
            640
            * _draw(broken, i, "disk").uniform(0.9, 1.1)
            / (broken.fault.times * 4 if slow else 1)
        )
        running = min(100.0, 100 * workers / CORES) if slow else 100 * workers * 0.06
        return [
            f"{1e3 * waits / steps:.1f} ms",
            0 if waits else 2 * workers,
            f"{read_mb_s:,.0f} MB/s",
            f"{workers} of {CORES}",
            f"{running:.0f} %",
            f"{sum(rank.images)} of {sum(rank.rows)}",
            (
                f"{min(rank.pixels, default=0.0):.1f} to"
                f" {max(rank.pixels, default=0.0):.1f}"
            ),
        ]

    heads = (
        "waits in a step",
        "batches ready",
        "reads",
        "loader processes of cores",
        "cores busy",
        "images of rows",
    )
    return _by_rank(
        broken,
        cells,
        *heads,
        "pixels",
        note=f"{_NOTE} Last week pixels went from -0.6 to 1.4.",
    )


def _stacks(broken: Any) -> Table:
    """As `py-spy dump` prints them: the innermost call first."""

    def cells(rank: RankEvidence, _: int) -> list[str]:
        stack = rank.stack or ["_step (training_job.py)", "train (training_job.py)"]
        return [
            (
                "no such process"
                if rank.error and not rank.lost_peer
                else " < ".join(stack)
            )
        ]

    return _by_rank(broken, cells, 'thread "MainThread", innermost call first')


def _flight(broken: Any) -> Table:
    note = (
        "Each rank's dump of torch.distributed's flight recorder. Group 1 is for"
        " gradients, group 2 for the rest."
    )
    heads = ("last", "before it", "before that")
    return _by_rank(
        broken, lambda r, _: [*r.calls[::-1], "", "", ""][:3], *heads, note=note
    )


def _timeline(broken: Any) -> object:
    ranks = health.of(broken.launched)
    steps = health.steps(broken.launched)
    now_s = 0.0
    spans: list[Span] = []
    for step in range(max(0, steps - 3), steps):
        ends_s = []
        for i, rank in enumerate(ranks):
            begins_s = now_s + rank.loader_s[step]
            works_s = rank.gpu_s[step] + rank.cpu_s[step]
            ends_s.append(begins_s + works_s)
            works = ("idle", "on the CPU") if sum(rank.cpu_s) else ("compute", "")
            spans.append(Span(i, begins_s, ends_s[i], *works))
        now_s = max(ends_s) + ranks[0].comm_s[step]
        # it spins
        spans += [
            Span(i, end_s, now_s, "communication", "all_reduce")
            for i, end_s in enumerate(ends_s)
        ]
    return (
        gantt(spans, title="The last steps of all ranks (simulated)")
        if spans
        else Note("No step was done.")
    )


def _memory(broken: Any) -> Table:
    """The segments of the fullest rank, or of the one that ran out of memory."""
    ranks = health.of(broken.launched)
    which = max(
        range(len(ranks)),
        key=lambda i: ("OutOfMemory" in ranks[i].error, ranks[i].memory.most_used),
    )
    rows = []
    for segment in ranks[which].memory.fullest:
        free = [size for size, owner in segment if not owner]
        bar = "".join(
            ("█" if owner else "░") * max(1, round(size / _CHARACTER))
            for size, owner in segment
        )
        sizes = (sum(size for size, _ in segment), sum(free), max(free, default=0))
        rows.append((bar, *(f"{size / MIB:.0f}" for size in sizes)))
    after = ", ".join(f"{used / MIB:,.0f}" for used in ranks[which].used[-12:])
    notes = (
        f"MiB in use after each of the last steps: {after}.",
        f"A character is 16 MiB or less. {_NOTE}",
    )
    return Table(
        tuple(rows),
        ("█ in use, ░ free", "MiB", "free", "largest hole"),
        f"Rank {which}'s segments",
        notes,
    )


def _norms(broken: Any) -> Table:
    steps = _some_steps(broken.launched)
    last_week = health.of(health.healthy(broken.fault))[0].norms
    rate = broken.job.learning_rate * broken.fault.schedule_factor
    return _by_rank(
        broken,
        lambda r, _: [f"{r.own_norms[i]:.3g} / {r.norms[i]:.3g}" for i in steps],
        *(f"step {i}: own / all ranks'" for i in steps),
        note=(
            f"Last week's run: {', '.join(f'{last_week[i]:.3g}' for i in steps)}."
            f" Learning rate, as the schedule has it: {rate:.3g}; last week"
            f" {Job.learning_rate:g}."
        ),
    )


def _activations(broken: Any) -> Table:
    ranks = health.of(broken.launched)
    steps = _some_steps(broken.launched)

    def largest(step: int, layer: int) -> float:
        return max(
            (rank.activations[step][layer] for rank in ranks),
            key=lambda x: (math.isnan(x), x),
        )

    rows = tuple(
        (f"layer {n + 1}", *(f"{largest(i, n):,.1f}" for i in steps))
        for n in range(LAYERS)
    )
    return Table(rows, ("largest activation", *(f"step {i}" for i in steps)))


def _weights(broken: Any) -> Table:
    steps = _some_steps(broken.launched)
    return _by_rank(
        broken,
        lambda r, _: [r.checksums[i] for i in steps],
        *(f"before step {i}" for i in steps),
    )


def _one_rank(broken: Any) -> Table:
    """The broken job on one rank, with the images of all."""

    def cells(launched: Any) -> tuple[str, ...]:
        last = [math.nan, *health.losses(launched)][-1]
        held_out = health.of(launched)[0].held_out_loss
        return (
            f"{health.steps(launched)}",
            significant(last, 3),
            significant(held_out, 3),
        )

    alone = health.run(broken.job, broken.fault, 1)
    healthy = health.healthy(broken.fault)
    runs = (("4 ranks", broken.launched), ("1 rank", alone), ("last week", healthy))
    rows = tuple((name, *cells(run)) for name, run in runs)
    return Table(
        rows, ("", "steps", "last loss", "held-out loss"), "The same images on one rank"
    )


_SHOWN: dict[str, Callable[[Any], object]] = {
    "loss curve": _loss_curve,
    "logs": _logs,
    "nvidia-smi": _smi,
    "kernel log": _kernel_log,
    "configuration": _configuration,
    "NCCL log": _nccl,
    "loader": _loader,
    "py-spy": _stacks,
    "flight recorder": _flight,
    "memory snapshot": _memory,
    "timeline": _timeline,
    "weights": _weights,
    "gradient norms": _norms,
    "activations": _activations,
    "one rank": _one_rank,
}


def show(broken: Any, look: str) -> object:
    """The table or figure of a look at a broken run."""
    return _SHOWN[look](broken)
