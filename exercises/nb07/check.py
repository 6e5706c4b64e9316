"""Checks of notebook 07, where time goes. The loop without waits is in loop07, the mended script in watched."""

from __future__ import annotations

import random
from collections.abc import Sequence

from exercises.nb07.loop import mean_loss
from labkit.lesson.checks import NotYet, as_number, call, function, mapping, number_close

Stretch = tuple[float, float]

_GAINS = {
    "faster device": "the device is faster, input and training still take turns",
    "workers": "workers load meanwhile, the device is as before",
    "both": "workers load meanwhile, and the device is faster",
}


def busy_share(answer: object) -> str:
    """The share of a window in which at least one kernel ran."""
    fn = function(answer, [(0.0, 1.0)], 0.0, 2.0)
    for given, kernels, start_s, end_s in _stretches(random.Random(2701)):
        right = _busy_s(kernels, start_s, end_s) / (end_s - start_s)
        value = as_number(call(fn, list(kernels), start_s, end_s), "of the time", given)
        _judge_share(value, right, kernels, start_s, end_s, given)
    return "Right for kernels in any order, side by side, one inside another, beyond the window, and for none."


def _stretches(draw: random.Random) -> list[tuple[str, list[Stretch], float, float]]:
    """What is special about the kernels, the kernels, and the window."""

    def some(n: int, longest_s: float) -> list[Stretch]:
        starts = [draw.uniform(0, 1e-2) for _ in range(n)]
        return [(start_s, start_s + draw.uniform(0.1, 1) * longest_s) for start_s in starts]

    apart = [(i * 1e-3, i * 1e-3 + draw.uniform(1e-4, 9e-4)) for i in range(10)]
    nested = [(1e-3, 8e-3), (2e-3, 3e-3), (4e-3, 4.5e-3), (9e-3, 9.5e-3)]
    shuffled = draw.sample(apart, len(apart))
    return [
        ("kernels apart from each other, in order", apart, 0.0, 1e-2),
        ("kernels apart from each other, in any order", shuffled, 0.0, 1e-2),
        ("a window that doesn't begin at 0", apart, 2.5e-3, 7.1e-3),
        ("a long kernel with short ones beside it", nested, 0.0, 1e-2),
        ("kernels that touch", [(0.0, 1e-3), (1e-3, 2e-3), (2e-3, 4e-3)], 0.0, 5e-3),
        ("kernels on several streams", some(30, 1e-3), 0.0, 1.2e-2),
        ("no kernel at all", [], 1.0, 2.0),
        ("kernels outside the window only", apart, 1.0, 2.0),
        ("one kernel, longer than the window", [(0.0, 9.0)], 1.0, 2.0),
        ("the same kernel twice", [(0.2, 0.5), (0.2, 0.5)], 0.0, 1.0),
    ]


def _busy_s(kernels: Sequence[Stretch], start_s: float, end_s: float) -> float:
    busy_s, covered_s = 0.0, start_s
    for first_s, last_s in sorted(kernels):
        busy_s += max(min(last_s, end_s) - max(first_s, covered_s), 0.0)
        covered_s = max(covered_s, last_s)
    return busy_s


def _judge_share(
    value: float, right: float, kernels: Sequence[Stretch], start_s: float, end_s: float, given: str
) -> None:
    if abs(value - right) <= 1e-9:
        return
    window_s, total_s = end_s - start_s, sum(b - a for a, b in kernels)
    idle, seconds, percent = 1 - right, right * window_s, 100 * right
    whole = _busy_s(kernels, min([start_s, *(a for a, _ in kernels)]), max([end_s, *(b for _, b in kernels)]))
    why = "From the window's begin to its end, in which part was at least one kernel running?"
    for found, words in (
        (idle, "That is the idle share: the busy one was asked for."),
        (seconds, "That is in seconds: the share is it over the window's length."),
        (percent, "That is in percent: a share is 0 to 1."),
        (total_s / window_s, "Kernels that run at the same time count once, and only what lies in the window counts."),
        (whole / window_s, "What lies outside the window doesn't count."),
    ):
        if abs(value - found) <= 1e-9 and abs(found - right) > 1e-9:
            why = words
    raise NotYet(f"For {given}: {value:.4g}, expected {right:.4g}. {why}")


