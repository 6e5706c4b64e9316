"""The bytes that a layer saves for its backward pass, as torch's own hooks report them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from labkit.core.parameters import checked


@checked
def saved_activation_bytes(layer: torch.nn.Module | Callable[..., Any], *inputs: torch.Tensor) -> int:
    """Bytes that `layer(*inputs)` saves until its backward pass, inputs included.

    Its parameters and buffers don't count, and tensors that share memory count once. An input that needs no gradient
    may be saved too. Tensors that a layer keeps by itself, as attributes, are not seen.
    """
    own = [*layer.parameters(), *layer.buffers()] if isinstance(layer, torch.nn.Module) else []
    own_addresses = {tensor.untyped_storage().data_ptr() for tensor in own}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own_addresses:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        alive = layer(*inputs)  # while it lives, no address is reused
    del alive
    return sum(kept.values())
