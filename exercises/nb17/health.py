"""Run notebook 17's training, once for each job and fault, and say what is wrong with a run."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import cast

from exercises.nb17.settings import RANKS, ROOMY, STEPS, Fault, Job, RankEvidence
from exercises.nb17.training_job import train
from labkit.core.errors import RankFailed
from labkit.core.units import format_seconds
from labkit.measure.dist import launch
from ranks import Launched

_ELSEWHERE = 0.04  # of the way from the first to the last weights: rounding to bfloat16 makes 0.013 of it, faults 0.06
_SLOWER, _MORE_TRAFFIC, _HOLES, _DRIVER_CALLS = 1.2, 1.5, 0.15, 2


@functools.cache
def run(job: Job, fault: Fault, ranks: int = RANKS) -> Launched:
    """What the ranks leave: a RankEvidence each, and their spans."""
    try:
        return launch(train, ranks, job, fault, timeout_s=120.0)
    except RankFailed:  # what is broken on purpose is evidence and never raised; a launch on a busy machine may fail
        return launch(train, ranks, job, fault, timeout_s=120.0)


def healthy() -> Launched:
    """The run of the job with nothing broken."""
    return run(Job(), Fault())


def of(launched: Launched) -> Sequence[RankEvidence]:
    """The evidence by rank."""
    return cast("Sequence[RankEvidence]", launched.values)


def losses(launched: Launched) -> list[float]:
    """By step: the mean loss of the images of all ranks."""
    ranks = of(launched)
    done = min(len(rank.losses) for rank in ranks)
    return [
        sum(r.losses[i] * r.images[i] for r in ranks) / max(1, sum(r.images[i] for r in ranks)) for i in range(done)
    ]


def step_s(launched: Launched) -> float:
    """Seconds of a step that the slowest rank takes for itself: its loader, its GPU or its CPU."""
    ranks = (rank for rank in of(launched) if rank.gpu_s)
    return max(sum(rank.gpu_s + rank.cpu_s + rank.loader_s) / len(rank.gpu_s) for rank in ranks)


def first_nan(launched: Launched) -> int | None:
    """The first step whose loss isn't finite; None if all are."""
    return next((i for i, loss in enumerate(losses(launched)) if not math.isfinite(loss)), None)


def steps(launched: Launched) -> int:
    """Steps that all ranks have done."""
    return min(len(rank.norms) for rank in of(launched))


def out_of_memory(launched: Launched) -> int | None:
    """The rank that ran out of memory; None if none did."""
    return next((i for i, rank in enumerate(of(launched)) if rank.error.startswith("OutOfMemory")), None)


def held_out_loss(launched: Launched) -> float:
    """Of the rank whose weights differ most from the healthy run's."""
    right = of(healthy())[0].held_out_loss
    return max((rank.held_out_loss for rank in of(launched)), key=lambda loss: abs(loss - right))


def alarm(launched: Launched) -> str:
    """What wakes the engineer: one sentence, which several faults share."""
    done = steps(launched)
    if (rank := out_of_memory(launched)) is not None:
        return f"Rank {rank} ended in step {done}: out of memory. The job's memory was calculated to be enough."
    if done < STEPS:
        return f"No rank has logged a step for 15 minutes. The last was step {done - 1} of {STEPS}."
    if (nan := first_nan(launched)) is not None:
        return f"The loss is NaN from step {nan} on."
    if step_s(launched) > _SLOWER * step_s(healthy()):
        now, before = format_seconds(step_s(launched)), format_seconds(step_s(healthy()))
        return f"A step takes {now} of the ranks' time. Last week it took {before}."
    right, here = of(healthy())[0].held_out_loss, held_out_loss(launched)
    return f"A saved checkpoint has a held-out loss of {here:.2f}. The same job on one GPU reached {right:.2f}."


def complaints(launched: Launched, job: Job, fault: Fault) -> list[str]:
    """All that is wrong with a run, compared with the healthy one; empty for a healthy run."""
    ranks, right = of(launched), of(healthy())
    if ended := [(rank.lost_peer, f"rank {i}: {rank.error}") for i, rank in enumerate(ranks) if rank.error]:
        return [f"It ends after {steps(launched)} of {STEPS} steps ({min(ended)[1]})."]
    found = []
    if (nan := first_nan(launched)) is not None:
        found.append(f"The loss is NaN from step {nan} on.")
    trained, asked = (sum(sum(rank.images) for rank in group) for group in (ranks, right))
    if trained != asked:
        found.append(f"It trains on {trained:,} images in place of {asked:,}, so it is another training.")
    if (changed := min(rank.changed for rank in ranks)) < STEPS:
        found.append(f"{STEPS - changed} of {STEPS} steps change no weights.")
    if len({rank.checksums[-1] for rank in ranks}) > 1:
        found.append("The ranks' weights differ from each other.")
    elif (way := _elsewhere(ranks, right)) > _ELSEWHERE:
        found.append(f"The weights end elsewhere than on one GPU, by {way:.0%} of what training moves them.")
    if step_s(launched) > _SLOWER * step_s(healthy()):
        slow, before = format_seconds(step_s(launched)), format_seconds(step_s(healthy()))
        found.append(f"A step takes {slow} of the slowest rank's time; healthy is {before}.")
    if ranks[0].sent_bytes > _MORE_TRAFFIC * right[0].sent_bytes:
        times = ranks[0].sent_bytes / right[0].sent_bytes
        found.append(f"It sends {times:.1f} times as many bytes in every step, for good.")
    return found + _of_memory(ranks, fault)


def _elsewhere(ranks: Sequence[RankEvidence], right: Sequence[RankEvidence]) -> float:
    """The largest distance of a rank's weights from the healthy run's, as a share of what training moved these."""
    moved = math.dist(right[0].weights, right[0].first_weights)
    ways = [math.dist(rank.weights, right[0].weights) / moved for rank in ranks]
    return max(ways, key=lambda way: math.inf if math.isnan(way) else way)


def _of_memory(ranks: Sequence[RankEvidence], fault: Fault) -> list[str]:
    """What is wrong with the memory of a job that has little to spare."""
    holes = max((r.memory.most_reserved - r.memory.most_used) / r.memory.capacity for r in ranks)
    calls = max(rank.memory.driver_calls for rank in ranks) / STEPS
    if fault.capacity == ROOMY:
        return []
    if calls > _DRIVER_CALLS:
        return [f"It takes memory from the driver {calls:.0f} times in every step, and the GPU waits each time."]
    if holes > _HOLES:
        return [f"{holes:.0%} of the memory lies in holes that no request fits: longer batches end it again."]
    return []
