"""Checks of notebook 11, whether a bigger batch learns faster; two longer ones are in split11 and recipe11."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from exercises.nb11.recipe import recipe
from exercises.nb11.split import split
from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, number_close

if TYPE_CHECKING:
    import torch


def learning_rate(answer: object) -> str:
    """The linear scaling rule and its warm-up, on drawn numbers and at its edges."""
    fn = function(answer, 0, 256, 10)
    draw = random.Random(1103)
    drawn = [(draw.randrange(1, 60), draw.choice([64, 96, 128, 1000]), draw.randrange(2, 60)) for _ in range(8)]
    edges = [(0, 256, 10), (10, 256, 10), (500, 256, 10), (0, 256, 0), (3, 256, 0), (5, 32, 10), (0, 8, 4), (2, 8, 4)]
    for step, batch, warm_up in edges + drawn:
        base, goal = 0.02, 0.02 * batch / 32
        expected = base + (goal - base) * min(step / warm_up, 1) if warm_up else goal
        given = f"step={step}, batch={batch}, warm_up={warm_up}"
        value = as_number(call(fn, step, batch, warm_up), "(no unit)", given)
        if not math.isclose(value, expected, rel_tol=1e-6):
            raise NotYet(
                f"For {given}: {value:.4g}, where {expected:.4g} was expected. "
                f"{_rate_hint(value, step, batch, warm_up)}"
            )
    return "Right for large and small batches, before, at and after the warm-up's end, and without one."


def _rate_hint(value: float, step: int, batch: int, warm_up: int) -> str:
    goal = 0.02 * batch / 32
    if math.isclose(value, 0.02 * (batch / 32) ** 0.5, rel_tol=1e-6):
        return "That is the root of the factor; the linear rule takes the factor itself."
    if step < warm_up and math.isclose(value, goal, rel_tol=1e-6):
        return "That is the rate at the end of the warm-up, too early."
    if step < warm_up and math.isclose(value, goal * step / warm_up, rel_tol=1e-6, abs_tol=1e-9):
        return "The ramp begins at 0.02, the rate of batch 32, and not at 0."
    if step < warm_up and math.isclose(value, goal * (step + 1) / warm_up, rel_tol=1e-6):
        return "The ramp begins at 0.02, the rate of batch 32, and steps count from 0."
    if step > warm_up and not math.isclose(value, goal, rel_tol=1e-6):
        return "From step warm_up on the rate stays at 0.02 * batch / 32."
    return "A straight line from 0.02 at step 0 to 0.02 * batch / 32 at step warm_up; then it stays."


def critical_batch(answer: object) -> str:
    """tr(Sigma) / |G|^2 from drawn norms at two batch sizes."""
    fn = function(answer, 2, 8, [3.0, 4.0], [2.0, 2.5])
    draw = random.Random(1104)
    for small, big, n in ((16, 256, 40), (1, 2, 7), (10, 1000, 33), (32, 48, 1)):
        noise, signal = draw.uniform(5, 50), draw.uniform(0.1, 2)
        norms = {
            batch: [math.sqrt(signal + noise / batch) * draw.uniform(0.7, 1.3) for _ in range(n + extra)]
            for batch, extra in ((small, 0), (big, 3))
        }
        squared = {batch: sum(norm**2 for norm in found) / len(found) for batch, found in norms.items()}
        trace = (squared[small] - squared[big]) / (1 / small - 1 / big)
        length = (big * squared[big] - small * squared[small]) / (big - small)
        if min(trace, length) <= 0:
            continue
        given = f"batches of {small} and {big}"
        value = as_number(call(fn, small, big, norms[small], norms[big]), "images", given)
        hint = _noise_hint(value, small, big, norms[small], norms[big])
        number_close(value, trace / length, rel=1e-6, unit="images", given=given, hint=hint)
    return "Right for drawn norms at four pairs of batch sizes: both estimates are unbiased."


def _noise_hint(value: float, small: int, big: int, smalls: list[float], bigs: list[float]) -> str:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def solve(s: float, b: float) -> tuple[float, float]:
        return (s - b) / (1 / small - 1 / big), (big * b - small * s) / (big - small)

    def near(noise: float, signal: float) -> bool:
        return signal != 0 and math.isclose(value, noise / signal, rel_tol=1e-6)

    s, b = (mean([norm**2 for norm in norms]) for norms in (smalls, bigs))
    noise, signal = solve(s, b)
    if near(*solve(mean(smalls) ** 2, mean(bigs) ** 2)):
        return "Square each norm before you average: the mean of squares is not the square of the mean."
    if near(*solve(mean(smalls), mean(bigs))):
        return "The two equations are those of the squared norms."
    if near(noise, b):
        return "A big batch's squared norm is no |G|^2 yet: tr(Sigma) / big is still in it."
    if near(signal, noise):
        return "That is |G|^2 over tr(Sigma): turn it round."
    return "Solve |G_small|^2 = |G|^2 + tr / small and |G_big|^2 = |G|^2 + tr / big for both; divide tr by |G|^2."


def accumulate(answer: object) -> str:
    """Gradients and loss in parts are those of the whole batch, which no part may be as large as."""
    import torch
    from torch import nn

    draw = torch.Generator().manual_seed(1105)
    function(answer, nn.Linear(3, 2), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), 2)
    for images, part in ((32, 8), (37, 8), (10, 3), (9, 9), (5, 64), (7, 1)):
        torch.manual_seed(images)
        model = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)).double()
        x = torch.randn(images, 12, generator=draw, dtype=torch.float64)
        y = torch.randint(4, (images,), generator=draw)
        _judge_parts(answer, model, x, y, part, f"{images} images in parts of {part}")
    return "Loss and gradients are those of the whole batch, also where the last part is smaller."


def _judge_parts(answer: Any, model: Any, x: torch.Tensor, y: torch.Tensor, part: int, given: str) -> None:
    import torch

    whole = torch.nn.functional.cross_entropy(model(x), y)
    expected = torch.autograd.grad(whole, list(model.parameters()))
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 3.0)  # what an earlier step left
    seen: list[int] = []
    waiting: list[int] = []  # of each part after the first: how many before it had not gone backwards yet
    back: list[int] = []

    def saw(_: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        waiting.append(len(seen) - len(back))
        seen.append(len(inputs[0]))
        if output.requires_grad:
            output.register_hook(lambda gradient: back.append(len(gradient)))  # type: ignore[no-untyped-call]

    hook = model.register_forward_hook(saw)
    before = [weight.detach().clone() for weight in model.parameters()]
    loss = call(answer, model, x, y, part)
    hook.remove()
    if not all(torch.equal(old, weight) for old, weight in zip(before, model.parameters(), strict=True)):
        raise NotYet(f"For {given}: the weights changed. Only the gradients are asked for; the optimiser comes after.")
    if not seen or max(seen) > part:
        raise NotYet(
            f"For {given}: the model was given {max(seen, default=0)} images at once, where there is room for {part}."
        )
    if sum(seen) != len(x):
        why = "Is the smaller last part left out?" if sum(seen) < len(x) else "Each is to be read once."
        raise NotYet(f"For {given}: the model saw {sum(seen)} images. {why}")
    if any(weight.grad is None for weight in model.parameters()):
        raise NotYet(f"For {given}: a weight has no gradient afterwards. Each part needs its backward pass.")
    if any(waiting):
        raise NotYet(
            f"For {given}: a part was read before the one ahead of it had gone backwards, so what backward needs of "
            "all parts is kept at once, and no memory is saved. Call backward() for each part."
        )
    found = torch.cat([weight.grad.ravel() for weight in model.parameters()])
    right = torch.cat([gradient.ravel() for gradient in expected])
    if not torch.allclose(found, right, rtol=1e-9, atol=1e-12):
        raise NotYet(f"For {given}: {_gradient_hint(found, right, len(x), part)}")
    if (value := as_float(loss)) is None or not math.isclose(value, whole.item(), rel_tol=1e-9):
        raise NotYet(
            f"For {given}: the loss returned is {brief_repr(loss)}; the whole batch's mean is {whole.item():.6g}."
        )


def _gradient_hint(found: torch.Tensor, right: torch.Tensor, images: int, part: int) -> str:
    import torch

    if torch.allclose(found - 3, right, atol=1e-9):
        return "the gradients of an earlier step are still in it: set them to zero first."
    factor = float(found @ right / (right @ right))
    if torch.allclose(found, factor * right, rtol=1e-6, atol=1e-9):
        parts = math.ceil(images / part)
        why = "a sum over the parts, not a mean" if math.isclose(factor, parts, rel_tol=1e-6) else "wrongly scaled"
        return f"the gradients are {factor:.4g} times those of the whole batch: {why}."
    if images % part:
        return "the gradients are not those of the whole batch. Does the smaller last part count by its images only?"
    return "the gradients are not those of the whole batch. What is each part's share of its mean loss?"


CHECKS = {
    "11.1": split,
    "11.3": learning_rate,
    "11.4": critical_batch,
    "11.5": accumulate,
    "11.7": recipe,
}
