"""How noisy a batch's gradient is, and up to which batch more images a step are worth their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.core.arguments import check_number
from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadArgument
from labkit.core.units import significant
from labkit.train.training.split import check_labelled, evaluating

_RESAMPLES = 1000


@dataclass(frozen=True, repr=False)
class GradientNoise(Shown):
    """The simple noise scale in images: `noise` / `signal`, that is tr(Sigma) / |G|^2.

    `noise` estimates tr(Sigma), the variance of one image's gradient summed over the parameters; `signal` |G|^2, the
    squared length of the gradient over all images. `low` and `high` are a 95 % bootstrap interval of the scale.
    """

    noise: float
    signal: float
    low: float
    high: float
    draws: int

    @property
    def scale(self) -> float:
        """tr(Sigma) / |G|^2, in images; inf where no signal rose above the noise."""
        return _over(self.noise, self.signal)

    def progress(self, batch: float) -> float:
        """The share, 0 to 1, of the best possible progress of one step that a batch of `batch` images makes.

        1 / (1 + scale / batch), a half at a batch as large as the scale: the predicted critical batch. Beyond it
        twice the images a step bring less than they cost. Source: McCandlish et al. (2018), equation 2.7.
        """
        check_number("batch", batch, above=0)
        return 1 / (1 + self.scale / batch)

    def __str__(self) -> str:
        ends = f"95 % interval {significant(self.low)} to {significant(self.high)}"
        return f"gradient noise scale {significant(self.scale)} images ({ends}; {self.draws} draws)"


def noise_scale(small: float, big: float, small_squared: float, big_squared: float) -> tuple[float, float]:
    """Unbiased (tr(Sigma), |G|^2) from the mean squared gradient norms at two batch sizes.

    E|G_B|^2 = |G|^2 + tr(Sigma) / B for a batch of B, at B = small and B = big, is solved for the two unknowns.
    Raises BadArgument unless 0 < small < big.
    Source: McCandlish, Kaplan, Amodei et al., An empirical model of large-batch training (2018), arXiv:1812.06162, A.1.
    """
    if not 0 < small < big:
        raise BadArgument(
            f"Expected two batch sizes, the smaller one first, got {brief_repr(small)} and {brief_repr(big)}."
        )
    noise = (small_squared - big_squared) / (1 / small - 1 / big)
    signal = (big * big_squared - small * small_squared) / (big - small)
    return noise, signal


def gradient_noise(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    small: int = 16,
    parts: int = 16,
    draws: int = 40,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> GradientNoise:
    """Measure the gradient noise scale of a model as it is; nothing is trained.

    A draw is `parts` gradients, each the mean over `small` images drawn with replacement, so that chance alone decides
    what differs between them; their mean is the gradient of a batch of parts * small. The squared norms at the two
    sizes give tr(Sigma) and |G|^2 (`noise_scale`). Both are averaged over the draws and only then divided: an average
    of ratios would be biased. `loss(output, labels)` must be a mean over the images.
    The model is in evaluation mode meanwhile: dropout is off, and BatchNorm, which would mix the images of a batch,
    uses its running statistics. Modes are restored, and gradients that the parameters hold are not touched.
    Raises BadArgument for fewer than 2 parts or draws, and for a model without parameters that want a gradient.
    """
    check_labelled("images", (images, labels))
    for name, value, least in (("small", small, 1), ("parts", parts, 2), ("draws", draws, 2)):
        check_number(name, value, least=least, whole=True)
    wanted = [part for part in model.parameters() if part.requires_grad]
    if not wanted:
        raise BadArgument("Expected a model with parameters that want a gradient, got none.")
    generator = torch.Generator().manual_seed(seed)
    norms: list[Tensor] = []  # of each draw: mean squared norm of the parts, squared norm of their mean
    with evaluating(model), torch.enable_grad():
        for _ in range(draws):
            total, squared = [torch.zeros_like(part) for part in wanted], torch.zeros((), device=images.device)
            for _ in range(parts):
                rows = torch.randint(len(images), (small,), generator=generator).to(images.device)
                found = torch.autograd.grad(loss(model(images[rows]), labels[rows]), wanted, materialize_grads=True)
                torch._foreach_add_(total, found)
                squared = squared + _squared_norm(found) / parts
            norms.append(torch.stack([squared, _squared_norm(total) / parts**2]))
    return _estimate(torch.stack(norms).double().cpu(), small, small * parts, generator)


def _squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in gradients]).sum()


def _estimate(norms: Tensor, small: int, big: int, generator: torch.Generator) -> GradientNoise:
    """From the squared norms (draws, 2) of each draw."""
    draws = len(norms)
    rows = torch.randint(draws, (_RESAMPLES, draws), generator=generator)
    scales = sorted(_over(*noise_scale(small, big, *pair)) for pair in norms[rows].mean(1).tolist())
    noise, signal = noise_scale(small, big, *norms.mean(0).tolist())
    cut = int(0.025 * _RESAMPLES)
    return GradientNoise(noise, signal, max(scales[cut], 0.0), scales[-1 - cut], draws)


def _over(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else float("inf")
