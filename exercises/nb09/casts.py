"""What torch.autocast decides for nine operations that networks use."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labkit.core.display import Table


def _convolution(x: Tensor) -> Tensor:
    """An image (64, 64) with a kernel of 3 x 3."""
    return torch.conv2d(x[None, None], x[None, None, :3, :3])


def _layer_norm(x: Tensor) -> Tensor:
    return torch.layer_norm(x, list(x.shape[1:]))


# operation -> what it does, and a plausible input
_SQUARE = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
_LOGITS = torch.tensor([[-25.0, 0.0, 12.0]])
_SMALL = torch.tensor([[1e-5, -3e-4]])
_OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "matmul": (lambda x: x @ x, _SQUARE),
    "convolution": (_convolution, _SQUARE),
    "relu": (torch.relu, _SQUARE),
    "exp": (torch.exp, _LOGITS),
    "softmax": (lambda x: torch.softmax(x, 1), _LOGITS),
    "square": (lambda x: x.pow(2), _SMALL),
    "reciprocal": (torch.reciprocal, _SMALL),
    "sum": (torch.sum, torch.ones(70_000)),
    "layer norm": (_layer_norm, _SQUARE),
}


def results(device: str, dtype: torch.dtype) -> Table:
    """The dtype of each operation's result under autocast to `dtype`, from an input in
    float32 and from one in `dtype`.
    """
    rows = []
    for name, (operation, x) in _OPERATIONS.items():
        row = [name]
        for given in (torch.float32, dtype):
            with torch.autocast(device, dtype=dtype):
                result = operation(x.to(device, given))
            row.append(str(result.dtype).removeprefix("torch."))
        rows.append(tuple(row))
    return Table(tuple(rows), ("operation", "from float32", "from 16 bits"))
