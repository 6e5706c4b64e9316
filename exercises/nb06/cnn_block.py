"""Launch the fused block of convolution, bias, ReLU and 2 x 2 max pooling, forward and
backward, in float32.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from exercises import cuda_launch
from labkit.core.errors import LabError

FILE = Path(__file__).with_suffix(".cu")
# of shared memory; more than 48 KiB a block would need an opt-in
_STATIC_FLOATS = 48 * 1024 // 4
_MAX_THREADS = 1024
_THREADS = 256  # THREADS of cnn_block.cu


@dataclass(frozen=True)
class _Constants:
    """The constants that cnn_block.cu is compiled with."""

    c_in: int
    c_out: int
    height: int
    width: int
    kernel: int
    padding: int

    @property
    def pooled(self) -> tuple[int, int]:
        shrink = self.kernel - 1 - 2 * self.padding
        return (self.height - shrink) // 2, (self.width - shrink) // 2

    @property
    def places(self) -> int:
        return self.pooled[0] * self.pooled[1]

    @property
    # 4 x 6 sums and a patch stay below 80 registers; more threads hide more latency
    def out_group(self) -> int:
        return _divisor(self.c_out, 6)

    @property
    def in_group(self) -> int:
        return _divisor(self.c_in, 2)

    @property
    def weights(self) -> int:
        return self.c_out * self.c_in * self.kernel**2

    @property
    def weight_threads(self) -> int:
        return _whole_warps(self.c_out * self.kernel**2)

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        values = dataclasses.asdict(self) | {
            "out_group": self.out_group,
            "in_group": self.in_group,
        }
        return tuple(f"-D{name.upper()}={value}" for name, value in values.items())

    def shared_floats(self) -> int:
        """Floats of shared memory in a block of the kernel that needs most."""
        spread = (self.height + self.kernel) * (self.width + self.kernel)
        padded = (self.height + 2 * self.padding) * (
            self.width + 2 * self.padding + self.kernel
        )
        forward = self.c_in * self.kernel**2 * self.out_group
        grad_x = self.c_out * spread + self.weights
        return max(forward, grad_x, self.c_in * padded + 2 * self.c_out * self.places)


def cnn_block_forward(
    x: Tensor, weight: Tensor, bias: Tensor, *, padding: int = 0
) -> tuple[Tensor, Tensor]:
    """max_pool2d(relu(conv2d(x, weight, bias, padding=padding)), 2), and the position
    of each maximum.

    x (N, C, H, W), weight (D, C, K, K) and bias (D) are float32; the result is (N, D,
    h, w) with h = (H + 2 padding - K + 1) // 2, and w alike. The second tensor, of
    uint8, is what `cnn_block_backward` needs. Raises LabError for tensors the kernel
    can't take, and for a block too large for its shared memory.
    """
    sizes = _constants(x, weight, padding)
    cuda_launch.check_tensors(torch.float32, x=x, weight=weight, bias=bias)
    cuda_launch.check_shape("bias", bias, (sizes.c_out,))
    images = x.shape[0]
    pooled = x.new_empty(images, sizes.c_out, *sizes.pooled)
    choice = torch.empty_like(pooled, dtype=torch.uint8)
    if images:
        grid = (-(-images * sizes.places // _THREADS), sizes.c_out // sizes.out_group)
        arguments = (x, weight, bias, pooled, choice, np.int32(images))
        cuda_launch.run(
            FILE,
            "cnn_block_forward",
            grid,
            (_THREADS,),
            arguments,
            options=sizes.options,
        )
    return pooled, choice


def cnn_block_backward(
    grad_pooled: Tensor,
    choice: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    padding: int = 0,
    input_gradient: bool = True,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of x (None unless `input_gradient`), weight and bias, from that of the
    pooled result.

    Shapes are as in `cnn_block_forward`, whose second result is `choice`. Sums run in a
    fixed order, so that results repeat to the bit on one GPU. Raises LabError for
    tensors the kernels can't take.
    """
    sizes = _constants(x, weight, padding)
    shape = (x.shape[0], sizes.c_out, *sizes.pooled)
    cuda_launch.check_tensors(
        torch.float32, grad_pooled=grad_pooled, x=x, weight=weight
    )
    cuda_launch.check_tensors(torch.uint8, choice=choice)
    cuda_launch.check_devices(choice=choice, x=x)
    cuda_launch.check_shape("grad_pooled", grad_pooled, shape)
    cuda_launch.check_shape("choice", choice, shape)
    if not x.shape[0]:
        return (
            torch.zeros_like(x) if input_gradient else None,
            torch.zeros_like(weight),
            weight.new_zeros(sizes.c_out),
        )
    grad_x = _grad_x(sizes, grad_pooled, choice, x, weight) if input_gradient else None
    return grad_x, *_grad_weight(sizes, grad_pooled, choice, x, weight)


