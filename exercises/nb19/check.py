"""Checks of notebook 19, a language model's training and its decoding."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from exercises.nb19 import decoding_checks
from labkit.core.display import brief_repr
from labkit.lesson.answers import judge_pair, mistake
from labkit.lesson.checks import NotYet, call, close, over_cases

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
    """Five steps of Newton and Schulz, in float32 or, as torch.optim.Muon has them, in
    bfloat16: wide, tall and square matrices, very large, very small and zero ones; no
    product is larger than the gradient.
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
    _check_small_squares(answer, torch.randn(64, 16, generator=draw))
    return "Right for wide, tall, square, large, small and zero gradients."


def _iterated(
    gradient: Tensor, steps: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """In float32, the result of so many steps that were calculated in a format."""
    tall = gradient.shape[0] > gradient.shape[1]
    x: Tensor = (gradient.T if tall else gradient).to(dtype)
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.T if tall else x).float()


def _judge_orthogonal(got: object, right: Tensor, case: str, gradient: Tensor) -> None:
    if not isinstance(got, Tensor) or got.shape != right.shape:
        shape = tuple(gradient.shape)
        raise NotYet(
            f"For {case}: expected a tensor of the gradient's shape {shape}, got"
            f" {brief_repr(got)}."
        )
    in_float16 = ""
    if got.dtype == torch.float16:
        in_float16 = " In float16 a norm above 65,504 is infinite: take bfloat16."
    got = got.float()
    if not got.isfinite().all():
        raise NotYet(
            f"For {case}: not all numbers are finite. Is it divided by its norm first,"
            " and may that be 0?"
        )
    if torch.allclose(got, right, rtol=1e-2, atol=1e-3):
        return
    if _is_rounded(got, right, gradient):
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
        f" becomes a X + (b S + c S S) X with S = X Xᵀ.{in_float16}"
    )


def _is_rounded(got: Tensor, right: Tensor, gradient: Tensor) -> bool:
    """Whether all numbers are bfloat16's, and at most twice as far from float32's
    result as five steps in bfloat16 are.

    torch.optim.Muon rounds the gradient first, others what is divided by its norm.
    """
    if not torch.equal(got, got.bfloat16().float()):
        return False
    scaled = gradient / (gradient.norm() + 1e-7)
    in_16_bits = [_iterated(each, 5, torch.bfloat16) for each in (gradient, scaled)]
    furthest = max(float((each - right).norm()) for each in in_16_bits)
    return float((got - right).norm()) <= 2 * furthest


class _LargestResult(TorchDispatchMode):
    """Watches torch's operators; `numbers` is the size of the largest result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def _check_small_squares(answer: Any, tall: Tensor) -> None:
    with _LargestResult() as largest:
        call(answer, tall.clone())
    if largest.numbers > tall.numel():
        rows, n = tall.shape
        raise NotYet(
            f"The numbers are right. For a gradient of {rows} x {n} a result has"
            f" {largest.numbers:,} numbers, more than the gradient: S is the large"
            f" square, {rows} x {rows}. Transpose a tall matrix first, so that S is"
            f" {n} x {n}."
        )


CHECKS = {
    "19.3": bits_per_byte,
    "19.4a": factors,
    "19.4b": orthogonal,
    "19.6a": decoding_checks.engine_rules,
    "19.6b": decoding_checks.accept,
}
