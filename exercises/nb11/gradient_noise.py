"""Measure how noisy the gradient of a batch is, and up to which batch size a bigger
batch is worth its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from labkit.core.display import Shown
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, NonNegative, Number, checked
from labkit.core.units import significant
from labkit.train.training.split import check_labeled, evaluating

_RESAMPLES = 1000


@dataclass(frozen=True, repr=False)
class GradientNoise(Shown):
    """The simple noise scale in images, `noise` / `signal`, that is tr(Sigma) / |G|^2:
    the predicted critical batch.

    `noise` estimates tr(Sigma), the variance of one image's gradient summed over the
    parameters; `signal` estimates the squared length |G|^2 of the gradient over all
    images. `low` and `high` are a 95 % bootstrap interval of the scale. One step with a
    batch B makes 1 / (1 + scale / B) of the best possible progress of a step
    (McCandlish et al., 2018, equation 2.7).
    """

    noise: float
    signal: float
    low: float
    high: float
    draws: int

    @property
    def scale(self) -> float:
        """tr(Sigma) / |G|^2, in images; inf where the signal can't be told from 0."""
        return _over(self.noise, self.signal)

    def __str__(self) -> str:
        ends = f"95 % interval {significant(self.low)} to {significant(self.high)}"
        return (
            f"gradient noise scale {significant(self.scale)} images ({ends};"
            f" {self.draws} draws)"
        )


@checked
def noise_scale(
    small: Count, big: Count, small_squared: NonNegative, big_squared: NonNegative
) -> tuple[float, float]:
    """Return unbiased (tr(Sigma), |G|^2) from the mean squared norms of gradients at
    two batch sizes.

    For a batch B, E|G_B|^2 = |G|^2 + tr(Sigma) / B; the equations at B = small and B =
    big are solved for both. Source: McCandlish, Kaplan, Amodei et al., An empirical
    model of large-batch training (2018), arXiv:1812.06162, A.1.
    """
    if small == big:
        raise BadArgument(f"Expected two batch sizes that differ, got {small} twice.")
    noise = (small_squared - big_squared) / (1 / small - 1 / big)
    signal = (big * big_squared - small * small_squared) / (big - small)
    return noise, signal


@checked
def gradient_noise(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    small: Count = 16,
    parts: Annotated[int, Number(least=2)] = 16,
    draws: Annotated[int, Number(least=2, most=1_000_000)] = 40,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> GradientNoise:
    """Measure the gradient noise scale of a model in its present state; nothing is
    trained.

    Each of `draws` draws takes `parts` gradients, each the mean over `small` images
    drawn with replacement, so that only chance differs between them; their mean is the
    gradient of a batch of parts * small. The squared norms at the two sizes give
    tr(Sigma) and |G|^2 (`noise_scale`). Both are averaged over the draws before they
    are divided: a mean of ratios would be biased. `loss(output, labels)` must be a mean
    over the images. The model is in evaluation mode meanwhile: dropout is off, and
    BatchNorm, which would mix the images of a batch, uses its running statistics. Modes
    are restored afterwards, and the parameters' own gradients are not touched. Raises
    BadArgument for fewer than 2 parts or draws, and for a model without parameters that
    require a gradient.
    """
    check_labeled("images", (images, labels))
    wanted = [part for part in model.parameters() if part.requires_grad]
    if not wanted:
        raise BadArgument(
            "Expected a model with parameters that require a gradient, got none."
        )
    generator = torch.Generator().manual_seed(seed)
    # of each draw: mean squared norm of the parts, squared norm of their mean
    norms: list[Tensor] = []
    with evaluating(model), torch.enable_grad():
        for _ in range(draws):
            total = [torch.zeros_like(part) for part in wanted]
            squared = torch.zeros((), device=images.device)
            for _ in range(parts):
                rows = torch.randint(len(images), (small,), generator=generator).to(
                    images.device
                )
                gradients = torch.autograd.grad(
                    loss(model(images[rows]), labels[rows]),
                    wanted,
                    materialize_grads=True,
                )
                torch._foreach_add_(total, gradients)
                squared = squared + _squared_norm(gradients) / parts
            norms.append(torch.stack([squared, _squared_norm(total) / parts**2]))
    return _estimate(torch.stack(norms).double().cpu(), small, small * parts, generator)


def _squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in gradients]).sum()


def _estimate(
    norms: Tensor, small: int, big: int, generator: torch.Generator
) -> GradientNoise:
    """Estimate the noise from the squared norms (draws, 2) of each draw, and its
    interval by resampling the draws.
    """
    draws = len(norms)
    rows = torch.randint(draws, (_RESAMPLES, draws), generator=generator)
    scales = sorted(
        _over(*noise_scale(small, big, *pair)) for pair in norms[rows].mean(1).tolist()
    )
    cut = int(0.025 * _RESAMPLES)
    return GradientNoise(
        *noise_scale(small, big, *norms.mean(0).tolist()),
        max(scales[cut], 0.0),
        scales[-1 - cut],
        draws,
    )


def _over(noise: float, signal: float) -> float:
    # an unbiased estimate of |G|^2 may fall below 0
    return noise / signal if signal > 0 else float("inf")
