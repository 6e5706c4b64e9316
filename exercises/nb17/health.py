"""Run notebook 17's training, once for each job and fault, and say what is wrong with a
run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import cast

from exercises.nb17.device_memory import MIB
from exercises.nb17.settings import RANKS, STEPS, Fault, Job, RankEvidence
from exercises.nb17.training_job import train
from labkit.core.units import format_seconds
from labkit.lesson.time_limit import other_limit
from labkit.measure.dist import launch
from ranks import Launched
from ranks.errors import RankFailed

# of the way from the first to the last weights: rounding to bfloat16 makes 0.013 of it,
# faults 0.06
_ELSEWHERE = 0.04
_SLOWER = 1.25
_MORE_TRAFFIC = 1.5
_HOLES = 0.15
_DRIVER_CALLS = 2
_GROWS = 1.25
_RECOMPUTED = 1.4  # times longer: what a model may cost that fits in no other way
# times the held-out loss of last week's run, where the rate itself was wrong
_WORSE = 1.1
_TOO_HIGH = 0.2
# MiB: a GPU with less can't hold the model; it needs nearly all of less
_TOO_LARGE = 760
_PIECES = 960
_NOTHING = Fault()


@functools.cache
def run(
    job: Job,
    fault: Fault,
    ranks: int = RANKS,
    guard: Callable[..., object] | None = None,
) -> Launched:
    """What the ranks leave: a RankEvidence each."""
    with other_limit():
        try:
            return launch(train, ranks, job, fault, guard, timeout_s=120.0)
        except RankFailed:
            # what is broken on purpose is evidence and never raised; a launch on a busy
            # machine may fail
            return launch(train, ranks, job, fault, guard, timeout_s=120.0)


def healthy(fault: Fault = _NOTHING) -> Launched:
    """The run of the job with nothing broken, on the batches of a run with `fault`."""
    return run(Job(), Fault(full_batches=fault.full_batches))


def of(launched: Launched) -> Sequence[RankEvidence]:
    """The evidence by rank."""
    return cast("Sequence[RankEvidence]", launched.values)


def losses(launched: Launched) -> list[float]:
    """By step: the mean loss of the images of all ranks."""
    ranks = of(launched)
    count = min(len(rank.losses) for rank in ranks)
    return [
        sum(r.losses[i] * r.images[i] for r in ranks)
        / max(1, sum(r.images[i] for r in ranks))
        for i in range(count)
    ]


def step_s(launched: Launched) -> float:
    """Seconds of a step: those that the slowest rank takes for itself, and those of the
    network.
    """
    ranks = (rank for rank in of(launched) if rank.gpu_s)
    return max(
        sum(rank.gpu_s + rank.cpu_s + rank.loader_s + rank.comm_s) / len(rank.gpu_s)
        for rank in ranks
    )


def first_nan(launched: Launched) -> int | None:
    """The first step whose loss isn't finite; None if all are."""
    return next(
        (i for i, loss in enumerate(losses(launched)) if not math.isfinite(loss)), None
    )


def steps(launched: Launched) -> int:
    """Steps that all ranks have done."""
    return min(len(rank.norms) for rank in of(launched))


def ends(launched: Launched, job: Job) -> dict[int, str]:
    """By rank: how it ended; empty for a rank that has done all steps."""
    waited = f"it waited {job.time_limit_minutes:g} minutes for others in a collective"
    return {
        i: waited if rank.lost_peer else rank.error.rstrip(".")
        for i, rank in enumerate(of(launched))
    }


def complaints(launched: Launched, job: Job, was: Job, fault: Fault) -> list[str]:
    """All that is wrong with a run of `job`, which `was` another before the mend; empty
    for a healthy run.
    """
    ranks = of(launched)
    if any(rank.error for rank in ranks):
        first = min(
            range(len(ranks)), key=lambda i: (not ranks[i].error, ranks[i].lost_peer)
        )
        return [
            f"It ends after {steps(launched)} of {STEPS} steps (rank {first}:"
            f" {ends(launched, job)[first]})."
        ]
    of_learning = _of_learning(launched, job, was, fault)
    return of_learning + _of_speed(launched, fault) + _of_memory(ranks, fault)


