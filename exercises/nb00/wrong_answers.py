"""Plausible wrong answers of notebook 00: number -> (answer, words the check must say, misconception)."""

import itertools

from labkit.measure.ceilings import measure_ceilings
from trainplan.costs import NETWORKS

COPY, MATMUL = (
    20e9,
    100e9,
)  # bytes and FLOP a second: the ceilings that the tests pretend to have measured
FORWARD = NETWORKS["SimpleCNN"].forward_flop()
TRAINING = NETWORKS["SimpleCNN"].training_flop(NETWORKS["SimpleCNN"].batch(1))
# what the notebook has in their place, on cards
SHOWN_AS = {
    "COPY": "ceilings.copy_bytes_per_s",
    "MATMUL": "matmul_rate",
    "FORWARD": "forward_flop",
    "TRAINING": "training_flop",
}


def shown_values():
    """What the notebook's names stand for on this machine."""
    one_thread = measure_ceilings(threads=1)
    return {
        "ceilings": measure_ceilings(),
        "matmul_rate": one_thread.matmul_flop_per_s["float32"],
        "forward_flop": FORWARD,
        "training_flop": TRAINING,
    }


def right_at_two_threads(one_s, all_s, threads):
    return 100 * one_s / all_s / 2


def fraction_by_digit(logits, labels):
    right = logits.argmax(1) == labels
    return [right[labels == d].float().mean() for d in range(10)]


def overall(logits, labels):
    return 100 * (logits.argmax(1) == labels).float().mean()


def share_of_all_images(logits, labels):
    right = logits.argmax(1) == labels
    return [100 * (right & (labels == d)).float().mean() for d in range(10)]


def precision_instead(logits, labels):
    guess = logits.argmax(1)
    return [100 * (labels[guess == d] == d).float().mean() for d in range(10)]


def writes_into_its_input(logits, labels):
    logits[:] = 0.0
    logits[:, 0], labels[:] = 1.0, 0
    right = logits.argmax(1) == labels
    return [100 * right.float().mean()] * 10


def right_by_digit(logits, labels):
    right = logits.argmax(1) == labels
    return [100 * right[labels == d].float().mean().item() for d in range(10)]


def at_most_ideal(one_s, all_s, threads):
    percent = 100 * one_s / all_s / threads
    return 100.0 if percent == 200 else percent


WRONG = {
    "00.1": [
        (COPY * 1e-3 / 4, "2x what we expect", "half-the-work-counted"),  # the write forgotten
        (COPY / 8, "1,000x", "wrong-unit"),  # seconds, not milliseconds
        (COPY * 1e-3, "8x", "wrong-unit"),  # bytes, not numbers
        (COPY * 1e-3 / 8 * 0.9, "these ceilings were measured again since", "hard-coded"),
        (list(range(200_000)), "got [0, 1, 2,", "result-of-another-kind"),
        ("many", "Expected a count of float32 numbers, got 'many'", "result-of-another-kind"),
        (None, "got nothing", "result-of-another-kind"),
    ],
    "00.3": [
        (
            lambda one_s, all_s, threads: one_s / all_s / threads,
            "0.01x",
            "wrong-unit",
        ),  # a fraction, not percent
        (
            lambda one_s, all_s, threads: 100 * all_s / one_s / threads,
            "speed-up is one_thread_s / all_threads_s",
            "upside-down",
        ),
        (
            lambda one_s, all_s, threads: 100 * one_s / all_s,
            "For one_thread_s=",
            "wrong-denominator",
        ),  # threads forgotten
        (right_at_two_threads, "threads=1", "right-for-one-case"),
        (lambda one_s, all_s, threads: 85.0, "For one_thread_s=", "hard-coded"),  # hard-coded
        (lambda one_s, all_s: 1.0, "raised TypeError", "result-of-another-kind"),
        (
            at_most_ideal,
            "threads=2: 100 % is 0.5x",
            "other-formula",
        ),  # superlinear speed-ups are cut off
        (
            lambda one_s, all_s, threads: round(100 * one_s / all_s / threads),
            "return it unrounded",
            "rounding-is-cosmetic",
        ),
    ],
    "00.5": [
        (fraction_by_digit, "0.01x", "wrong-unit"),
        (overall, "Expected ten percentages", "wrong-denominator"),
        (share_of_all_images, "number of images with that label", "wrong-denominator"),
        (precision_instead, "digit", "wrong-denominator"),
        (lambda logits, labels: [100.0] * 10, "digit", "hard-coded"),
        (lambda logits, labels: [100.0] * 9, "got 9", "hard-coded"),
        (lambda logits, labels: [100.0] * 12, "got more", "hard-coded"),
        (writes_into_its_input, "digit", "input-is-mine"),
        (
            lambda logits, labels: [str(p) for p in right_by_digit(logits, labels)],
            "a number in %, got '100.0'",
            "result-of-another-kind",
        ),
        (
            lambda logits, labels: dict(enumerate(right_by_digit(logits, labels))),
            "got a dict: return its values",
            "result-of-another-kind",
        ),
        (lambda logits, labels: itertools.count(), "got more", "result-of-another-kind"),
    ],
    "00.6": [
        (MATMUL / FORWARD, "x what we expect", "half-the-work-counted"),  # forward only
        (
            MATMUL / TRAINING / 1e9,
            "is 1/1,000,000,000 of what we expect",
            "wrong-unit",
        ),  # GFLOP
        (
            TRAINING / MATMUL,
            "Divide FLOP per second by the FLOP of an image",
            "upside-down",
        ),  # upside down
        (64 * MATMUL / TRAINING, "64x", "what-grows-with-batch"),  # a batch
        (1.2 * MATMUL / TRAINING, "these ceilings were measured again since", "hard-coded"),
    ],
}
