"""Checks of notebook 02, whether a speed-up is real. The mended benchmark's check is in benchmark02."""

from __future__ import annotations

import math
import random
import statistics

from exercises.nb02.benchmark import benchmark
from labkit.lesson.checks import NotYet, as_number, call, function, number_close
from labkit.measure.simulated import SimulatedDevice


def timed(answer: object) -> str:
    """Seconds of one call, on simulated devices that are busy before it and still at work after it."""

    def given() -> tuple[SimulatedDevice, float, list[int]]:
        return SimulatedDevice(launch_s=1e-6, compile_s=0.0), draw.uniform(1e-3, 9e-3), []

    def clock(device: SimulatedDevice, reads: list[float]) -> float:
        reads.append(device.clock())
        return reads[-1]

    draw = random.Random(2201)
    device, work_s, _ = given()
    reads: list[float] = []
    fn = function(answer, lambda: device.launch(work_s), device.synchronize, lambda: clock(device, reads))
    if len(reads) < 2:
        raise NotYet("Use the clock that you are given, clock(), before and after: this device has a time of its own.")
    for earlier_s in (0.0, draw.uniform(20e-3, 90e-3)):
        device, work_s, calls = given()
        device.launch(earlier_s)

        def work(device: SimulatedDevice = device, work_s: float = work_s, calls: list[int] = calls) -> None:
            calls.append(1)
            device.launch(work_s)

        seconds = as_number(call(fn, work, device.synchronize, device.clock), "seconds")
        if len(calls) != 1:
            raise NotYet(f"work() was called {len(calls)} times; expected once.")
        before = "an idle device" if earlier_s == 0 else "a device with earlier work still in its queue"
        _judge_reading(seconds, work_s, earlier_s, before)
    return "Right for an idle device and for one with earlier work still in its queue."


def _judge_reading(seconds: float, work_s: float, earlier_s: float, before: str) -> None:
    if abs(seconds - work_s) <= 0.01 * work_s:
        return
    if 0 <= seconds < 0.01 * work_s:
        hint = "The clock was stopped when the work had been ordered, not when it was done."
    elif earlier_s and abs(seconds - work_s - earlier_s) < 0.01 * work_s:
        hint = "That includes work that somebody ordered before: who waits before the clock is started?"
    else:
        hint = "Seconds, from one reading of the clock to the other?"
    number_close(seconds, work_s, rel=0.01, unit="s", hint=hint, given=before)


def relative_spread(answer: object) -> str:
    """Interquartile range over median, by any usual definition of a quartile.

    Every set has an odd number of readings, so that all definitions of a median agree. The last one is so skewed that
    a mean in place of the median, or distances from the median in place of quartiles, are far off.
    """
    fn = function(answer, [1.0, 2.0, 3.0, 4.0, 5.0])
    for given, readings_s in _sets_of_readings(random.Random(2205)):
        low, high = _iqr_range_s(readings_s)
        median_s = statistics.median(readings_s)
        value = as_number(call(fn, list(readings_s)), "(no unit)", given)
        if not 0.99 * low / median_s <= value <= 1.01 * high / median_s:
            _explain_spread(value, readings_s, low / median_s, given)
    if as_number(call(fn, [2.0] * 7), "(no unit)", "equal readings") != 0:
        raise NotYet("Seven equal readings have a spread of 0.")
    return "Right for 5 to 101 readings in microseconds to minutes, with strays in them and strongly skewed."


def _sets_of_readings(draw: random.Random) -> list[tuple[str, list[float]]]:
    sets = []
    for n, scale_s in ((5, 1e-3), (9, 1.0), (101, 1e-6), (41, 60.0)):
        sigma = draw.uniform(0.05, 0.3)
        readings_s = [scale_s * draw.lognormvariate(0.0, sigma) for _ in range(n - 1)] + [20 * scale_s]
        draw.shuffle(readings_s)
        sets.append((f"{n} readings, one of them a stray", readings_s))
    skewed_s = [2.0 ** (i / 4) for i in range(41)]
    draw.shuffle(skewed_s)
    return [*sets, ("the 41 readings 2 ** (i / 4)", skewed_s)]


def _iqr_range_s(readings_s: list[float]) -> tuple[float, float]:
    """The smallest and largest interquartile range that the usual definitions of a quartile give."""
    import numpy as np

    methods = [
        *("linear", "weibull", "hazen", "median_unbiased", "normal_unbiased", "lower", "higher", "nearest", "midpoint"),
        *("inverted_cdf", "averaged_inverted_cdf", "closest_observation"),
    ]
    quartiles = [np.percentile(readings_s, [25, 75], method=method) for method in methods]  # type: ignore[call-overload]
    ordered = sorted(readings_s)
    half = len(ordered) // 2
    halves = [statistics.median(ordered[-half:]) - statistics.median(ordered[:half])]
    found = [float(high - low) for low, high in quartiles] + halves
    return min(found), max(found)


def _explain_spread(value: float, readings_s: list[float], expected: float, given: str) -> None:
    if value > 3:
        hint = "One stray reading moves it that far: the middle half of the readings should not care about the ends."
    elif value > expected:
        hint = "The quartiles leave a quarter of the readings below and a quarter above; divide by the median."
    else:
        hint = "From the first quartile to the third, not half of it; divide by the median, so that no unit is left."
    raise NotYet(f"For {given}: {value:.4g} is {value / expected:.3g}x what we expect. {hint}")


def speedup(answer: object) -> str:
    """Amdahl's law on random shares and factors, and at its edges."""
    fn = function(answer, 0.5, 2.0)
    draw = random.Random(2206)
    edges = [(0.0, 10.0), (1.0, 10.0), (0.9, 1.0), (0.75, float("inf")), (0.0, float("inf"))]
    slower = [(0.5, 0.5)]
    for share, factor in [(draw.random(), draw.uniform(1, 100)) for _ in range(5)] + edges + slower:
        expected = 1 / ((1 - share) + share / factor)
        given = f"share={share:.3g}, factor={factor:.3g}"
        got = call(fn, share, factor)
        if math.isinf(factor) and isinstance(got, float) and math.isnan(got):
            raise NotYet("For factor=inf your formula gives infinity over infinity: divide both by factor.")
        value = as_number(got, "x", given)
        left = abs(value * expected - 1) < 1e-6 and abs(expected - 1) > 1e-6
        hint = "That is the time that is left of 1. How many times faster is that?" if left else _amdahl_hint
        number_close(value, expected, rel=1e-6, unit="x", given=given, hint=hint)
    return "Right for random shares and factors, for shares 0 and 1, and for a factor without end."


_amdahl_hint = "What is left of a time of 1: the part that stays, and the other part divided by the factor."

CHECKS = {
    "02.1": timed,
    "02.5": relative_spread,
    "02.6": speedup,
    "02.7": benchmark,
}
