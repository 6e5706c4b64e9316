"""Checks of notebook 19, a language model's training and its decoding."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.core.display import brief_repr
from labkit.lesson.answers import judge_pair, mistake
from labkit.lesson.checks import NotYet, close, over_cases

Pairs = Sequence[tuple[float, float]]  # (seconds, tokens) to the loss, by seed


def bits_per_byte(answer: object) -> str:
    """Nats a token to bits a byte: characters, pieces of words, and a text with more
    bytes than characters.
    """
    draw = random.Random(1903)
    cases = {
        "one token a byte": (2.48, 100_000, 100_000),
        "GPT-2's tokens, of about four bytes": (3.28, 25_000, 104_300),
        "a tokenizer of single bits": (0.5, 8_000, 1_000),
    }
    for _ in range(6):
        n_bytes = draw.randrange(1_000, 10**6)
        cases[f"a text of {n_bytes:,} bytes"] = (
            draw.uniform(0.5, 8),
            n_bytes // draw.randrange(2, 6),
            n_bytes,
        )
    over_cases(answer, cases, _bits_per_byte, close("bits", hint=_bits_hint))
    return "Right for tokens of one byte, of several, and of less than one."


def _bits_per_byte(loss: float, tokens: int, n_bytes: int) -> float:
    return loss * tokens / math.log(2) / n_bytes


def _bits_hint(value: float, loss: float, tokens: int, n_bytes: int) -> str:
    right = _bits_per_byte(loss, tokens, n_bytes)
    mistakes = {
        right * math.log(2): "That is in nats: a nat is 1 / ln 2 bits.",
        right * math.log(2) ** 2: "Divide by ln 2: a nat is more than a bit.",
        right * n_bytes / tokens: (
            "That is bits a token: share them out among the bytes."
        ),
        right * (n_bytes / tokens) ** 2: "Tokens and bytes are the other way round.",
        right * n_bytes: "Those are the bits of the whole text.",
        math.exp(loss): "That is the perplexity: e to the loss.",
        right / 8: (
            "A byte isn't taken apart into its bits here: bits a byte, not bits a bit."
        ),
    }
    return mistake(value, mistakes, "Bits of the whole text over its bytes.")


def factors(answer: object) -> str:
    """Seconds a token and tokens as factors, over seeds that differ widely; their
    product is the gain in seconds.
    """
    draw = random.Random(1904)
    cases = {
        "a rung that changes nothing": (
            _seeds(draw, 5),
            _seeds(random.Random(1904), 5),
        ),
        "one seed": ([(8.0, 400_000)], [(3.0, 300_000)]),
    }
    for machine, learning in ((2.0, 1.0), (1.0, 1.5), (0.6, 2.5), (1.3, 0.7)):
        below = _seeds(draw, draw.randrange(3, 8))
        noise = [math.exp(draw.uniform(-0.8, 0.8)) for _ in below]
        rung = [
            (s / machine / learning / n, t / learning * n)
            for (s, t), n in zip(below, noise, strict=True)
        ]
        cases[
            f"{len(below)} seeds, about {machine}x by the machine and {learning}x by"
            " learning"
        ] = (below, rung)
    over_cases(answer, cases, _factors, _judge_factors)
    return (
        "Right for one seed and for several; the two factors multiply to the gain in"
        " seconds."
    )


def _seeds(draw: random.Random, n: int) -> list[tuple[float, float]]:
    tokens = [draw.uniform(1e5, 9e5) for _ in range(n)]
    return [(draw.uniform(1e-5, 4e-5) * count, count) for count in tokens]


def _factors(below: Pairs, rung: Pairs) -> tuple[float, float]:
    seconds = [a[0] / b[0] for a, b in zip(below, rung, strict=True)]
    tokens = [a[1] / b[1] for a, b in zip(below, rung, strict=True)]
    learning = statistics.geometric_mean(tokens)
    return statistics.geometric_mean(seconds) / learning, learning


def _judge_factors(
    got: object, right: tuple[float, float], case: str, below: Pairs, rung: Pairs
) -> None:
    machine, learning = right
    means = [statistics.fmean(a[1] / b[1] for a, b in zip(below, rung, strict=True))]
    means += [sum(a[1] for a in below) / sum(b[1] for b in rung)]
    means += [statistics.median(a[1] / b[1] for a, b in zip(below, rung, strict=True))]
    shared = {
        1 / machine: "That is the machine's gain upside down.",
        1 / learning: "That gain is upside down.",
    }
    of_machine = {
        machine * learning: (
            "That is the gain in seconds, with the tokens in it: divide seconds by"
            " tokens first."
        ),
        machine * learning**2: (
            "More tokens make it slower: seconds a token, not seconds times tokens."
        ),
        learning: "Both are there, in the other order: seconds a token first.",
    } | shared
    of_learning = (
        dict.fromkeys(
            means, "Take each seed's own ratio, and the geometric mean of the ratios."
        )
        | shared
    )
    otherwise = "The geometric mean over seeds of without / with."
    hints = ("x", of_machine, otherwise), ("x", of_learning, otherwise)
    judge_pair(got, right, case, "(gain in seconds a token, gain in tokens)", hints)


def orthogonal(answer: object) -> str:
    """Five steps of Newton and Schulz: wide, tall and square matrices, very large, very
    small and zero ones.
    """
    draw = torch.Generator().manual_seed(1904)
    sizes = (4, 4), (3, 17), (64, 16), (33, 32), (1, 5)
    cases = {
        f"a matrix of {rows} x {n}": (torch.randn(rows, n, generator=draw),)
        for rows, n in sizes
    }
    wide = torch.randn(8, 24, generator=draw)
    cases |= {
        "large numbers": (1e4 * wide,),
        "small numbers": (1e-3 * wide,),
        "a gradient of zeros": (0 * wide,),
    }
    over_cases(
        answer, cases, lambda gradient: _iterated(gradient, 5), _judge_orthogonal
    )
    return "Right for wide, tall, square, large, small and zero gradients."


def _iterated(gradient: Tensor, steps: int) -> Tensor:
    tall = gradient.shape[0] > gradient.shape[1]
    x = gradient.T if tall else gradient
    x = x / (float(x.norm()) + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


def _judge_orthogonal(got: object, right: Tensor, case: str, gradient: Tensor) -> None:
    if not isinstance(got, Tensor) or got.shape != right.shape:
        shape = tuple(gradient.shape)
        raise NotYet(
            f"For {case}: expected a tensor of the gradient's shape {shape}, got"
            f" {brief_repr(got)}."
        )
    rounded = ""
    if got.dtype.itemsize == 2:
        rounded = " 16 bits round too much: use float32."
    got = got.float()
    if not got.isfinite().all():
        raise NotYet(
            f"For {case}: not all numbers are finite. Is it divided by its norm first,"
            " and may that be 0?"
        )
    if torch.allclose(got, right, rtol=1e-2, atol=1e-3):
        return
    values = torch.linalg.svdvals(got)
    if torch.allclose(got, gradient / (gradient.norm() + 1e-7), rtol=1e-3, atol=1e-5):
        raise NotYet(
            f"For {case}: it is scaled, and its singular values are as unequal as"
            " before."
        )
    for steps in (1, 2, 3, 4, 6, 7, 8):
        if torch.allclose(got, _iterated(gradient, steps), rtol=1e-3, atol=1e-5):
            raise NotYet(
                f"For {case}: that is the result of {steps} steps, and 5 are asked for."
            )
    raise NotYet(
        f"For {case}: singular values from {values.min():.3g} to {values.max():.3g};"
        f" after five steps they are from {torch.linalg.svdvals(right).min():.3g} to"
        f" {torch.linalg.svdvals(right).max():.3g}, with the gradient's vectors. X"
        f" becomes a X + (b S + c S S) X with S = X Xᵀ.{rounded}"
    )


def decode_s(answer: object) -> str:
    """Bytes that one step of decoding reads: with and without a cache, one sequence and
    many, 32 and 16 bits.
    """
    cases = {
        "no token in the cache yet": (124_000_000, 12, 768, 0, 1, 4, 2e11),
        "GPT-2, 1,024 tokens, one sequence": (
            124_000_000,
            12,
            768,
            1024,
            1,
            2,
            3.35e12,
        ),
        "GPT-2, 1,024 tokens, 64 sequences": (
            124_000_000,
            12,
            768,
            1024,
            64,
            2,
            3.35e12,
        ),
        "a small model of this notebook": (100_000, 2, 64, 64, 16, 4, 1e10),
        "a long text": (7_000_000_000, 32, 4096, 100_000, 2, 2, 2e12),
    }
    over_cases(answer, cases, _decode_s, close("s", hint=_decode_hint))
    return (
        "Right for one sequence and many, for short and long caches, in 16 and 32 bits."
    )


def _decode_s(
    weights: int,
    layers: int,
    width: int,
    context: int,
    batch: int,
    bytes_each: int,
    bytes_per_s: float,
) -> float:
    return (weights + 2 * layers * width * context * batch) * bytes_each / bytes_per_s


def _decode_hint(value: float, weights: int, layers: int, *rest: Any) -> str:
    width, context, batch, bytes_each, bytes_per_s = rest
    kept = layers * width * context * batch
    mistakes = {
        2 * weights * batch / bytes_per_s: (
            "Those are FLOP over bytes a second: what is read decides."
        ),
        weights * bytes_each / bytes_per_s: (
            "The weights are there; the cache is missing."
        ),
        (weights + kept) * bytes_each / bytes_per_s: (
            "A token leaves a key and a value, two numbers for each width."
        ),
        (weights + 2 * kept / batch)
        * bytes_each
        / bytes_per_s: "Each sequence has a cache of its own.",
        (weights * batch + 2 * kept)
        * bytes_each
        / bytes_per_s: "All sequences share one read of the weights.",
        (weights + 2 * kept / layers)
        * bytes_each
        / bytes_per_s: "Each layer has a cache of its own.",
        (weights + 2 * kept) / bytes_per_s: "Numbers aren't bytes.",
        bytes_per_s
        / (
            (weights + 2 * kept) * bytes_each
        ): "Those are steps a second: turn it round.",
    }
    return mistake(value, mistakes, "All that is read, in bytes, over bytes a second.")


CHECKS = {
    "19.3": bits_per_byte,
    "19.4a": factors,
    "19.4b": orthogonal,
    "19.6": decode_s,
}
