"""What a layer keeps for its backward pass, in bytes, as torch's own hooks see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def saved_activation_bytes(layer: torch.nn.Module | Callable[..., Any], *inputs: torch.Tensor) -> int:
    """Bytes that `layer(*inputs)` keeps until its backward pass, its inputs among them.

    Its parameters and buffers don't count, and tensors that share their memory count once. An input that needs no
    gradient may be kept too. What a layer keeps without torch's knowledge is not seen.
    """
    own = [*layer.parameters(), *layer.buffers()] if isinstance(layer, torch.nn.Module) else []
    own_places = {tensor.untyped_storage().data_ptr() for tensor in own}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own_places:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        alive = layer(*inputs)  # while it lives, no place in memory is used twice
    del alive
    return sum(kept.values())
