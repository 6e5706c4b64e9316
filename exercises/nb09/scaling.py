"""Checks of notebook 09's training steps: loss scaling (09.3) and master weights (09.5)."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, call

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_GROW_AFTER = 100


def scaled_step(answer: object) -> str:
    """Loss scaling on two weights whose gradients pass through float16, so that they flush to zero and overflow."""
    if not callable(answer):
        raise NotYet(f"Expected a function, got {brief_repr(answer)}. Pass its name without brackets.")
    draw = random.Random(93)
    for make in ("SGD", "Adam"):
        for small in (draw.uniform(1.6e-8, 2.8e-8), draw.uniform(0.5, 1.5)):
            _judge_good_steps(answer, make, small, scale=2.0 ** draw.randint(13, 14))
        for bad, good in (("inf", 7), ("nan", _GROW_AFTER - 1)):
            _judge_skipped(answer, make, bad, scale=2.0 ** draw.randint(8, 20), good=good)
    _judge_growth(answer, draw)
    return (
        "Right: small gradients survive, the optimizer sees them unscaled, and a step with inf or NaN changes nothing."
    )


class _Problem:
    """Two weights in two groups, one with a gradient that can be made infinite, an unused one, and an optimizer."""

    def __init__(self, make: str, slope: float) -> None:
        import torch

        draw = torch.Generator().manual_seed(9)
        self.weights = [torch.randn(5, generator=draw).requires_grad_() for _ in range(2)]
        unused = torch.zeros(3, requires_grad=True)
        kind: Any = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[make]
        extra = {"momentum": 0.9} if make == "SGD" else {"eps": 1e-12}
        self.optimizer: torch.optim.Optimizer = kind(
            [{"params": [self.weights[0], unused]}, {"params": [self.weights[1]]}], lr=0.1, **extra
        )
        self.slope = slope
        self.seen: list[Tensor] = []
        self.sent = 0.0  # the last gradient before it was rounded to float16
        self.optimizer.register_step_pre_hook(self._look)

    def _look(self, *_: object) -> None:
        self.seen = [torch_weight.grad.clone() for torch_weight in self.weights if torch_weight.grad is not None]

    def loss(self, *, bad: str = "") -> Tensor:
        """Its gradient is `slope` in each weight, rounded to float16 on the way; `bad` puts inf or NaN into one."""

        def through(gradient: Tensor) -> Tensor:
            self.sent = float(gradient[0])
            return gradient.half().float()

        def spoilt(gradient: Tensor) -> Tensor:
            rounded = through(gradient)
            if bad:
                rounded[-1] = float(bad)
            return rounded

        total = self.weights[0].new_zeros(())
        for weight, hook in zip(self.weights, (through, spoilt), strict=True):
            passed: Any = weight * 1.0
            passed.register_hook(hook)
            total = total + self.slope * passed.sum()
        return total

    def kept(self) -> tuple[list[Tensor], dict[Any, Any]]:
        """Copies of the weights and of the optimizer's state."""
        return [weight.detach().clone() for weight in self.weights], copy.deepcopy(self.optimizer.state_dict()["state"])


def _step(answer: Callable[..., Any], problem: _Problem, scale: float, good: int, bad: str = "") -> tuple[float, int]:
    found = call(answer, problem.loss(bad=bad), problem.optimizer, scale, good)
    if found is None:
        raise Todo("scaled_step returns nothing yet: write its body.")
    if not isinstance(found, tuple | list) or len(found) != 2 or None in map(as_float, found):
        raise NotYet(f"Expected two numbers back, (scale, good), got {brief_repr(found)}.")
    return float(as_float(found[0]) or 0.0), int(as_float(found[1]) or 0)


def _judge_good_steps(answer: Callable[..., Any], make: str, slope: float, scale: float) -> None:
    import torch

    problem, reference = _Problem(make, slope), _Problem(make, slope)
    for turn in range(3):
        problem.seen = []
        after = _step(answer, problem, scale, turn)
        for weight in reference.weights:
            weight.grad = torch.full_like(weight, slope)
        reference.optimizer.step()
        if not problem.seen:
            raise NotYet(f"The gradients were finite, and optimizer.step() was not called in step {turn + 1}.")
        _judge_gradient(float(problem.seen[0][0]), slope, scale, turn)
        if abs(problem.sent / (slope * scale) - 1) > 2e-3:
            raise NotYet(f"The loss was multiplied by {problem.sent / slope:.6g}, expected scale={scale:g}.")
        for seen in problem.seen:
            if not torch.allclose(seen, torch.full_like(seen, slope), rtol=2e-3, atol=0.0):
                raise NotYet("One weight's gradient was right at the optimizer's step and another's was not.")
        for mine, wanted in zip(problem.weights, reference.weights, strict=True):
            if not torch.allclose(mine, wanted, rtol=1e-6, atol=2e-3 * 0.6 * slope + 1e-6):
                raise NotYet(f"After {turn + 1} steps of {make} the weights differ from those of unscaled gradients.")
        if after != (scale, turn + 1):
            raise NotYet(
                f"After a good step with scale={scale:g}, good={turn}: expected {(scale, turn + 1)}, got {after}."
            )


def _judge_gradient(found: float, slope: float, scale: float, turn: int) -> None:
    if abs(found / slope - 1) < 2e-3:
        return
    factor = found / slope
    if found == 0:
        hint = "It was flushed to zero on its way through float16: multiply the loss before backward()."
    elif abs(factor / scale - 1) < 2e-3:
        hint = "The optimizer saw it `scale` times too large: divide before optimizer.step()."
    elif abs(factor * scale - 1) < 2e-3:
        hint = "It is `scale` times too small: divided once more than the loss was multiplied."
    else:
        hint = "Multiply the loss by scale, then divide each gradient by it, once."
    raise NotYet(f"In step {turn + 1} the optimizer saw a gradient of {found:.3g}, expected {slope:.3g}. {hint}")


