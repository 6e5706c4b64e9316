"""Checks of notebook 00, how fast this machine is at training."""

from __future__ import annotations

import itertools
import random
from typing import Any

from labkit.lesson.checks import NotYet, as_number, close, number_close, over_cases
from labkit.measure.ceilings import measure_ceilings
from trainplan.costs import NETWORKS


def numbers_per_ms(answer: object) -> str:
    """float32 numbers copied in a millisecond at the measured copy rate: 8 bytes of
    traffic each.
    """
    expected = measure_ceilings().copy_bytes_per_s * 1e-3 / 8
    return _by_ceiling(
        answer, expected, "float32 numbers", "Bytes read and written? Milliseconds?"
    )


def limit_images_per_s(answer: object) -> str:
    """One thread's matmul rate over the FLOP of training on an image."""
    network = NETWORKS["SimpleCNN"]
    expected = measure_ceilings(threads=1).matmul_flop_per_s[
        "float32"
    ] / network.training_flop(network.batch(1))
    return _by_ceiling(
        answer, expected, "images/s", "Divide FLOP per second by the FLOP of an image."
    )


def _by_ceiling(answer: object, expected: float, unit: str, hint: str) -> str:
    """Judge within 1 %; from there to 30 % the ceiling may have been measured again
    since the reader's cell ran.
    """
    value = as_number(answer, unit)
    if 0.01 < abs(value / expected - 1) <= 0.3:
        raise NotYet(
            f"{value:.4g} {unit} is close. Either a factor is wrong, or these ceilings"
            " were measured again since: then run the cell with"
            f" lab.measure_ceilings() again, and yours. {hint}"
        )
    return number_close(answer, expected, rel=0.01, unit=unit, hint=hint)


def efficiency_percent(answer: object) -> str:
    """Speed-up over threads, in percent, on random times and where two threads are four
    times as fast as one.
    """
    draw = random.Random(2003)
    cases = [
        (draw.uniform(0.5, 2.0), draw.uniform(0.01, 3.0), threads)
        for threads in (2, 1, 3, 16, 97)
    ]

    def expected(one_thread_s: float, all_threads_s: float, threads: int) -> float:
        return 100 * one_thread_s / all_threads_s / threads

    hint = (
        "The speed-up is one_thread_s / all_threads_s; the answer is in percent: 91,"
        " not 0.91."
    )
    over_cases(
        answer, [*cases, (2.0, 0.5, 2)], expected, close("%", rel=1e-3, hint=hint)
    )
    return (
        "Right for 1 to 97 threads, also where more threads are slower, or faster than"
        " ideal."
    )


def accuracy_by_digit(answer: object) -> str:
    """Per-class accuracy in percent, on random logits with unequal classes."""
    import torch

    draw = torch.Generator().manual_seed(2005)

    def batch(n: int) -> tuple[Any, Any]:
        labels = torch.cat(
            [torch.arange(10), torch.randint(0, 4, (n,), generator=draw)]
        )
        logits = torch.randn(len(labels), 10, generator=draw)
        logits[torch.arange(len(labels)), labels] += 1.5
        return logits, labels

    def expected(logits: Any, labels: Any) -> list[float]:
        right = logits.argmax(dim=1) == labels
        return [
            100 * right[labels == digit].float().mean().item() for digit in range(10)
        ]

    over_cases(
        answer,
        {f"{n + 10:,} images": batch(n) for n in (0, 1, 30, 1013)},
        expected,
        _judge_accuracies,
    )
    return "Right for 10 to 1,023 images, with as few as one image of a digit."


def _judge_accuracies(got: Any, right: list[float], case: str, *_: object) -> None:
    """Ten values of whatever holds them; at most eleven are taken, since an iterator
    may have no end.
    """
    if isinstance(got, dict):
        raise NotYet(
            "Expected a list of ten percentages, got a dict: return its values."
        )
    if got is None:
        raise NotYet("Expected ten percentages, got nothing. Is there a return?")
    try:
        values = list(itertools.islice(got, 11))
    except TypeError as error:
        raise NotYet(
            f"Expected ten percentages, got one {type(got).__name__}. One for each"
            " digit? A return inside of a loop ends the loop."
        ) from error
    if len(values) != 10:
        count = "more" if len(values) > 10 else len(values)
        raise NotYet(f"Expected ten percentages, one for each digit, got {count}.")
    hint = (
        "Divide by the number of images with that label, not by all of them or by those"
        " predicted; in percent."
    )
    for digit, (value, expected) in enumerate(zip(values, right, strict=True)):
        number_close(
            value,
            expected,
            rel=1e-3,
            unit="%",
            given=f"digit {digit} of {case}",
            hint=hint,
        )


CHECKS = {
    "00.1": numbers_per_ms,
    "00.3": efficiency_percent,
    "00.5": accuracy_by_digit,
    "00.6": limit_images_per_s,
}
