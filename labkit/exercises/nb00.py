"""Checks of notebook 00, how fast this machine is at training."""

from __future__ import annotations

import random
from typing import Any

from labkit.ceilings import measure_ceilings
from labkit.checks import Exercise, NotYet, call, function, number_close
from labkit.costs import NETWORKS


def numbers_per_ms(answer: object) -> str:
    """float32 numbers copied in a millisecond at the measured copy rate: 8 bytes of traffic each."""
    expected = measure_ceilings().copy_bytes_per_s * 1e-3 / 8
    return number_close(
        answer, expected, rel=0.01, unit="float32 numbers", hint="Bytes read and written? Milliseconds?"
    )


def efficiency_percent(answer: object) -> str:
    """Speed-up over threads, in percent, on random times."""
    fn = function(answer, 2.0, 1.0, 2)
    draw = random.Random()
    for threads in (2, 1, 3, 16, 97):
        one_s, all_s = draw.uniform(0.5, 2.0), draw.uniform(0.01, 3.0)
        given = f"one_thread_s={one_s:.3f}, all_threads_s={all_s:.3f}, threads={threads}"
        expected = 100 * one_s / all_s / threads
        number_close(call(fn, one_s, all_s, threads), expected, rel=1e-6, unit="%", given=given, hint=_efficiency_hint)
    return "Right for 1 to 97 threads, also where more threads are slower."


_efficiency_hint = "The speed-up is one_thread_s / all_threads_s; the answer is in percent: 91, not 0.91."


def accuracy_by_digit(answer: object) -> str:
    """Per-class accuracy in percent, on random logits with unequal classes."""
    import torch

    def batch(n: int) -> tuple[Any, Any]:
        labels = torch.cat([torch.arange(10), torch.randint(0, 4, (n,))])
        logits = torch.randn(len(labels), 10)
        logits[torch.arange(len(labels)), labels] += 1.5
        return logits, labels

    fn = function(answer, *batch(30))
    for n in (0, 1, 30, 1013):
        logits, labels = batch(n)
        got = call(fn, logits, labels)
        try:
            values = [float(value) for value in got]
        except (TypeError, ValueError) as error:
            raise NotYet(f"Expected ten percentages, got {type(got).__name__}. One for each digit?") from error
        if len(values) != 10:
            raise NotYet(f"Expected ten percentages, one for each digit, got {len(values)}.")
        right = logits.argmax(dim=1) == labels
        for digit in range(10):
            expected = 100 * right[labels == digit].float().mean().item()
            given = f"digit {digit} of {len(labels)} images"
            number_close(values[digit], expected, rel=1e-4, unit="%", given=given, hint=_accuracy_hint)
    return "Right for 10 to 1,023 images, with as few as one image of a digit."


_accuracy_hint = "Divide by the number of images with that label, not by all of them or by those predicted; in percent."


def limit_images_per_s(answer: object) -> str:
    """One thread's matmul rate over the FLOP of training on an image."""
    network = NETWORKS["SimpleCNN"]
    expected = measure_ceilings(threads=1).matmul_flop_per_s["float32"] / network.training_flop(network.batch(1))
    return number_close(answer, expected, rel=0.01, unit="images/s", hint="FLOP a second over the FLOP of an image.")


EXERCISES = {
    "00.1": Exercise(
        numbers_per_ms,
        (
            "How many bytes does the copy rate allow in one millisecond? There are 1,000 milliseconds in a second.",
            "Each number takes 4 bytes of reading and 4 of writing, and the rate counts both.",
            "Divide the bytes of a millisecond, `ceilings.copy_bytes_per_s / 1000`, by the bytes of a number.",
        ),
    ),
    "00.3": Exercise(
        efficiency_percent,
        (
            "With the speed-up in hand, what would the ideal speed-up be?",
            "Speed-up is old time over new time. The ideal one equals the number of threads.",
            "`100 * (one_thread_s / all_threads_s)`, divided by one more thing.",
        ),
    ),
    "00.5": Exercise(
        accuracy_by_digit,
        (
            "First make a tensor that says for every image whether it was read correctly.",
            "For one digit, look only at the images whose label it is: `right[labels == digit]`.",
            "The mean of a tensor of truths needs `.float()` first; collect ten of them in a list.",
        ),
    ),
    "00.6": Exercise(
        limit_images_per_s,
        (
            "A rate in FLOP a second, a cost in FLOP an image: which division gives images a second?",
            "Training needs forward and backward: that is `training_flop`.",
            "`matmul_rate` divided by `training_flop`.",
        ),
    ),
}
