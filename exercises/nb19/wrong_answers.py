"""Plausible wrong answers of notebook 19: number -> (answer, words the check must say, misconception)."""

import math
import statistics

import torch

# 19.3


def in_nats(loss, tokens, n_bytes):
    return loss * tokens / n_bytes


def nats_are_larger(loss, tokens, n_bytes):
    return loss * tokens * math.log(2) / n_bytes


def bits_a_token(loss, tokens, n_bytes):
    return loss / math.log(2)


def other_way_round(loss, tokens, n_bytes):
    return loss * n_bytes / math.log(2) / tokens


def whole_text(loss, tokens, n_bytes):
    return loss * tokens / math.log(2)


def perplexity(loss, tokens, n_bytes):
    return math.exp(loss)


def bits_of_a_byte(loss, tokens, n_bytes):
    return loss * tokens / math.log(2) / n_bytes / 8


def tokens_are_bytes(loss, tokens, n_bytes):
    return round(loss * tokens / math.log(2) / n_bytes, 2)


# 19.4a


def averaged(mean):
    def factors(below, rung):
        machine = mean([a[0] / a[1] * b[1] / b[0] for a, b in zip(below, rung, strict=True)])
        return machine, mean([a[1] / b[1] for a, b in zip(below, rung, strict=True)])

    return factors


right_factors = averaged(statistics.geometric_mean)


def seconds_and_tokens(below, rung):
    _, learning = right_factors(below, rung)
    return statistics.geometric_mean(
        a[0] / b[0] for a, b in zip(below, rung, strict=True)
    ), learning


def seconds_times_tokens(below, rung):
    machine, learning = right_factors(below, rung)
    return machine * learning**2, learning


def upside_down(below, rung):
    machine, learning = right_factors(below, rung)
    return 1 / machine, 1 / learning


def swapped(below, rung):
    return right_factors(below, rung)[::-1]


def of_sums(below, rung):
    return right_factors(below, rung)[0], sum(a[1] for a in below) / sum(b[1] for b in rung)


def one_gain(below, rung):
    return math.prod(right_factors(below, rung))


# 19.4b


def iterated(steps=5, scaled=True, transposed=True):
    def orthogonal(gradient):
        tall = transposed and len(gradient) > gradient.shape[1]
        x = gradient.T if tall else gradient
        x = x / (x.norm() + 1e-7) if scaled else x
        for _ in range(steps):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x.T if tall else x

    return orthogonal


def only_scaled(gradient):
    return gradient / (gradient.norm() + 1e-7)


def by_zero(gradient):
    return iterated(scaled=False)(gradient / gradient.norm())


def signs(gradient):
    return gradient.sign()


def left_transposed(gradient):
    x = gradient.T if len(gradient) > gradient.shape[1] else gradient
    return iterated()(x)


def other_product(gradient):
    x = gradient / (gradient.norm() + 1e-7)
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    return x


def rows_of_length_one(gradient):
    return gradient / (gradient.norm(dim=1, keepdim=True) + 1e-7)


# 19.6


def bytes_read(numbers):
    return lambda w, layers, width, context, batch, each, rate: (
        numbers(w, layers * width * context, layers, batch) * each / rate
    )


WRONG = {
    "19.3": [
        (in_nats, "That is in nats", "wrong-unit"),
        (nats_are_larger, "a nat is more than a bit", "upside-down"),
        (bits_a_token, "share them out among the bytes", "wrong-denominator"),
        (other_way_round, "the other way round", "upside-down"),
        (whole_text, "bits of the whole text", "wrong-denominator"),
        (perplexity, "perplexity", "other-formula"),
        (bits_of_a_byte, "A byte isn't taken apart", "wrong-unit"),
        (tokens_are_bytes, "unrounded", "rounding-is-cosmetic"),
        (lambda loss, tokens, n_bytes: None, "got nothing", "result-of-another-kind"),
        (
            lambda loss, tokens, n_bytes: 3.58,
            "Bits of the whole text over its bytes",
            "hard-coded",
        ),
    ],
    "19.4a": [
        (seconds_and_tokens, "divide seconds by tokens first", "gain-has-no-order"),
        (seconds_times_tokens, "not seconds times tokens", "upside-down"),
        (upside_down, "upside down", "upside-down"),
        (swapped, "in the other order", "result-of-another-kind"),
        (averaged(statistics.fmean), "geometric mean", "averaged-at-the-wrong-place"),
        (averaged(statistics.median), "geometric mean", "averaged-at-the-wrong-place"),
        (of_sums, "Take each seed's own ratio", "pairs-mixed-up"),
        (
            one_gain,
            "expected (gain in seconds a token, gain in tokens)",
            "result-of-another-kind",
        ),
        (lambda below, rung: (1.0, 1.0), "geometric mean", "hard-coded"),
    ],
    "19.4b": [
        (only_scaled, "as unequal as before", "other-formula"),
        (iterated(steps=4), "the result of 4 steps", "off-by-one"),
        (iterated(steps=6), "the result of 6 steps", "off-by-one"),
        (iterated(scaled=False), "divided by its norm first", "right-for-one-case"),
        (by_zero, "may that be 0", "zero-never-happens"),
        (left_transposed, "of the gradient's shape", "axes-swapped"),
        (
            lambda gradient: iterated()(gradient.bfloat16()),
            "use float32",
            "low-precision-is-enough",
        ),
        (signs, "singular values from", "other-formula"),
        (other_product, "singular values from", "other-formula"),
        (rows_of_length_one, "singular values from", "other-formula"),
        (
            lambda gradient: torch.linalg.svdvals(gradient),
            "of the gradient's shape",
            "result-of-another-kind",
        ),
        (lambda gradient: None, "expected a tensor", "result-of-another-kind"),
    ],
    "19.6": [
        (
            bytes_read(lambda w, kept, layers, batch: w),
            "the cache is missing",
            "half-the-work-counted",
        ),
        (
            bytes_read(lambda w, kept, layers, batch: w + kept * batch),
            "a key and a value",
            "half-the-work-counted",
        ),
        (
            bytes_read(lambda w, kept, layers, batch: w + 2 * kept),
            "a cache of its own",
            "what-grows-with-batch",
        ),
        (
            bytes_read(lambda w, kept, layers, batch: (w + 2 * kept) * batch),
            "share one read",
            "what-grows-with-batch",
        ),
        (
            bytes_read(lambda w, kept, layers, batch: w + 2 * kept * batch / layers),
            "Each layer has a cache",
            "half-the-work-counted",
        ),
        (
            lambda w, n, d, t, b, each, rate: (w + 2 * n * d * t * b) / rate,
            "Numbers aren't bytes",
            "wrong-unit",
        ),
        (lambda w, n, d, t, b, each, rate: 2 * w * b / rate, "Those are FLOP", "other-formula"),
        (
            lambda w, n, d, t, b, each, rate: rate / ((w + 2 * n * d * t * b) * each),
            "steps a second",
            "upside-down",
        ),
        (lambda w, n, d, t, b, each, rate: 1e-3, "All that is read", "hard-coded"),
        (lambda w, n, d, t, b, each, rate: None, "got nothing", "result-of-another-kind"),
    ],
}
