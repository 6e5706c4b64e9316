"""Kernels whose times somebody published, rewritten for numba.cuda from their descriptions, and the launches timed.

Local arrays of fixed size are what a compiler keeps in registers. Kernels that load four numbers at once from global
memory (float4), which numba.cuda can't, are left out.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32

from kerneltrace import trace

N = 4096  # side of the published matrices
DEPTH = 64  # of the traced ones: 64 of the loop's 4,096 turns


@cuda.jit
def naive(a, b, c):
    row, column = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@cuda.jit
def coalesced(a, b, c):
    row = cuda.blockIdx.x * 32 + cuda.threadIdx.x // 32
    column = cuda.blockIdx.y * 32 + cuda.threadIdx.x % 32
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@cuda.jit
def in_shared_memory(a, b, c):
    tile_a, tile_b = cuda.shared.array((32, 32), float32), cuda.shared.array((32, 32), float32)
    y, x = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
    row, column = cuda.blockIdx.x * 32 + y, cuda.blockIdx.y * 32 + x
    total = float32(0)
    for first in range(0, a.shape[1], 32):
        tile_a[y, x] = a[row, first + x]
        tile_b[y, x] = b[first + y, column]
        cuda.syncthreads()
        for k in range(32):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def eight_a_thread(a, b, c):
    tile_a, tile_b = cuda.shared.array((64, 8), float32), cuda.shared.array((8, 64), float32)
    sums = cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    x, y = t % 64, t // 64
    row, column = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    for i in range(8):
        sums[i] = 0
    for first in range(0, a.shape[1], 8):
        tile_a[t // 8, t % 8] = a[row + t // 8, first + t % 8]
        tile_b[y, x] = b[first + y, column + x]
        cuda.syncthreads()
        for k in range(8):
            of_b = tile_b[k, x]
            for i in range(8):
                sums[i] += tile_a[y * 8 + i, k] * of_b
        cuda.syncthreads()
    for i in range(8):
        c[row + y * 8 + i, column + x] = sums[i]


def eight_by_eight(depth, transposed=False):
    """A kernel whose blocks of 256 threads compute 128 x 128 results, `depth` steps at a time in shared memory."""
    rows = 256 // depth  # of a that the threads of a block load together
    shape = (depth, 128) if transposed else (128, depth)

    @cuda.jit
    def kernel(a, b, c):
        tile_a, tile_b = cuda.shared.array(shape, float32), cuda.shared.array((depth, 128), float32)
        sums = cuda.local.array((8, 8), float32)
        of_a, of_b = cuda.local.array(8, float32), cuda.local.array((1, 8), float32)
        t = cuda.threadIdx.x
        x, y = t % 16, t // 16
        row, column = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
        for i in range(8):
            for j in range(8):
                sums[i, j] = 0
        for first in range(0, a.shape[1], depth):
            for i in range(128 // rows):
                r, k = i * rows + t // depth, t % depth
                if transposed:
                    tile_a[k, r] = a[row + r, first + k]
                else:
                    tile_a[r, k] = a[row + r, first + k]
                k, r = i * 2 + t // 128, t % 128
                tile_b[k, r] = b[first + k, column + r]
            cuda.syncthreads()
            for k in range(depth):
                for i in range(8):
                    of_a[i] = tile_a[k, y * 8 + i] if transposed else tile_a[y * 8 + i, k]
                    of_b[0, i] = tile_b[k, x * 8 + i]
                for i in range(8):
                    for j in range(8):
                        sums[i, j] += of_a[i] * of_b[0, j]
            cuda.syncthreads()
        for i in range(8):
            for j in range(8):
                c[row + y * 8 + i, column + x * 8 + j] = sums[i, j]

    return kernel


@cuda.jit
def copied(x, out):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def transposed(a, out):
    column, row = cuda.grid(2)
    out[column, row] = a[row, column]


class Launch(NamedTuple):
    """How a kernel is traced, and the grid and the turns, times those traced, of the launch that was timed."""

    kernel: Any
    grid: Any
    block: Any
    shapes: tuple[tuple[int, ...], ...]
    full_grid: Any
    longer: float = 1.0

    def estimate(self, device):
        """The estimate for a device; NumPy's arrays of ones serve any of these kernels."""
        done = trace(self.kernel, self.grid, self.block, *(np.ones(s, np.float32) for s in self.shapes))
        assert done.ok, done
        return done.estimate(device, grid=self.full_grid, longer=self.longer)


def _matmul(kernel, side, block):
    shapes = (2 * side, DEPTH), (DEPTH, 2 * side), (2 * side, 2 * side)
    return Launch(kernel, (2, 2), block, shapes, (N // side, N // side), N / DEPTH)


LAUNCHES = {
    "matmul, not coalesced": _matmul(naive, 32, (32, 32)),
    "matmul, coalesced": _matmul(coalesced, 32, 1024),
    "matmul in shared memory": _matmul(in_shared_memory, 32, 1024),
    "matmul, 8 a thread": _matmul(eight_a_thread, 64, 512),
    "matmul, 8 x 8 a thread": _matmul(eight_by_eight(8), 128, 256),
    "matmul, 8 x 8 a thread, depth 16": _matmul(eight_by_eight(16), 128, 256),
    "matmul, 8 x 8 a thread, depth 16, transposed": _matmul(eight_by_eight(16, transposed=True), 128, 256),
    "copy": Launch(copied, 8, 128, ((1024,), (1024,)), 2**21),  # of 2^28 numbers
    "transpose, not coalesced": Launch(transposed, (2, 2), (32, 32), ((64, 64), (64, 64)), (512, 512)),
}