def break_even(answer: object) -> str:
    """The smallest batch at which the device needs as long as the host."""
    fn = function(answer, [1e6], 1e12, 10e-6, 3e-6)
    for given, flop, rate, order_s, least_s in _networks(random.Random(2703)):
        right = _smallest_batch(flop, rate, order_s, least_s)
        value = as_number(call(fn, list(flop), rate, order_s, least_s), "images", given)
        if value == right:
            continue
        if value != int(value):
            raise NotYet(f"For {given}: {value:.6g} images; a batch is a whole number, and {right} was expected.")
        if value == right - 1:
            why = "With one image fewer the host is still the slower one."
        elif value == right + 1:
            why = "With one image fewer the device needs as long as the host already, and that counts."
        elif value == _smallest_batch(flop, rate, order_s, 0.0):
            why = "A kernel takes least_s at the least, however few images it has."
        else:
            why = "Host: order_s for each operator. Device: for each the longer of least_s and flop x batch / rate."
        raise NotYet(f"For {given}: a batch of {value:,.0f}, expected {right:,}. {why}")
    return "Right for one operator and many, for large and small ones together, and where one image is enough."


def _networks(draw: random.Random) -> list[tuple[str, list[float], float, float, float]]:
    def drawn(n: int, low: float, high: float) -> list[float]:
        return [10 ** draw.uniform(low, high) for _ in range(n)]

    def rate() -> float:
        return draw.uniform(0.5, 30) * 1e12

    return [
        ("one operator", drawn(1, 5, 7), rate(), 8e-6, 2e-6),
        ("40 equal operators", drawn(1, 6, 6.5) * 40, rate(), 10e-6, 3e-6),
        ("one large operator among 60 small ones", [*drawn(60, 3, 4), *drawn(1, 7, 8)], rate(), 9e-6, 2.5e-6),
        ("operators of every size", drawn(80, 3, 8), rate(), 7e-6, 3e-6),
        ("operators without arithmetic among others", [0.0] * 30 + drawn(20, 5, 7), rate(), 10e-6, 3e-6),
        ("kernels that are never shorter than an order", drawn(10, 3, 5), rate(), 4e-6, 5e-6),
        ("a batch for which both need exactly as long", [2.0**20], 2.0**40, 2.0**-18, 2.0**-21),
        ("a slow host", drawn(30, 6, 7), rate(), 60e-6, 3e-6),
    ]


def _device_s(flop: Sequence[float], rate: float, least_s: float, batch: int) -> float:
    return sum(max(least_s, one * batch / rate) for one in flop)


def _smallest_batch(flop: Sequence[float], rate: float, order_s: float, least_s: float) -> int:
    """By doubling and halving: the device's time grows with the batch."""
    host_s = order_s * len(flop)
    high = 1
    while _device_s(flop, rate, least_s, high) < host_s:
        high *= 2
    low = high // 2  # too small, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _device_s(flop, rate, least_s, middle) >= host_s else (middle, high)
    return high


def gains(answer: object) -> str:
    """What a faster device, workers that load meanwhile, and both bring to a loop with input."""
    fn = function(answer, 1e-3, 1e-3, 2.0, 2)
    draw = random.Random(2705)
    cases = [(draw.uniform(1, 20), draw.uniform(1, 20), draw.uniform(1.5, 9), draw.randint(1, 8)) for _ in range(5)]
    cases += [(4.0, 1.0, float("inf"), 1), (1.0, 6.0, 2.0, 4), (0.0, 3.0, 2.0, 1), (8.0, 1.0, 10.0, 16)]
    for load_ms, step_ms, factor, workers in cases:
        load_s, step_s = 1e-3 * load_ms, 1e-3 * step_ms
        before_s, faster_s = load_s + step_s, step_s / factor
        right = {
            "faster device": before_s / (load_s + faster_s),
            "workers": before_s / max(load_s / workers, step_s),
            "both": before_s / max(load_s / workers, faster_s),
        }
        given = f"load {load_ms:.3g} ms, step {step_ms:.3g} ms, a factor of {factor:.3g}, workers: {workers}"
        got = mapping(call(fn, load_s, step_s, factor, workers), _GAINS)
        for name, expected in right.items():
            hint = f"Here {_GAINS[name]}. Time before over time after{_pace(name)}."
            number_close(got[name], expected, rel=1e-9, unit="x", given=f"{name}, {given}", hint=hint)
    return "Right for slow input and slow training, for one worker and many, and for a device without end."


def _pace(name: str) -> str:
    return "" if name == "faster device" else ": what runs at the same time takes as long as its slower part"


def script(answer: object) -> str:
    """The mended script. Its check needs torch, which loads when the exercise is judged."""
    from exercises.nb07.watched import mended_script

    return mended_script(answer)


CHECKS = {
    "07.1": busy_share,
    "07.2": mean_loss,
    "07.3": break_even,
    "07.5": gains,
    "07.6": script,
}
