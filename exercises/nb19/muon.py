"""What Muon and its successors do to a gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labkit import plot

# a, b and c of each step, as modded-nanogpt has them (train_gpt.py, commit f411b3d3).
_POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def polar_express(gradient: Tensor) -> Tensor:
    """A matrix with the gradient's singular vectors and singular values of about 1.

    Muon's iteration with coefficients of its own for each step. Source: N. Amsel, D.
    Persson, C. Musco and R. M. Gower, The Polar Express (2025), arXiv:2505.16932.
    """
    tall = gradient.shape[0] > gradient.shape[1]
    x: Tensor = gradient.mT if tall else gradient
    x = x / (1.02 * x.norm() + 1e-6)
    for a, b, c in _POLAR_EXPRESS:
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


def singular_values(gradient: Tensor, yours: Callable[[Tensor], Tensor]) -> object:
    """A figure of the singular values of a gradient, in their order, and of what
    becomes of them.
    """
    matrices = {
        "gradient": gradient,
        "yours": yours(gradient),
        "Polar Express": polar_express(gradient),
    }
    lines = {
        name: torch.linalg.svdvals(matrix.float()).tolist()
        for name, matrix in matrices.items()
    }
    return plot.curves(lines, x="number", y="singular value")