def _grad_x(
    sizes: _Constants, grad_pooled: Tensor, choice: Tensor, x: Tensor, weight: Tensor
) -> Tensor:
    grad_x = torch.empty_like(x)
    items = (
        -(-sizes.height // 2) * -(-sizes.width // 2) * (sizes.c_in // sizes.in_group)
    )
    threads = min(_THREADS, _whole_warps(items))
    arguments = (grad_pooled, choice, weight, grad_x)
    cuda_launch.run(
        FILE,
        "cnn_block_grad_x",
        (x.shape[0],),
        (threads,),
        arguments,
        options=sizes.options,
    )
    return grad_x


def _grad_weight(
    sizes: _Constants, grad_pooled: Tensor, choice: Tensor, x: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    images = x.shape[0]
    columns = sizes.weights + sizes.c_out
    # Four blocks a multiprocessor: few partial sums, and still several blocks to
    # overlap.
    blocks = min(images, 4 * cuda_launch.properties(x.device).multi_processor_count)
    partial = x.new_empty(blocks, columns)
    total = x.new_empty(columns)
    arguments = (grad_pooled, choice, x, partial, np.int32(images))
    cuda_launch.run(
        FILE,
        "cnn_block_grad_weight",
        (blocks,),
        (sizes.weight_threads,),
        arguments,
        options=sizes.options,
    )
    summed = (partial, total, np.int32(blocks), np.int32(columns))
    cuda_launch.run(
        FILE,
        "sum_columns",
        (-(-columns // 32),),
        (32, 8),
        summed,
        options=sizes.options,
    )
    return total[: sizes.weights].view_as(weight), total[sizes.weights :]


def _constants(x: Tensor, weight: Tensor, padding: int) -> _Constants:
    for name, tensor in (("x", x), ("weight", weight)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 4:
            shape = (
                tuple(tensor.shape)
                if isinstance(tensor, Tensor)
                else type(tensor).__name__
            )
            raise LabError(
                f"Expected {name} to be a tensor of four dimensions, got {shape}."
            )
    return _checked(tuple(x.shape), tuple(weight.shape), padding)


# a training step asks for the same few shapes again and again, and a launch takes
# microseconds
@functools.cache
def _checked(x: tuple[int, ...], weight: tuple[int, ...], padding: int) -> _Constants:
    images, c_in, height, width = x
    c_out, of_weight, kernel, other = weight
    if of_weight != c_in or kernel != other or not 0 <= padding < kernel:
        raise LabError(
            f"Expected weight (D, {c_in}, K, K) and a padding from 0 to K - 1 for x"
            f" {x}, got weight {weight} and padding {padding}."
        )
    sizes = _Constants(c_in, c_out, height, width, kernel, padding)
    if min(sizes.pooled) < 1 or images * sizes.places >= 2**31 - _THREADS:
        raise LabError(
            f"x {x} leaves no pooled place, or 2^31 and more, under a kernel of"
            f" {kernel}."
        )
    if sizes.shared_floats() > _STATIC_FLOATS or sizes.weight_threads > _MAX_THREADS:
        raise LabError(
            "This block is too large for the fused kernel:"
            f" {4 * sizes.shared_floats():,} bytes of shared memory of"
            f" {4 * _STATIC_FLOATS:,}, {sizes.weight_threads} threads of"
            f" {_MAX_THREADS}. Use torch's layers for it."
        )
    return sizes


def _divisor(n: int, most: int) -> int:
    """The largest divisor of `n` that is at most `most`."""
    return max(d for d in range(1, most + 1) if n % d == 0)


def _whole_warps(threads: int) -> int:
    return -(-threads // 32) * 32
