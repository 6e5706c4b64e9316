"""What checks of gradients computed in parts share: a random batch, with its loss and
gradients in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.lesson.answers import mistake
from labkit.lesson.checks import NotYet

_LEFT = 3.0  # in each gradient before the call, as if an earlier step had left it there


def flat(model: nn.Module) -> Tensor:
    """A copy of the model's weights in one dimension."""
    return torch.cat([weight.detach().ravel() for weight in model.parameters()])


def network() -> nn.Sequential:
    """12 features in, 4 classes out, in float64, so that only rounding may differ
    between ways to compute.
    """
    return nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)).double()


def samples(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random rows for `network`, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 12, generator=draw, dtype=torch.float64), torch.randint(
        4, (n,), generator=draw
    )


def near(found: Tensor, right: Tensor) -> bool:
    """Whether two results differ by rounding alone, of single numbers
    in float32 too.
    """
    return torch.allclose(found, right, rtol=1e-6, atol=1e-7)


class WholeBatch:
    """A network and n random images, with the mean loss and the gradients of all images
    together.
    """

    def __init__(self, images: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = network()
        self.x, self.y = samples(images, seed)
        loss = cross_entropy(self.model(self.x), self.y)
        self.loss = loss.item()
        weights = list(self.model.parameters())
        self.gradient = torch.cat(
            [gradient.ravel() for gradient in torch.autograd.grad(loss, weights)]
        )
        self.weights = flat(self.model)
        for weight in weights:
            weight.grad = torch.full_like(weight, _LEFT)

    def left_by(self, loss: object) -> Left:
        """What a call that returned `loss` has left in the model."""
        left = [
            weight.grad.ravel()
            for weight in self.model.parameters()
            if weight.grad is not None
        ]
        gradient = (
            torch.cat(left) if len(left) == len(list(self.model.parameters())) else None
        )
        number = as_float(loss)
        shown = brief_repr(loss) if number is None else number
        return Left(
            shown,
            gradient,
            not torch.equal(flat(self.model), self.weights),
            self.loss,
            self.gradient,
        )


@dataclass
class Left:
    """The loss that a call returned and the gradients that it left, beside the right
    ones.
    """

    loss: float | str
    gradient: Tensor | None
    moved: bool
    right_loss: float
    right_gradient: Tensor

    def judge(
        self,
        *,
        no_gradient: str,
        scaled: Mapping[float, str],
        otherwise: str,
        loss: str = "",
    ) -> None:
        """NotYet unless all is right. Hints: for no gradient, one `scaled` by a factor,
        any other, and the loss.
        """
        if self.moved:
            raise NotYet(
                "the weights changed. Compute only the gradients: the optimizer comes"
                " later."
            )
        if self.gradient is None:
            raise NotYet(f"a weight has no gradient afterwards. {no_gradient}")
        if not near(self.gradient, self.right_gradient):
            raise NotYet(self._gradient_hint(self.gradient, scaled, otherwise))
        if not isinstance(self.loss, float) or not math.isclose(
            self.loss, self.right_loss, rel_tol=1e-6
        ):
            right = f"the whole batch's mean is {self.right_loss:.6g}"
            raise NotYet(f"the loss returned is {self.loss}; {right}. {loss}".rstrip())

    def _gradient_hint(
        self, gradient: Tensor, scaled: Mapping[float, str], otherwise: str
    ) -> str:
        right = self.right_gradient
        if bool(gradient.isnan().any()):
            return (
                "a gradient is NaN. The mean over no images is 0 / 0: sum over the"
                " share instead."
            )
        # summed over ranks, it is there n times
        if any(near(gradient - times * _LEFT, right) for times in (1, *scaled)):
            return (
                "the gradients of an earlier step are still in it: set them to zero"
                " first."
            )
        factor = float(gradient @ right / (right @ right))
        if near(gradient, factor * right):
            why = mistake(factor, scaled, "wrongly scaled")
            return (
                f"the gradients are {factor:.4g} times those of the whole batch: {why}."
            )
        return otherwise
