"""Checks of notebook 09's training steps: loss scaling (09.3) and master weights
(09.5).
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.core.units import format_si
from labkit.lesson.answers import mistake, parts
from labkit.lesson.checks import NotYet, Todo, call, function

_GROW_AFTER = 100
_HALF = 2e-3  # relative: an error that rounding to float16 may make, twice


def scaled_step(answer: object) -> str:
    """Loss scaling on two weights whose gradients pass through float16, so that they
    flush to zero and overflow.
    """
    fn = function(answer)
    draw = random.Random(93)
    for make in ("SGD", "Adam"):
        for slope in (draw.uniform(1.6e-8, 2.8e-8), draw.uniform(0.5, 1.5)):
            _judge_good_steps(fn, make, slope, scale=2.0 ** draw.randint(13, 14))
        for bad, good in (("inf", 7), ("-inf", 3), ("nan", _GROW_AFTER - 1)):
            _judge_skipped(fn, make, bad, scale=2.0 ** draw.randint(8, 20), good=good)
    scale = 2.0 ** draw.randint(5, 9)
    for good, expected in (
        (_GROW_AFTER - 2, (scale, _GROW_AFTER - 1)),
        (_GROW_AFTER - 1, (2 * scale, 0)),
    ):
        pair = _step(fn, _Problem("SGD", 0.01), scale, good)
        hint = (
            f"The scale doubles after {_GROW_AFTER} good steps in a row, and counting"
            " begins at 0 again."
        )
        _judge_returned(
            pair, expected, f"a good step with scale={scale:g}, good={good}", hint
        )
    return (
        "Right: small gradients survive, the optimizer sees them unscaled, and a step"
        " with inf or NaN changes nothing."
    )


class _Problem:
    """Two weights in two groups, one with a gradient that can be made infinite, an
    unused one, and an optimizer.
    """

    def __init__(self, make: str, slope: float) -> None:
        draw = torch.Generator().manual_seed(9)
        self.weights = [
            torch.randn(5, generator=draw).requires_grad_() for _ in range(2)
        ]
        groups = [
            {"params": [self.weights[0], torch.zeros(3, requires_grad=True)]},
            {"params": [self.weights[1]]},
        ]
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(groups, lr=0.1, momentum=0.9)
            if make == "SGD"
            else torch.optim.Adam(groups, lr=0.1, eps=1e-12)
        )
        self.slope = slope
        # the gradients that the optimizer saw in its last step
        self.stepped_with: list[Tensor] = []
        self.sent = 0.0  # the last gradient before it was rounded to float16
        self.optimizer.register_step_pre_hook(self._note)

    def _note(self, *_: object) -> None:
        self.stepped_with = [
            weight.grad.clone() for weight in self.weights if weight.grad is not None
        ]

    def loss(self, *, bad: str = "") -> Tensor:
        """Its gradient is `slope` in each weight, rounded to float16 on the way; `bad`
        puts inf or NaN into one.
        """

        def through_float16(gradient: Tensor, spoilt: str) -> Tensor:
            self.sent = float(gradient[0])
            rounded = gradient.half().float()
            if spoilt:
                rounded[-1] = float(spoilt)
            return rounded

        total = self.weights[0].new_zeros(())
        for weight, spoilt in zip(self.weights, ("", bad), strict=True):
            passed: Any = weight * 1.0
            passed.register_hook(functools.partial(through_float16, spoilt=spoilt))
            total = total + self.slope * passed.sum()
        return total

    def state(self) -> tuple[list[Tensor], dict[Any, Any]]:
        """Copies of the weights and of the optimizer's state."""
        return [weight.detach().clone() for weight in self.weights], copy.deepcopy(
            self.optimizer.state_dict()["state"]
        )


def _step(
    fn: Callable[..., Any], problem: _Problem, scale: float, good: int, bad: str = ""
) -> tuple[float | None, ...]:
    """The (scale, good) that one step returns."""
    problem.stepped_with = []
    returned = call(fn, problem.loss(bad=bad), problem.optimizer, scale, good)
    pair = tuple(map(as_float, parts(returned, 2, "two numbers back, (scale, good)")))
    if None in pair:
        raise NotYet(
            f"Expected two numbers back, (scale, good), got {brief_repr(returned)}."
        )
    return pair


def _judge_returned(
    got: object, expected: tuple[float, int], step: str, hint: str = ""
) -> None:
    if got != expected:
        raise NotYet(f"After {step}: expected {expected}, got {got}. {hint}".rstrip())


def _judge_good_steps(
    fn: Callable[..., Any], make: str, slope: float, scale: float
) -> None:
    problem = _Problem(make, slope)
    reference = _Problem(make, slope)
    problem.weights[0].grad = torch.ones(5)  # left by somebody else
    for turn in range(3):
        pair = _step(fn, problem, scale, turn)
        for weight in reference.weights:
            weight.grad = torch.full_like(weight, slope)
        reference.optimizer.step()
        if not problem.stepped_with:
            raise NotYet(
                "The gradients were finite, and optimizer.step() was not called in"
                f" step {turn + 1}."
            )
        _judge_gradient(float(problem.stepped_with[0][0]), slope, scale, turn)
        if abs(problem.sent / (slope * scale) - 1) > _HALF:
            raise NotYet(
                f"The loss was multiplied by {problem.sent / slope:.6g}, expected"
                f" scale={scale:g}."
            )
        if not all(
            torch.allclose(g, torch.full_like(g, slope), rtol=_HALF, atol=0.0)
            for g in problem.stepped_with
        ):
            raise NotYet(
                "One weight's gradient was right at the optimizer's step and another's"
                " was not."
            )
        for mine, wanted in zip(problem.weights, reference.weights, strict=True):
            if not torch.allclose(
                mine, wanted, rtol=1e-6, atol=_HALF * 0.6 * slope + 1e-6
            ):
                raise NotYet(
                    f"After {format_si(turn + 1, 'steps')} of {make}, the weights"
                    " differ from those of unscaled gradients."
                )
        _judge_returned(
            pair, (scale, turn + 1), f"a good step with scale={scale:g}, good={turn}"
        )


