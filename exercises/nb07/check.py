"""Checks of notebook 07, where time goes. The check of the fixed script
is in watched.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exercises.nb07.nsight_reports import published
from labkit.core.arguments import brief_repr
from labkit.core.units import format_seconds, format_si
from labkit.lesson.checks import (
    NotYet,
    as_number,
    call,
    close,
    function,
    mapping,
    number_close,
    over_cases,
)
from labkit.measure.simulated import TrainingJob
from labkit.measure.simulated.training_loop import LAUNCH_S, DeviceLoss

Stretch = tuple[float, float]

_SLACK = 1.08  # of the least time: launches and sums that a loop may take besides


def busy_share(answer: object) -> str:
    """The share of a window in which at least one kernel ran."""
    over_cases(
        answer,
        _windows(random.Random(2701)),
        _busy_share,
        close("of the time", rel=1e-9, hint=_share_hint),
    )
    return (
        "Right for kernels in any order, in parallel, one inside another, beyond the"
        " window, and for none."
    )


def _windows(draw: random.Random) -> dict[str, tuple[list[Stretch], float, float]]:
    """What is special about the kernels -> the kernels and the window."""
    starts = [draw.uniform(0, 1e-2) for _ in range(30)]
    streams = [(start_s, start_s + draw.uniform(1e-4, 1e-3)) for start_s in starts]
    apart = [(i * 1e-3, i * 1e-3 + draw.uniform(1e-4, 9e-4)) for i in range(10)]
    nested = [(1e-3, 8e-3), (2e-3, 3e-3), (4e-3, 4.5e-3), (9e-3, 9.5e-3)]
    return {
        "kernels one after another, in order": (apart, 0.0, 1e-2),
        "kernels one after another, in any order": (
            draw.sample(apart, len(apart)),
            0.0,
            1e-2,
        ),
        "a window that doesn't start at 0": (apart, 2.5e-3, 7.1e-3),
        "a long kernel with short ones during it": (nested, 0.0, 1e-2),
        "kernels that touch": ([(0.0, 1e-3), (1e-3, 2e-3), (2e-3, 4e-3)], 0.0, 5e-3),
        "kernels on several streams": (streams, 0.0, 1.2e-2),
        "no kernel at all": ([], 1.0, 2.0),
        "kernels outside the window only": (apart, 1.0, 2.0),
        "one kernel, longer than the window": ([(0.0, 9.0)], 1.0, 2.0),
        "the same kernel twice": ([(0.2, 0.5), (0.2, 0.5)], 0.0, 1.0),
    }


def _busy_share(kernels: Sequence[Stretch], start_s: float, end_s: float) -> float:
    busy_s = 0.0
    covered_s = start_s
    for first_s, last_s in sorted(kernels):
        busy_s += max(min(last_s, end_s) - max(first_s, covered_s), 0.0)
        covered_s = max(covered_s, last_s)
    return busy_s / (end_s - start_s)


def _share_hint(
    value: float, kernels: Sequence[Stretch], start_s: float, end_s: float
) -> str:
    right = _busy_share(kernels, start_s, end_s)
    window_s = end_s - start_s
    begin_s = min([start_s, *(a for a, _ in kernels)])
    last_s = max([end_s, *(b for _, b in kernels)])
    whole_s = _busy_share(kernels, begin_s, last_s) * (last_s - begin_s)
    for share, words in (
        (whole_s / window_s, "What lies outside the window doesn't count."),
        (
            sum(b - a for a, b in kernels) / window_s,
            "Kernels that run in parallel count once, and only in the window.",
        ),
        (100 * right, "That is in percent; a share is 0 to 1."),
        (right * window_s, "That is in seconds: divide it by the window's length."),
        (1 - right, "That is the idle share; the busy share was asked for."),
    ):
        if abs(value - share) <= 1e-9:
            return words
    return (
        "From the window's start to its end, during which part was at least one kernel"
        " running?"
    )


def mean_loss(answer: object) -> str:
    """The mean loss of a loop that waits once, on jobs whose host or whose device is
    the slower one.
    """
    fn = function(answer)
    draw = random.Random(2702)
    for steps, host, device in (
        (1, 1.0, 1.0),
        (40, 1.0, 1.0),
        (25, 0.4, 1.0),
        (33, 1.0, 0.3),
        (300, 0.9, 1.0),
    ):
        scale_s = draw.uniform(1e-3, 5e-3)
        job = TrainingJob(
            prepare_s=host * scale_s,
            step_s=device * scale_s,
            seed=draw.randrange(10**6),
        )
        as_given = job.device, job.prepare_s, job.step_s
        case = (
            f"{format_si(steps, 'steps')} of {format_seconds(job.prepare_s)} on the"
            f" host, {format_seconds(job.step_s)} on the device"
        )
        returned = call(fn, job, steps)
        if isinstance(returned, DeviceLoss):
            raise NotYet(
                f"For {case}: what it returns is still on the device. Return its"
                " number, by `.item()`."
            )
        if (job.device, job.prepare_s, job.step_s) != as_given:
            raise NotYet(
                "The loop changed the job's device or its times. Change only the order"
                " of the calls."
            )
        reads = job.reads
        taken_s = job.seconds
        losses = job.losses
        if len(losses) != steps:
            raise NotYet(f"For {case}: {len(losses)} steps were queued.")
        hint = "Is it the mean of all losses?"
        right = math.fsum(losses) / steps
        number_close(returned, right, rel=1e-9, unit="(no unit)", given=case, hint=hint)
        _judge_seconds(job, taken_s, reads, steps, case)
    return "Every loss counts, and the host waits only after the last step is queued."


def _judge_seconds(
    job: TrainingJob, taken_s: float, reads: int, steps: int, case: str
) -> None:
    """Whether host and device overlapped: the slower one sets the pace, and the other
    shows only once.
    """
    slower_s = max(job.prepare_s, job.step_s)
    faster_s = min(job.prepare_s, job.step_s)
    best_s = steps * slower_s + faster_s + steps * 4 * LAUNCH_S
    if taken_s <= _SLACK * best_s:
        return
    took = (
        f"For {case}: the loop took {format_seconds(taken_s)}, and"
        f" {format_seconds(best_s)} are enough."
    )
    if reads > 1 + steps // 10:
        raise NotYet(
            f"{took} The host read a loss {reads} times, and waited for the device each"
            " time; the device then had nothing to do while the host prepared the next"
            " batch."
        )
    raise NotYet(
        f"{took} Host and device did not work at the same time. Queue each step as soon"
        " as its batch is prepared, and wait for nothing in between."
    )


_GAINS = {
    "faster device": "the device is faster, but input and training still take turns",
    "workers": (
        "workers load meanwhile, and the device is as before: the slower part takes all"
        " the time"
    ),
    "both": (
        "workers load meanwhile, and the device is faster: the slower part takes all"
        " the time"
    ),
}


def gains(answer: object) -> str:
    """What a faster device, workers that load meanwhile, and both bring to a loop with
    input.
    """
    draw = random.Random(2705)
    cases = [
        (
            draw.uniform(1, 20),
            draw.uniform(1, 20),
            draw.uniform(1.5, 9),
            draw.randint(1, 8),
        )
        for _ in range(5)
    ]
    cases += [
        (4.0, 1.0, float("inf"), 1),
        (1.0, 6.0, 2.0, 4),
        (0.0, 3.0, 2.0, 1),
        (8.0, 1.0, 10.0, 16),
    ]
    in_s = [
        (1e-3 * load_ms, 1e-3 * step_ms, factor, workers)
        for load_ms, step_ms, factor, workers in cases
    ]
    over_cases(answer, in_s, _right_gains, _judge_gains)
    return (
        "Right for slow input and slow training, for one worker and many, and for an"
        " infinitely fast device."
    )


def _right_gains(
    load_s: float, step_s: float, factor: float, workers: int
) -> dict[str, float]:
    before_s = load_s + step_s
    faster_s = step_s / factor
    return {
        "faster device": before_s / (load_s + faster_s),
        "workers": before_s / max(load_s / workers, step_s),
        "both": before_s / max(load_s / workers, faster_s),
    }


def _judge_gains(got: object, right: dict[str, float], case: str, *_: object) -> None:
    gains = mapping(got, _GAINS)
    for name, expected in right.items():
        hint = f"Here {_GAINS[name]}. Divide the time before by the time after."
        number_close(
            gains[name],
            expected,
            rel=1e-9,
            unit="x",
            given=f"{name}, {case}",
            hint=hint,
        )


# question -> the answers to choose from, the right one first, and what to look at
_CHOICES: dict[str, tuple[tuple[str, ...], str]] = {
    "device waits for": (
        ("launches", "copies", "memory", "synchronization"),
        "Hold the rows of cuda_api_sum against Profile_Loop's time: which one takes"
        " nearly all of it? No copy is in the range, and cudaFree came before it.",
    ),
    "host waits for": (
        ("kernels", "copies", "launches", "memory"),
        "cudaMemcpy returns when its copy is done, and the copy begins when all work"
        " before it is. Which row of the device is as long as the rest of cudaMemcpy?",
    ),
    "memory level": (
        ("L2", "L1/TEX", "DRAM"),
        "Memory Throughput is the percentage of one of the rows below it. Which row"
        " has the same number?",
    ),
    "occupancy limit": (
        ("grid size", "block size", "registers", "shared memory"),
        "Theoretical occupancy is 100 %: no block limit keeps warps off an SM. How many"
        " blocks are there for all SMs together (Waves Per SM)?",
    ),
    "first change": (
        ("coalesce loads", "pad the tile", "fewer registers", "more blocks"),
        "It is about the kernel `naive`: which of its rows is far from the best value?",
    ),
    "warps wait for": (
        ("data", "arithmetic", "a barrier", "shared memory"),
        "The longest row names it. A long scoreboard tracks requests to L1/TEX and what"
        " lies behind it, a short one shared memory.",
    ),
}
# question -> the unit of its number, and how far it may be off when it is rounded
_NUMBERS = {
    "idle": ("% of Profile_Loop", 0.02),
    "full wave": ("blocks", 0.02),
    "fewest sectors": ("sectors", 0.02),
    "conflicts": ("% of the wavefronts", 0.02),
}


def reports(answer: object) -> str:
    """Ten answers that are read off the published reports."""
    answers = mapping(answer, dict.fromkeys((*_CHOICES, *_NUMBERS), "an answer"))
    for name, (right, hint) in _read_numbers().items():
        given = answers[name]
        unit, rounding = _NUMBERS[name]
        advice = hint(as_number(given, unit, name))
        number_close(given, right, rel=rounding, unit=unit, given=name, hint=advice)
    for name, (choices, advice) in _CHOICES.items():
        _judge_choice(name, answers[name], choices, advice)
    return (
        "Right: the loop is launch-bound, cudaMemcpy waits for the kernels, throw_dart"
        " has too few blocks, the naive transpose loads four times the sectors, and the"
        " product waits for data."
    )


def _judge_choice(
    name: str, given: object, choices: tuple[str, ...], advice: str
) -> None:
    chosen = given.strip().casefold() if isinstance(given, str) else given
    if chosen not in [choice.casefold() for choice in choices]:
        listed = ", ".join(map(repr, sorted(choices)))
        raise NotYet(f"{name}: expected one of {listed}; got {brief_repr(given)}.")
    if chosen != choices[0].casefold():
        raise NotYet(f"{name}: not {given!r}. {advice}")


def _read_numbers() -> dict[str, tuple[float, Callable[[float], str]]]:
    """Question -> the number that the reports give, and a hint for another one."""
    tiny = published("tiny")
    loop = tiny.value("Profile_Loop", "Total Time (ns)")
    kernels = tiny.value("vectorAdd", "Total Time (ns)")
    of_loop = 1000 / tiny.value("vectorAdd", "Instances")  # the others warm up
    idle = 100 * (1 - of_loop * kernels / loop)
    kernel = published("throw_dart")
    transpose = published("transpose")
    full_wave = kernel.value("Grid Size") / kernel.value("Waves Per SM")
    wavefronts = transpose.value("wavefronts of stores to shared memory", "tiled")
    extra = transpose.value("of these, for bank conflicts", "tiled")
    conflicts = 100 * extra / wavefronts
    return {
        "idle": (idle, functools.partial(_percent_hint, idle, _IDLE)),
        "full wave": (full_wave, functools.partial(_wave_hint, right=full_wave)),
        "fewest sectors": (32 * 8 / 32, _sector_hint),
        "conflicts": (
            conflicts,
            functools.partial(_percent_hint, conflicts, _CONFLICTS),
        ),
    }


class _PercentHints(NamedTuple):
    """What to say of the rest in place of a share, and of anything else."""

    rest: str
    otherwise: str


_IDLE = _PercentHints(
    rest="That is the busy share.",
    otherwise=(
        "The range's time is in nvtx_sum, and how long kernels ran in"
        " cuda_gpu_kern_sum. The rest of the range, divided by the range."
    ),
)
_CONFLICTS = _PercentHints(
    rest="That is what would be left without conflicts.",
    otherwise="Divide the two rows on shared memory, in the column of `tiled`.",
)


def _percent_hint(right: float, hints: _PercentHints, value: float) -> str:
    """What to say of another number than the `right` one, in percent."""
    if math.isclose(100 * value, right, rel_tol=0.02):
        return "That is a share of 1; it is asked for in percent."
    if math.isclose(value, 100 - right, rel_tol=0.02):
        return hints.rest
    return hints.otherwise


def _wave_hint(value: float, right: float) -> str:
    if value < right / 10:
        return "That is one SM; all SMs together are asked for."
    if value > right:
        return (
            "By registers alone that many would fit. The smallest block limit counts,"
            " and Waves Per SM holds it already."
        )
    return (
        "A wave is as many blocks as fit at once: these blocks are Waves Per SM of it."
    )


def _sector_hint(value: float) -> str:
    if value == 4:
        return "That is for numbers of 4 bytes; float64 has 8."
    return (
        "A warp is 32 lanes, a float64 has 8 bytes, and a sector 32: how many sectors"
        " hold what the 32 lanes ask for, if it lies in a row?"
    )


def script(answer: object) -> str:
    """The fixed script. Its check needs torch, which loads when the
    exercise is judged.
    """
    from exercises.nb07.watched import fixed_script

    return fixed_script(answer)


CHECKS = {
    "07.1": busy_share,
    "07.2": mean_loss,
    "07.5": gains,
    "07.5b": reports,
    "07.6": script,
}
