"""Checks of notebook 01, which GPU suits which job."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Sequence
from typing import Any

from exercises.nb01.device_jobs import Candidate, Job, judge
from gpufacts import UnknownDevice
from labkit.core.arguments import nearest
from labkit.core.display import brief_repr
from labkit.core.units import format_bytes, format_seconds, format_si
from labkit.lesson.checks import NotYet, close, mapping, over_cases
from labkit.measure import catalog
from labkit.measure.catalog import Device
from labkit.measure.ceilings import measure_ceilings
from labkit.measure.machine import machine
from trainplan import costs

HERE = "this machine"
OTHERS = (
    "T4",
    "L4",
    "A100 SXM4 80GB",
    "H100 SXM5 80GB",
    "RTX 6000 Ada",
    "GeForce RTX 4090",
)
# job -> (network, batch, sequence, dtype, the longest a step may take by the roofline,
# in seconds)
JOBS = {
    "digits": ("SimpleCNN", 64, None, "float32", 0.03),
    "BERT": ("BERT-base", 32, 128, "mixed float16", 0.1),
    "Llama": ("Llama-2-7B", 1, 4096, "mixed bfloat16", 10.0),
}


def fp32_peak(answer: object) -> str:
    """Cores x 2 x clock, on rows of the catalog and on random numbers."""
    draw = random.Random(2101)
    sizes: list[tuple[str, Any, Any]] = [
        (f"{d.name}, ", d.fp32_cores, d.boost_hz) for d in map(catalog.find, OTHERS)
    ]
    sizes += [
        ("", draw.randrange(100, 20_000), draw.uniform(0.8e9, 3e9)) for _ in range(3)
    ]
    cases = {
        f"{name}{cores:,} cores at {format_si(hz, 'Hz')}": (cores, hz)
        for name, cores, hz in sizes
    }
    hint = "A multiply-add counts as two operations; FLOP/s, not TFLOP/s."
    over_cases(
        answer,
        cases,
        lambda cores, boost_hz: cores * 2 * boost_hz,
        close("FLOP/s", hint=hint),
    )
    return "Right, and within 2 % of what the data sheets print for the six GPUs."


def matmul_intensity(answer: object) -> str:
    """FLOP over bytes of n x n times n x n, for random n and 1 to 8 bytes an element.

    Counting n - 1 additions instead of n changes less than 1 % from n = 64 on, and
    passes.
    """
    draw = random.Random(2103)
    sizes = (64, draw.randrange(65, 5000), draw.randrange(5000, 50_000))

    hint = (
        "2 FLOP for each of n³ products; three matrices, each element of element_bytes."
    )
    cases = itertools.product(sizes, (1, 2, 4, 8))
    compare = close("FLOP/B", rel=0.01, hint=hint)
    over_cases(
        answer,
        cases,
        lambda n, element_bytes: 2 * n**3 / (3 * n**2 * element_bytes),
        compare,
    )
    return "Right for 1 to 8 bytes an element: the intensity grows with n."


def step_bytes(answer: object) -> str:
    """Weights, gradients and Adam's two averages in float32, and what every image of
    the batch keeps.
    """
    draw = random.Random(2104)
    cases = [(62_006, 57_280, 1), (62_006, 57_280, 4096), (10, 0, 5), (0, 16, 3)]
    cases += [
        (draw.randrange(1, 10**9), draw.randrange(1, 10**7), draw.randrange(2, 512))
        for _ in range(4)
    ]
    hint = (
        "Each parameter has its weight, its gradient and two averages of Adam, 4 bytes"
        " each, whatever the batch."
    )
    compare = close("B", hint=hint)
    over_cases(
        answer,
        cases,
        lambda params, saved_activation_bytes, batch: (
            16 * params + batch * saved_activation_bytes
        ),
        compare,
    )
    return (
        "Right. SimpleCNN at batch 4,096 holds"
        f" {format_bytes(16 * 62_006 + 4096 * 57_280)} by this count."
    )


def choice(answer: object) -> str:
    """For each job a device that holds it and is fast enough: this machine, else the
    one of least board power.
    """
    chosen = mapping(
        answer,
        dict.fromkeys(
            JOBS, "the name of a device, or None where no single one will do"
        ),
    )
    names = {job: _device_name(chosen[job]) for job in JOBS}
    for job, name in names.items():
        judged = candidates(job)
        limit_s = JOBS[job][-1]
        try:
            _judge_choice(job, name, judged, limit_s)
        except NotYet as wrong:
            raise NotYet(f"{wrong}{_doubt(judged[-1], limit_s)}") from wrong
    return (
        "Right: "
        + "; ".join(
            f"{job}: {name or 'no single one of them'}" for job, name in names.items()
        )
        + "."
    )


def _device_name(chosen: Any) -> object:
    """The catalog's name of a device, however it was written; whatever else it is
    comes back as it is.
    """
    name = getattr(chosen, "name", chosen)
    with contextlib.suppress(UnknownDevice):
        return catalog.find(name).name if isinstance(name, str) else name
    return name


def _doubt(here: Candidate, limit_s: float) -> str:
    """What to say where this machine's step is so near to the limit that other ceilings
    could change the choice.
    """
    if (
        not here.fits
        or here.step_s is None
        or not 1 / 1.3 <= here.step_s / limit_s <= 1.3
    ):
        return ""
    return (
        " This machine is close to the limit: if these ceilings were measured again"
        " since, run the cell with lab.measure_ceilings() again."
    )


def candidates(job: str) -> list[Candidate]:
    """The devices of the exercise, judged for one of its jobs."""
    network, batch, seq, dtype, _ = JOBS[job]
    step = costs.training_step(network, batch=batch, seq=seq, dtype=dtype)
    need = Job(
        memory_bytes=step.memory.total_bytes,
        flop=step.flop,
        n_bytes=step.n_bytes,
        dtype=step.compute_dtype,
    )
    return [judge(device, need) for device in (*map(catalog.find, OTHERS), _here())]


def _here() -> Device:
    ceilings = measure_ceilings()
    device = machine()
    return Device(
        name=HERE,
        source="measured here",
        memory_bytes=(
            device.gpus[0].memory_bytes if device.gpus else device.memory_bytes
        ),
        bandwidth_bytes_per_s=ceilings.copy_bytes_per_s,
        tensor_flop_per_s=ceilings.matmul_flop_per_s,
    )


def _judge_choice(
    job: str, name: object, judged: Sequence[Candidate], limit_s: float
) -> None:
    by_name = {candidate.device.name: candidate for candidate in judged}
    passing = {
        candidate.device.name: candidate
        for candidate in judged
        if candidate.fits and (candidate.step_s or 0) <= limit_s
    }
    if name is None:
        if passing:
            raise NotYet(
                f"{job}: at least one of the seven holds it and is fast enough. Which"
                " are in, and below the limit?"
            )
        return
    if isinstance(name, str) and name.strip().casefold() == "none":
        raise NotYet(f"{job}: write None without quotes.")
    if not isinstance(name, str) or name not in by_name:
        near = nearest(brief_repr(name), by_name, n=2)
        raise NotYet(
            f"{job}: {brief_repr(name)} is not one of the seven; nearest:"
            f" {', '.join(near)}. None means no single device."
        )
    candidate = by_name[name]
    if not candidate.fits:
        raise NotYet(f"{job}: {candidate}")
    if name not in passing:
        slow = (
            f"{format_seconds(candidate.step_s or 0)} a step, and the limit is"
            f" {format_seconds(limit_s)}"
        )
        raise NotYet(f"{job}: {name} holds it but takes {slow}.")
    if HERE in passing and name != HERE:
        raise NotYet(
            f"{job}: {name} would do, but this machine holds it and is fast enough too,"
            " and you have it."
        )
    power_w = candidate.device.tdp_w
    less = [
        n
        for n, other in passing.items()
        if power_w and other.device.tdp_w and other.device.tdp_w < power_w
    ]
    if name != HERE and less:
        raise NotYet(
            f"{job}: {name} draws up to {power_w:.0f} W. Another of the seven does this"
            " job with less."
        )


CHECKS = {
    "01.1": fp32_peak,
    "01.3": matmul_intensity,
    "01.4": step_bytes,
    "01.6": choice,
}
