"""Checks of notebook 02, whether a speed-up is real. The check of the fixed benchmark
is in benchmark.
"""

from __future__ import annotations

import math
import random
import statistics

from exercises.nb02.benchmark import benchmark
from labkit.lesson.checks import (
    NotYet,
    as_number,
    call,
    close,
    function,
    number_close,
    over_cases,
)
from labkit.measure.simulated import SimulatedDevice


def timed(answer: object) -> str:
    """Seconds of one call, on simulated devices that are busy before it and still at
    work after it.
    """
    fn = function(answer)
    draw = random.Random(2201)
    for earlier_s in (0.0, draw.uniform(20e-3, 90e-3)):
        device = SimulatedDevice(launch_s=1e-6, compile_s=0.0)
        work_s = draw.uniform(1e-3, 9e-3)
        device.launch(earlier_s)
        calls: list[str] = []

        def work(
            device: SimulatedDevice = device,
            work_s: float = work_s,
            calls: list[str] = calls,
        ) -> None:
            calls.append("work")
            device.launch(work_s)

        def clock(device: SimulatedDevice = device, calls: list[str] = calls) -> float:
            calls.append("clock")
            return device.clock()

        seconds = as_number(call(fn, work, device.synchronize, clock), "seconds")
        if calls.count("clock") < 2:
            raise NotYet(
                "Read the clock that you are given, clock(), before and after: this"
                " device has its own time."
            )
        if calls.count("work") != 1:
            brackets = " Brackets call it: work()." if "work" not in calls else ""
            raise NotYet(
                f"work() was called {calls.count('work')} times; expected once."
                f"{brackets}"
            )
        before = (
            "an idle device"
            if earlier_s == 0
            else "a device with earlier work still in its queue"
        )
        _judge_reading(seconds, work_s, earlier_s, before)
    return "Right for an idle device and for one with earlier work still in its queue."


def _judge_reading(
    seconds: float, work_s: float, earlier_s: float, before: str
) -> None:
    hint = "Seconds, from one reading of the clock to the other?"
    if 0 <= seconds < 0.01 * work_s:
        hint = "The clock was stopped when the work was queued, not when it was done."
    elif earlier_s and abs(seconds - work_s - earlier_s) < 0.01 * work_s:
        hint = (
            "That includes work that was queued earlier: who waits before the clock is"
            " started?"
        )
    number_close(seconds, work_s, rel=0.01, unit="s", hint=hint, given=before)


def relative_spread(answer: object) -> str:
    """Interquartile range over median, by any usual definition of a quartile.

    Every set has an odd number of readings, so that all definitions of a median agree.
    The skewed one is so skewed that a mean in place of the median, or distances from
    the median in place of quartiles, are far off.
    """
    over_cases(
        answer, _sets_of_readings(random.Random(2205)), _spread_range, _judge_spread
    )
    return (
        "Right for 5 to 101 readings in microseconds to minutes, with strays in them"
        " and strongly skewed."
    )


def _sets_of_readings(draw: random.Random) -> dict[str, tuple[list[float]]]:
    sets = {}
    for n, scale_s in ((5, 1e-3), (9, 1.0), (101, 1e-6), (41, 60.0)):
        sigma = draw.uniform(0.05, 0.3)
        readings_s = [
            scale_s * draw.lognormvariate(0.0, sigma) for _ in range(n - 1)
        ] + [20 * scale_s]
        sets[f"{n} readings, one of them a stray"] = (draw.sample(readings_s, n),)
    sets["the 41 readings 2 ** (i / 4)"] = (
        draw.sample([2.0 ** (i / 4) for i in range(41)], 41),
    )
    return sets | {"seven equal readings": ([2.0] * 7,)}


def _spread_range(readings_s: list[float]) -> tuple[float, float]:
    """The smallest and largest spread that the usual definitions of a quartile give."""
    import numpy as np

    methods = [
        *(
            "linear",
            "weibull",
            "hazen",
            "median_unbiased",
            "normal_unbiased",
            "lower",
            "higher",
            "nearest",
            "midpoint",
        ),
        *("inverted_cdf", "averaged_inverted_cdf", "closest_observation"),
    ]
    # The methods are names that numpy takes.
    quartiles = [
        np.percentile(readings_s, [25, 75], method=method)  # type: ignore[call-overload]
        for method in methods
    ]
    ordered = sorted(readings_s)
    half = len(ordered) // 2
    quartiles.append(
        (statistics.median(ordered[:half]), statistics.median(ordered[-half:]))
    )
    spreads = [
        float(high - low) / statistics.median(readings_s) for low, high in quartiles
    ]
    return min(spreads), max(spreads)


def _judge_spread(
    got: object, right: tuple[float, float], case: str, *_: object
) -> None:
    value = as_number(got, "(no unit)", case)
    low, high = right
    if 0.99 * low <= value <= 1.01 * high:
        return
    if high == 0:
        raise NotYet(f"For {case}: they have a spread of 0, got {value:.4g}.")
    if value > 3:
        hint = (
            "One stray reading moves it that far: the middle half of the readings"
            " doesn't depend on the extremes."
        )
    elif value > low:
        hint = (
            "The quartiles leave a quarter of the readings below and a quarter above;"
            " divide by the median."
        )
    else:
        hint = (
            "From the first quartile to the third, not half of it; divide by the"
            " median, so that no unit is left."
        )
    raise NotYet(
        f"For {case}: {value:.4g} is {value / low:.3g}x what we expect. {hint}"
    )


def speedup(answer: object) -> str:
    """Amdahl's law on random shares and factors, and at its edges."""
    draw = random.Random(2206)
    cases = [(draw.random(), draw.uniform(1, 100)) for _ in range(5)]
    cases += [
        (0.0, 10.0),
        (1.0, 10.0),
        (0.9, 1.0),
        (0.75, math.inf),
        (0.0, math.inf),
        (0.5, 0.5),
    ]

    def hint(value: float, share: float, factor: float) -> str:
        if abs(value - left(share, factor)) < 1e-6:
            return "That is the time that is left of 1. How many times faster is that?"
        return (
            "What is left of a time of 1: the part that stays, and the other part"
            " divided by the factor."
        )

    def left(share: float, factor: float) -> float:
        return (1 - share) + share / factor

    over_cases(
        answer,
        cases,
        lambda share, factor: 1 / left(share, factor),
        close("x", hint=hint),
    )
    return (
        "Right for random shares and factors, for shares 0 and 1, and for an infinite"
        " factor."
    )


CHECKS = {"02.1": timed, "02.5": relative_spread, "02.6": speedup, "02.7": benchmark}