def _of_learning(launched: Launched, job: Job, was: Job, fault: Fault) -> list[str]:
    """What is wrong with what a run learned, beside the healthy run."""
    ranks = of(launched)
    right = of(healthy(fault))
    sentences = []
    nan_step = first_nan(launched)
    if nan_step is not None:
        sentences.append(f"The loss is NaN from step {nan_step} on.")
    trained = sum(sum(rank.images) for rank in ranks)
    asked = sum(sum(rank.images) for rank in right)
    if trained != asked:
        sentences.append(
            f"It trains on {trained:,} images in place of {asked:,}, so it is another"
            " training."
        )
    changed = min(rank.changed for rank in ranks)
    if changed < STEPS:
        sentences.append(f"{STEPS - changed} of {STEPS} steps change no weights.")
    if len({rank.checksums[-1] for rank in ranks}) > 1:
        return [*sentences, "The ranks' weights differ from each other."]
    was_too_high = was.learning_rate * fault.schedule_factor > _TOO_HIGH
    if was.learning_rate != job.learning_rate and was_too_high:
        loss = max(rank.held_out_loss for rank in ranks)
        right_loss = max(rank.held_out_loss for rank in right)
        if not loss <= _WORSE * right_loss:  # NaN is worse, too
            sentences.append(
                f"The held-out loss is {loss:.2f}; last week's run reached"
                f" {right_loss:.2f}."
            )
        return sentences
    distance = _elsewhere(ranks, right)
    if math.isnan(distance):
        sentences.append("The weights end as NaN.")
    elif distance > _ELSEWHERE:
        sentences.append(
            f"The weights end elsewhere than on one GPU, by {distance:.0%} of what"
            " training moves them."
        )
    return sentences


def _of_speed(launched: Launched, fault: Fault) -> list[str]:
    """What is wrong with a run's step time and traffic, beside the healthy run."""
    sentences = []
    may_recompute = fault.capacity_mib < _TOO_LARGE
    slowdown = _RECOMPUTED if may_recompute else _SLOWER
    usual_s = step_s(healthy(fault))
    if step_s(launched) > slowdown * usual_s:
        slow = format_seconds(step_s(launched))
        usual = format_seconds(usual_s)
        sentences.append(
            f"A step takes {slow} of the slowest rank's time; healthy is {usual}."
        )
    sent_bytes = of(launched)[0].sent_bytes
    right_bytes = of(healthy(fault))[0].sent_bytes
    if sent_bytes > _MORE_TRAFFIC * right_bytes:
        sentences.append(
            f"It sends {sent_bytes / right_bytes:.1f} times as many bytes in every"
            " step, for good."
        )
    return sentences


def _elsewhere(ranks: Sequence[RankEvidence], right: Sequence[RankEvidence]) -> float:
    """The largest distance of a rank's weights from the healthy run's, as a share of
    what training moved these.
    """
    moved = math.dist(right[0].weights, right[0].first_weights)
    ways = [math.dist(rank.weights, right[0].weights) / moved for rank in ranks]
    return max(ways, key=lambda way: math.inf if math.isnan(way) else way)


def _of_memory(ranks: Sequence[RankEvidence], fault: Fault) -> list[str]:
    """What is wrong with the memory of a job that has little to spare."""
    holes = max(
        (r.memory.most_reserved - r.memory.most_used) / r.memory.capacity for r in ranks
    )
    calls = max(rank.memory.driver_calls for rank in ranks) / STEPS
    grown = [(sum(rank.used[10:15]) / 5, sum(rank.used[-5:]) / 5) for rank in ranks]
    if any(late > _GROWS * early for early, late in grown):
        early, late = max(grown, key=lambda pair: pair[1])
        return [
            f"The memory in use still grows, from {early / MIB:,.0f} to"
            f" {late / MIB:,.0f} MiB in {STEPS - 15} steps."
        ]
    if fault.capacity_mib >= _PIECES:
        return []
    if calls > _DRIVER_CALLS:
        return [
            f"It takes memory from the driver {calls:.0f} times in every step, and the"
            " GPU waits each time."
        ]
    if holes > _HOLES and fault.capacity_mib >= _TOO_LARGE:
        return [
            f"{holes:.0%} of the memory lies in holes that no request fits: longer"
            " batches end it again."
        ]
    return []
