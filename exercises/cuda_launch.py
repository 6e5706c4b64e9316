"""Check tensors, compile a kernel file with CuPy once a device, and launch it on
torch's current stream.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.core.display import brief_repr
from labkit.core.errors import LabError, MissingExtra

ALIGNMENT_BYTES = 16  # the kernels load 16 bytes at once
_INT32 = 2**31
# CUDA C++ Programming Guide, "Technical Specifications"
_MAX_GRID = (2**31 - 1, 65535, 65535)

Scalar = np.int32 | np.int64 | np.float32


def check_tensors(dtype: torch.dtype, **tensors: Tensor) -> None:
    """Raise LabError unless all are contiguous tensors of `dtype` on one CUDA GPU,
    aligned to 16 bytes.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise LabError(
                f"Expected {name} to be a torch tensor, got {brief_repr(tensor)}."
                " torch.as_tensor makes one."
            )
        if tensor.dtype != dtype:
            raise LabError(
                f"Expected {name} to be {dtype}, got {tensor.dtype}. {name}.to({dtype})"
                " converts it."
            )
        if not tensor.is_contiguous():
            raise LabError(
                f"Expected {name} to lie row by row without gaps, got shape"
                f" {tuple(tensor.shape)} with strides {tensor.stride()}."
                f" {name}.contiguous() copies it into one piece."
            )
        if tensor.data_ptr() % ALIGNMENT_BYTES:
            raise LabError(
                f"Expected {name} to start at a multiple of {ALIGNMENT_BYTES} bytes,"
                f" got an offset of {tensor.data_ptr() % ALIGNMENT_BYTES}: it is a view"
                f" into another tensor. {name}.clone() is aligned."
            )
    check_devices(**tensors)


def check_devices(**tensors: Tensor) -> None:
    """Raise LabError unless all tensors are on the same CUDA GPU."""
    for name, tensor in tensors.items():
        if tensor.device.type != "cuda":
            raise LabError(
                f"Expected {name} on a CUDA GPU, got it on {tensor.device}."
                f" {name}.cuda() moves it there."
            )
    places = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(places.values())) > 1:
        devices = ", ".join(f"{name} on {device}" for name, device in places.items())
        raise LabError(
            f"Expected all tensors on one GPU, got {devices}. Move them with"
            " .to(device)."
        )


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise LabError unless `tensor` has that shape."""
    if tuple(tensor.shape) != shape:
        raise LabError(
            f"Expected {name} to have shape {shape}, got {tuple(tensor.shape)}."
        )


def matrix_shape(name: str, matrix: Tensor) -> tuple[int, int]:
    """Rows and columns of a tensor; LabError unless it is a matrix with sides below
    2^31.
    """
    if (
        not isinstance(matrix, Tensor)
        or matrix.dim() != 2
        or max(matrix.shape) >= _INT32
    ):
        got = (
            tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        )
        raise LabError(
            f"Expected {name} to be a matrix, a tensor of two dimensions under 2^31,"
            f" got {got}."
        )
    return matrix.shape[0], matrix.shape[1]


def int32(*values: int) -> tuple[np.int32, ...]:
    """Sizes as a kernel's int takes them."""
    return tuple(np.int32(value) for value in values)


def blocks(items: int, a_block: int) -> int:
    """Blocks that cover `items` if each covers `a_block`."""
    return -(-items // a_block)


def run(
    file: Path,
    kernel: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    arguments: tuple[Tensor | Scalar, ...],
    *,
    options: tuple[str, ...] = (),
    shared_bytes: int = 0,
) -> None:
    """Queue one launch of a kernel from a .cu file on the current stream of its
    tensors' GPU.

    Tensors are passed as the address of their data, numbers in their own type;
    `shared_bytes` is the dynamic shared memory of a block. Raises LabError for more
    blocks than a grid may have, MissingExtra without CuPy.
    """
    for axis, count, most in zip("xyz", grid, _MAX_GRID, strict=False):
        if count > most:
            raise LabError(
                f"{kernel} would need {count:,} blocks along {axis}, and a grid has at"
                f" most {most:,}."
            )
    device = next(a.device for a in arguments if isinstance(a, Tensor))
    values = tuple(
        np.uint64(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments
    )
    with torch.cuda.device(device):
        function = _compiled(file, kernel, options, shared_bytes, device.index)
        function(grid, block, values, shared_mem=shared_bytes, stream=_stream(device))


def properties(device: torch.device) -> Any:
    """Torch's properties of a GPU; Any, since torch's stubs leave out the shared memory
    that a block may opt in to.
    """
    return torch.cuda.get_device_properties(device)


@functools.cache
def _compiled(
    file: Path,
    kernel: str,
    options: tuple[str, ...],
    shared_bytes: int,
    device_index: int,
) -> Any:
    function = (
        _cupy()
        .RawModule(
            code=file.read_text(encoding="utf-8"), options=("-std=c++17", *options)
        )
        .get_function(kernel)
    )
    if shared_bytes > 48 * 1024:  # more needs an opt-in, once a kernel and device
        function.max_dynamic_shared_size_bytes = shared_bytes
    return function


def _stream(device: torch.device) -> Any:
    """Torch's current stream as CuPy's."""
    return _cupy().cuda.Stream.from_external(torch.cuda.current_stream(device))


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise MissingExtra(
            'The kernels need CuPy: pip install -e ".[cuda12]", or .[cuda13] for'
            " CUDA 13."
        ) from error
    return cupy