def _judge_gradient(gradient: float, slope: float, scale: float, turn: int) -> None:
    if abs(gradient / slope - 1) < _HALF:
        return
    wrong = {
        0.0: (
            "It was flushed to zero on its way through float16: multiply the loss"
            " before backward()."
        ),
        slope * scale: (
            "The optimizer saw it `scale` times too large: divide before"
            " optimizer.step()."
        ),
        slope / scale: (
            "It is `scale` times too small: divided once more than the loss was"
            " multiplied."
        ),
        slope + 1 / scale: (
            "It includes the gradient that was there before: clear old gradients first."
        ),
    }
    hint = mistake(
        gradient,
        wrong,
        "Multiply the loss by scale, then divide each gradient by it, once.",
        rel=_HALF,
    )
    raise NotYet(
        f"In step {turn + 1} the optimizer saw a gradient of {gradient:.3g}, expected"
        f" {slope:.3g}. {hint}"
    )


def _judge_skipped(
    fn: Callable[..., Any], make: str, bad: str, *, scale: float, good: int
) -> None:
    problem = _Problem(make, 1e-4)
    _step(fn, problem, 1024.0, 0)
    weights, state = problem.state()
    pair = _step(fn, problem, scale, good, bad=bad)
    now, state_now = problem.state()
    if problem.stepped_with:
        raise NotYet(
            f"One gradient of the second weight was {bad}, and optimizer.step() was"
            " called all the same."
        )
    if not _equal(weights, now):
        raise NotYet(
            f"One gradient was {bad}: the weights must stay as they were, and they"
            " changed."
        )
    if str(state) != str(state_now):
        raise NotYet(
            f"One gradient was {bad}: the optimizer's state must stay as it was, and it"
            " changed."
        )
    _judge_returned(
        pair, (scale / 2, 0), f"a gradient of {bad} with scale={scale:g}, good={good}"
    )
    _step(fn, problem, 1024.0, 0)
    if not problem.stepped_with or not all(
        torch.isfinite(gradient).all() for gradient in problem.stepped_with
    ):
        raise NotYet(
            f"The step after one with {bad} was not taken, or still had {bad} in it:"
            " clear old gradients."
        )


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(
        torch.equal(tensor, other) for tensor, other in zip(some, others, strict=True)
    )


def master_step(answer: object) -> str:
    """bfloat16 weights with float32 masters: nothing lost, no dtype changed, the same
    tensors as before.
    """
    fn = function(answer)
    draw = torch.Generator().manual_seed(95)
    for shapes, lr, size in (
        ([(7,), (3, 5)], 0.01, 0.01),
        ([(1023,)], 0.5, 1.0),
        ([(1,), (0,), (2, 2)], 1e-3, 1.0),
    ):
        masters = [torch.randn(shape, generator=draw) for shape in shapes]
        weights = [master.bfloat16().requires_grad_() for master in masters]
        expected = [master.clone() for master in masters]
        tensors = [*weights, *masters]
        for turn in range(1, 51):
            for weight, right in zip(weights, expected, strict=True):
                weight.grad = (
                    size * torch.randn(weight.shape, generator=draw).abs()
                ).bfloat16()
                right -= lr * weight.grad.float()
            before = [tensor.detach().clone() for tensor in tensors]
            call(fn, weights, masters, lr)
            if turn == 1 and _equal(tensors, before):
                raise Todo("master_step changes nothing yet. It must work in place.")
            if any(
                a is not b for a, b in zip([*weights, *masters], tensors, strict=True)
            ):
                raise NotYet(
                    "The lists hold other tensors than before: change the tensors in"
                    " place, with copy_, sub_ or -=."
                )
            _judge_types(weights, masters)
            for weight, master, right in zip(weights, masters, expected, strict=True):
                _judge_values(weight.detach(), master, right, turn)
    return (
        "Right: 50 steps too small for bfloat16 are all there, and the weights are the"
        " masters, rounded."
    )


def _judge_types(weights: Sequence[Tensor], masters: Sequence[Tensor]) -> None:
    for name, tensors, dtype in (
        ("weight", weights, torch.bfloat16),
        ("master", masters, torch.float32),
    ):
        for tensor in tensors:
            if tensor.dtype != dtype:
                raise NotYet(f"A {name} is {tensor.dtype} now; it must stay {dtype}.")
    if any(master.requires_grad for master in masters):
        raise NotYet("A master requires gradients now: work under torch.no_grad().")


def _judge_values(weight: Tensor, master: Tensor, right: Tensor, turn: int) -> None:
    if not torch.allclose(master, right, rtol=1e-6, atol=1e-7):
        hint = (
            "The masters hold only numbers of bfloat16: each step starts from a rounded"
            " weight, and loses digits."
            if torch.equal(master, master.bfloat16().float())
            else (
                "Each master moves by lr times its weight's gradient, calculated in"
                " float32."
            )
        )
        raise NotYet(
            f"After {format_si(turn, 'steps')}, a master is off by"
            f" {float((master - right).abs().max()):.3g}. {hint}"
        )
    if not torch.equal(weight, right.bfloat16()) and not torch.equal(
        weight, master.bfloat16()
    ):
        raise NotYet(
            f"After {format_si(turn, 'steps')}, a weight is not its master rounded to"
            " bfloat16: copy it over each time."
        )
