"""steptime for notebooks: with this machine's ceilings and name, in turns, and with a
watch on other programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch

import steptime
from labkit.core import results
from labkit.core.arguments import dtype_name
from labkit.core.display import Table
from labkit.core.errors import BadMeasurement
from labkit.core.own_folder import make_private, of_this_user, writing
from labkit.core.parameters import Dtype, Number, Positive, checked
from labkit.core.paths import SOURCES
from labkit.measure import turns
from labkit.measure.bench import Timing
from labkit.measure.ceilings import MachineCeilings, measure_ceilings
from labkit.measure.contention import Watch
from labkit.measure.machine import machine
from labkit.measure.step_overhead import StepOverhead, step_overhead
from steptime import (
    PARTS,
    Limit,
    MemoryTimeline,
    PartSpan,
    StepProfile,
    Utilization,
    counted_flop,
    memory_timeline,
    part,
    quiet_profiler,
    saved_activation_bytes,
)

__all__ = [
    "PARTS",
    "Limit",
    "MemoryTimeline",
    "PartSpan",
    "StepOverhead",
    "StepProfile",
    "Utilization",
    "counted_flop",
    "find_bottleneck",
    "memory_timeline",
    "part",
    "profile_step",
    "quiet_profiler",
    "saved_activation_bytes",
    "step_overhead",
    "utilization",
    "wait_lines",
]


@checked
def profile_step(
    step: Callable[..., object],
    batches: object = None,
    *,
    steps: Annotated[int, Number(least=1, most=10_000)] = 5,
    warmup: Annotated[int, Number(least=0, most=10_000)] = 2,
    path: Path | None = None,
) -> StepProfile:
    """What `steptime.profile_step` finds on this machine, with a note if other programs
    took much of it meanwhile.

    The Chrome trace goes to `path`, by default in the folder of your results, one file
    per rank.
    """
    here = machine()
    busy = watch_others()
    path = trace_path() if path is None else path
    profile = steptime.profile_step(
        step, batches, steps=steps, warmup=warmup, path=path, device=here.device
    )
    notes = profile.notes
    if reason := busy():
        notes = (*notes, f"The times are in doubt: {reason}.")
    return replace(profile, device=here.name, notes=notes)


@checked
def find_bottleneck(
    step: Callable[[Any], object],
    batches: object,
    *,
    budget_s: Positive = 8.0,
    ceilings: MachineCeilings | None = None,
) -> Limit:
    """What `steptime.find_bottleneck` finds, compared with `ceilings`, by default this
    machine's.

    No other notebook measures meanwhile. The answer says how busy the machine was, if
    other programs took so much that the shares are in doubt.
    """
    with turns.turn():
        return steptime.find_bottleneck(
            step,
            batches,
            budget_s=budget_s,
            path=trace_path(),
            **on_this_machine(ceilings),
        )


@checked
def utilization(
    flop: Positive,
    seconds: Positive | Timing,
    *,
    dtype: Dtype = "float32",
    ceilings: MachineCeilings | None = None,
) -> Utilization:
    """What `steptime.utilization` says of a step of `flop` FLOP and of `seconds`, a
    number or a Timing (its median).

    `flop` is what the model needs, such as costs.training_step(...).flop. `ceilings`
    are by default this machine's. Raises BadArgument for numbers that aren't above 0
    and for an unknown dtype.
    """
    median_s = seconds.median_s if isinstance(seconds, Timing) else seconds
    if not median_s > 0:
        raise BadMeasurement(
            f"Expected seconds above 0, got a Timing of {median_s} s. Does its clock"
            " advance?"
        )
    return steptime.utilization(
        flop,
        median_s,
        dtype=dtype_name(dtype),
        ceilings=_rates(ceilings or measure_ceilings()),
    )


@checked
def wait_lines(work: Callable[[], object]) -> Table:
    """The lines of your code at which Python waits for the GPU, or would:
    `steptime.wait_lines`, labkit's left out.
    """
    lines = steptime.wait_lines(work, libraries=[*SOURCES.values()])
    return Table(lines.rows, lines.headings)


def on_this_machine(ceilings: MachineCeilings | None = None) -> dict[str, Any]:
    """What steptime's functions ask of a machine. Ceilings are measured with the
    threads that torch uses by then.
    """

    def rates() -> steptime.Ceilings:
        return _rates(ceilings or measure_ceilings())

    return {"ceilings": rates, "device": machine().device, "watch": watch_others}


def _rates(ceilings: MachineCeilings) -> steptime.Ceilings:
    """Labkit's ceilings as steptime's."""
    return steptime.Ceilings(
        device=ceilings.device,
        matmul_flop_per_s=ceilings.matmul_flop_per_s,
        copy_bytes_per_s=ceilings.copy_bytes_per_s,
        threads=ceilings.threads,
        peaks=ceilings.peaks,
        highest_flop_per_s={
            dtype: ceiling.high for dtype, ceiling in ceilings.matmul.items()
        },
        remarks=ceilings.remarks,
    )


def watch_others() -> Callable[[], str]:
    """A watch on other programs, for steptime."""
    watch = Watch(gpu=machine().device != "cpu")
    return lambda: watch.so_far().reason


def trace_path() -> Path:
    """A file for each rank in the folder of results, which is made; DataError where it
    is not this user's alone.
    """
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    name = f"step-rank{torch.distributed.get_rank()}.json" if several else "step.json"
    folder = of_this_user(results.state_folder() / "traces")
    with writing(folder, "Set LABKIT_HOME to a folder of yours, or pass path=."):
        make_private(results.state_folder(), folder)
    return folder / name
