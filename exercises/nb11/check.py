"""Checks of notebook 11, whether a bigger batch learns faster. That of the time to 97 %
is in time_to_accuracy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch

from exercises.nb11.gradient_noise import noise_scale
from exercises.nb11.time_to_accuracy import recipe
from exercises.whole_batch import WholeBatch
from labkit.lesson.answers import about, mistake
from labkit.lesson.checks import NotYet, call, close, function, over_cases


def learning_rate(answer: object) -> str:
    """The linear scaling rule and its warm-up, on drawn numbers and at its edges."""
    draw = random.Random(1103)
    cases = [
        (0, 256, 10),
        (10, 256, 10),
        (500, 256, 10),
        (0, 256, 0),
        (3, 256, 0),
        (5, 32, 10),
        (0, 8, 4),
        (1, 8, 4),
    ]
    cases += [
        (draw.randrange(1, 60), draw.choice([64, 96, 128, 1000]), draw.randrange(2, 60))
        for _ in range(8)
    ]
    over_cases(answer, cases, _learning_rate, close("(no unit)", hint=_rate_hint))
    return (
        "Right for large and small batches, before, at and after the warm-up's end, and"
        " without one."
    )


def _learning_rate(step: int, batch: int, warm_up: int) -> float:
    goal = 0.02 * batch / 32
    return 0.02 + (goal - 0.02) * min(step / warm_up, 1) if warm_up else goal


def _rate_hint(value: float, step: int, batch: int, warm_up: int) -> str:
    goal = 0.02 * batch / 32
    if step >= warm_up:
        root = (
            "That is the root of the factor; the linear rule takes the factor itself."
        )
        stays = (
            "From step warm_up on, also where that is 0, the rate is 0.02 * batch / 32."
        )
        return mistake(value, {0.02 * (batch / 32) ** 0.5: root}, stays)
    from_0 = "The ramp begins at 0.02, the rate of batch 32, and not at 0."
    wrong = {goal: "That is the rate at the end of the warm-up, too early."}
    if warm_up > 1:
        early = 0.02 + (goal - 0.02) * step / (warm_up - 1)
        wrong |= {
            early: (
                "It reaches the scaled rate one step early: warm_up is the first step"
                " with it."
            )
        }
    wrong |= {
        0.02
        * (batch / 32)
        ** (
            step / warm_up
        ): "It grows by the same factor each step, not by the same amount."
    }
    wrong |= {
        goal * step / warm_up: from_0,
        goal * (step + 1) / warm_up: f"{from_0} Steps count from 0.",
    }
    return mistake(
        value,
        wrong,
        "A straight line from 0.02 at step 0 to 0.02 * batch / 32 at step warm_up.",
    )


def critical_batch(answer: object) -> str:
    """tr(Sigma) / |G|^2 from drawn norms at two batch sizes."""
    draw = random.Random(1104)
    cases = {}
    for small, big, n in ((16, 256, 40), (1, 2, 7), (10, 1000, 33), (32, 48, 1)):
        noise = draw.uniform(5, 50)
        signal = draw.uniform(0.1, 2)
        norms = [
            [
                math.sqrt(signal + noise / batch) * draw.uniform(0.7, 1.3)
                for _ in range(count)
            ]
            for batch, count in ((small, n), (big, n + 3))
        ]
        # else chance hides the signal, or the noise
        if min(noise_scale(small, big, *map(_mean_square, norms))) > 0:
            cases[f"batches of {small} and {big}"] = (small, big, *norms)
    over_cases(
        answer, cases, _critical_batch, close("images", hint=_critical_batch_hint)
    )
    return (
        "Right for drawn norms at four pairs of batch sizes: both estimates are"
        " unbiased."
    )


def _mean_square(values: list[float]) -> float:
    return fmean([value**2 for value in values])


def _critical_batch(
    small: int, big: int, *norms: list[float], average: Any = _mean_square
) -> float:
    noise, signal = noise_scale(small, big, *map(average, norms))
    return noise / signal if signal else math.inf


def _critical_batch_hint(
    value: float, small: int, big: int, *norms: list[float]
) -> str:
    noise, signal = noise_scale(small, big, *map(_mean_square, norms))
    wrong = {
        _critical_batch(
            small, big, *norms, average=lambda values: fmean(values) ** 2
        ): (
            "Square each norm before you average: the mean of squares is not the square"
            " of the mean."
        ),
        _critical_batch(
            small, big, *norms, average=fmean
        ): "The two equations are those of the squared norms.",
        noise
        / _mean_square(
            norms[1]
        ): "A big batch's squared norm is not yet |G|^2: it includes tr(Sigma) / big.",
        signal / noise: "That is |G|^2 / tr(Sigma): invert it.",
    }
    otherwise = (
        "Solve |G_small|^2 = |G|^2 + tr / small and |G_big|^2 = |G|^2 + tr / big for"
        " both; divide tr by |G|^2."
    )
    return mistake(value, wrong, otherwise)


def accumulate(answer: object) -> str:
    """Gradients and loss in parts are those of the whole batch, which no part may be as
    large as.
    """
    fn = function(answer)
    for images, part in ((32, 8), (37, 8), (10, 3), (9, 9), (5, 64), (7, 1)):
        with about(f"{images} images in parts of {part}"):
            _judge_parts(fn, WholeBatch(images, seed=1105 + images), part)
    return (
        "Loss and gradients are those of the whole batch, also where the last part is"
        " smaller."
    )


def _judge_parts(answer: Callable[..., Any], batch: WholeBatch, part: int) -> None:
    seen: list[int] = []  # images of each part
    # of each part: how many parts before it hadn't run backward yet
    waiting: list[int] = []
    back: list[int] = []

    def note(_: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        waiting.append(len(seen) - len(back))
        seen.append(len(inputs[0]))
        if output.requires_grad:
            output.register_hook(lambda gradient: back.append(len(gradient)))

    with batch.model.register_forward_hook(note):
        left = batch.left_by(call(answer, batch.model, batch.x, batch.y, part))
    images = len(batch.x)
    if not seen or max(seen) > part:
        raise NotYet(
            f"the model was given {max(seen, default=0)} images at once; {part} have"
            " room."
        )
    if sum(seen) != images:
        why = (
            "Is the smaller last part left out?"
            if sum(seen) < images
            else "Each is to be read once."
        )
        raise NotYet(f"the model saw {sum(seen)} images. {why}")
    if any(waiting):
        raise NotYet(
            "a part was read before the one ahead of it had run backward, so what"
            " backward needs of all parts is kept at once, and no memory is saved. Call"
            " backward() for each part."
        )
    left.judge(
        no_gradient="Each part needs its backward pass.",
        scaled={math.ceil(images / part): "a sum over the parts, not a mean"},
        otherwise="the gradients are not those of the whole batch. "
        + (
            "Does the smaller last part count by its images only?"
            if images % part
            else "How much does a part count?"
        ),
    )


CHECKS = {
    "11.3": learning_rate,
    "11.4": critical_batch,
    "11.5": accumulate,
    "11.7": recipe,
}