def _judge_skipped(answer: Callable[..., Any], make: str, bad: str, *, scale: float, good: int) -> None:
    import torch

    problem = _Problem(make, 1e-4)
    _step(answer, problem, 1024.0, 0)
    weights, state = problem.kept()
    problem.seen = []
    after = _step(answer, problem, scale, good, bad=bad)
    now, state_now = problem.kept()
    if problem.seen:
        raise NotYet(f"One gradient of the second weight was {bad}, and optimizer.step() was called all the same.")
    if not all(torch.equal(a, b) for a, b in zip(weights, now, strict=True)):
        raise NotYet(f"One gradient was {bad}: the weights must stay as they were, and they changed.")
    if str(state) != str(state_now):
        raise NotYet(f"One gradient was {bad}: the optimizer's state must stay as it was, and it changed.")
    if after != (scale / 2, 0):
        raise NotYet(
            f"After a gradient of {bad} with scale={scale:g}, good={good}: expected {(scale / 2, 0)}, got {after}."
        )
    problem.seen = []
    _step(answer, problem, 1024.0, 0)
    if not problem.seen or not all(torch.isfinite(seen).all() for seen in problem.seen):
        raise NotYet(f"The step after one with {bad} was not taken, or still had {bad} in it: clear old gradients.")


def _judge_growth(answer: Callable[..., Any], draw: random.Random) -> None:
    scale = 2.0 ** draw.randint(5, 9)
    for good, expected in ((_GROW_AFTER - 2, (scale, _GROW_AFTER - 1)), (_GROW_AFTER - 1, (2 * scale, 0))):
        found = _step(answer, _Problem("SGD", 0.01), scale, good)
        if found != expected:
            raise NotYet(
                f"After a good step with scale={scale:g}, good={good}: expected {expected}, got {found}. "
                f"The scale doubles after {_GROW_AFTER} good steps in a row, and counting begins at 0 again."
            )


def master_step(answer: object) -> str:
    """bfloat16 weights with float32 masters: nothing lost, no dtype changed, the same tensors as before."""
    import torch

    if not callable(answer):
        raise NotYet(f"Expected a function, got {brief_repr(answer)}. Pass its name without brackets.")
    draw = torch.Generator().manual_seed(95)
    for shapes, lr, size in (([(7,), (3, 5)], 0.01, 0.01), ([(1023,)], 0.5, 1.0), ([(1,), (0,), (2, 2)], 1e-3, 1.0)):
        masters = [torch.randn(shape, generator=draw) for shape in shapes]
        weights = [master.bfloat16().requires_grad_() for master in masters]
        _judge_master(answer, weights, masters, lr=lr, size=size, draw=draw)
    return "Right: 50 steps too small for bfloat16 are all there, and the weights are the masters, rounded."


def _judge_master(
    answer: Callable[..., Any], weights: list[Tensor], masters: list[Tensor], *, lr: float, size: float, draw: Any
) -> None:
    import torch

    expected, firsts = [master.clone() for master in masters], (list(weights), list(masters))
    for turn in range(50):
        gradients = [(size * torch.randn(w.shape, generator=draw).abs()).bfloat16() for w in weights]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
        before = [weight.detach().clone() for weight in weights], [master.clone() for master in masters]
        call(answer, weights, masters, lr)
        if turn == 0 and _equal(weights, before[0]) and _equal(masters, before[1]):
            raise Todo("master_step changes nothing yet: write its body. It works in place.")
        if any(a is not b for a, b in zip([*weights, *masters], [*firsts[0], *firsts[1]], strict=True)):
            raise NotYet(
                "The lists hold other tensors than before: change the tensors in place, with copy_, sub_ or -=."
            )
        for master, gradient in zip(expected, gradients, strict=True):
            master -= lr * gradient.float()
        _judge_dtypes(weights, masters)
        for weight, master, wanted in zip(weights, masters, expected, strict=True):
            _judge_pair(weight.detach(), master, wanted, turn)


def _judge_dtypes(weights: list[Tensor], masters: list[Tensor]) -> None:
    import torch

    for name, tensors, dtype in (("weight", weights, torch.bfloat16), ("master", masters, torch.float32)):
        for tensor in tensors:
            if tensor.dtype != dtype:
                raise NotYet(f"A {name} is {tensor.dtype} now; it must stay {dtype}.")
    if any(master.requires_grad for master in masters):
        raise NotYet("A master requires gradients now: work under torch.no_grad().")


def _judge_pair(weight: Tensor, master: Tensor, wanted: Tensor, turn: int) -> None:
    import torch

    if not torch.allclose(master, wanted, rtol=1e-6, atol=1e-7):
        rounded = torch.equal(master, master.bfloat16().float())
        hint = (
            "The masters hold only numbers of bfloat16: each step starts from a rounded weight, and loses digits."
            if rounded
            else "Each master moves by lr times its weight's gradient, calculated in float32."
        )
        raise NotYet(f"After {turn + 1} steps a master is off by {float((master - wanted).abs().max()):.3g}. {hint}")
    if not torch.equal(weight, wanted.bfloat16()) and not torch.equal(weight, master.bfloat16()):
        raise NotYet(f"After {turn + 1} steps a weight is not its master rounded to bfloat16: copy it over each time.")


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    import torch

    return all(torch.equal(a.detach(), b.detach()) for a, b in zip(some, others, strict=True))
