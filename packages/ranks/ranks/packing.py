"""Results on their way to the notebook: whatever cloudpickle takes, and tensors without
a copy.
"""

from __future__ import annotations

import ctypes
import io
import pickle
from typing import Any

import cloudpickle
import torch


class _ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and _is_plain(obj):
            data = pickle.PickleBuffer(_bytes_of(obj.contiguous()))
            return _tensor, (data, obj.dtype, tuple(obj.shape))
        return super().reducer_override(obj)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers and shape are all there is to it; torch pickles any other
    tensor itself.
    """
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.numel() > 0
        and not tensor.requires_grad
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _bytes_of(tensor: torch.Tensor) -> Any:
    """A tensor's memory, which it keeps alive; without NumPy, which torch doesn't bring
    and which has no bfloat16.
    """
    n_bytes = tensor.numel() * tensor.element_size()
    data: Any = (ctypes.c_ubyte * n_bytes).from_address(tensor.data_ptr())
    data.tensor = tensor
    return data


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


def pack(value: Any) -> tuple[pickle.PickleBuffer, list[pickle.PickleBuffer]]:
    """`value` as bytes, and the numbers of its tensors beside them."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _ResultPickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return pickle.PickleBuffer(file.getbuffer()), buffers


def unpack(packed: tuple[Any, list[Any]]) -> Any:
    """The value that `pack` was given."""
    data, buffers = packed
    return pickle.loads(data, buffers=buffers)
