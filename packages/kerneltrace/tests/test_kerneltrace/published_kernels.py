"""Matrix products whose times somebody published, rewritten for numba.cuda, and the
launches of all such kernels.

Local arrays of fixed size are what a compiler keeps in registers. Kernels that load
four numbers at once from global memory (float4), which numba.cuda can't, are left out.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, uint32

from kerneltrace import trace
from test_kerneltrace import published_memory as memory, published_sums as sums
from test_kerneltrace.published_cards import CARDS

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
    tile_a, tile_b = (
        cuda.shared.array((32, 32), float32),
        cuda.shared.array((32, 32), float32),
    )
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
    tile_a, tile_b = (
        cuda.shared.array((64, 8), float32),
        cuda.shared.array((8, 64), float32),
    )
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
    """A kernel whose blocks of 256 threads compute 128 x 128 results, `depth` steps at
    a time in shared memory.
    """
    rows = 256 // depth  # of a that the threads of a block load together
    shape = (depth, 128) if transposed else (128, depth)

    @cuda.jit
    def kernel(a, b, c):
        tile_a, tile_b = (
            cuda.shared.array(shape, float32),
            cuda.shared.array((depth, 128), float32),
        )
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
                    of_a[i] = (
                        tile_a[k, y * 8 + i] if transposed else tile_a[y * 8 + i, k]
                    )
                    of_b[0, i] = tile_b[k, x * 8 + i]
                for i in range(8):
                    for j in range(8):
                        sums[i, j] += of_a[i] * of_b[0, j]
            cuda.syncthreads()
        for i in range(8):
            for j in range(8):
                c[row + y * 8 + i, column + x * 8 + j] = sums[i, j]

    return kernel


def integer_product(side):
    """A kernel of one result a thread, from two tiles in dynamic shared memory; without
    tiles if `side` is 0.

    As in the source only the launch says how wide a tile is.
    """

    @cuda.jit
    def plain(a, b, c):
        column, row = cuda.grid(2)
        total = uint32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total

    @cuda.jit
    def tiled(a, b, c):
        tiles = cuda.shared.array(0, uint32)
        column, row = cuda.grid(2)
        x, y, side = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockDim.x
        total = uint32(0)
        for first in range(0, a.shape[1], side):
            tiles[y * side + x] = a[row, first + x]
            tiles[side * side + y * side + x] = b[first + y, column]
            cuda.syncthreads()
            for k in range(side):
                total += tiles[y * side + k] * tiles[side * side + k * side + x]
            cuda.syncthreads()
        c[row, column] = total

    return tiled if side else plain


class Launch(NamedTuple):
    """How a kernel is traced, and the grid and the turns, times those traced, of the
    launch that was timed.
    """

    kernel: Any
    grid: Any
    block: Any
    arrays: tuple[np.ndarray, ...]
    full_grid: Any
    longer: float = 1.0
    shared_bytes: int = 0
    races: bool = False
    """Whether the published kernel lacks a barrier that it needs."""
    registers: int | None = None
    """A thread, where the published source compiles to far more than an estimate
    assumes.
    """

    def traced(self):
        """The trace of the launch."""
        arrays = (array.copy() for array in self.arrays)
        traced = trace(
            self.kernel, self.grid, self.block, *arrays, shared_bytes=self.shared_bytes
        )
        assert self.races != traced.ok, traced
        return traced

    def estimate(self, device, done=None):
        """The estimate for a device, from a trace if there is one already."""
        device = CARDS.get(device, device)
        done = done or self.traced()
        return done.estimate(
            device, grid=self.full_grid, longer=self.longer, registers=self.registers
        )


def ones(*shapes, dtype=np.float32):
    return tuple(np.ones(shape, dtype) for shape in shapes)


def _matmul(kernel, side, block, n=N, dtype=np.float32, shared_bytes=0, registers=None):
    arrays = ones(
        (2 * side, DEPTH), (DEPTH, 2 * side), (2 * side, 2 * side), dtype=dtype
    )
    return Launch(
        kernel,
        (2, 2),
        block,
        arrays,
        (n // side, n // side),
        n / DEPTH,
        shared_bytes,
        registers=registers,
    )


def _integer(tile, n=N):
    side = tile or 16
    return _matmul(
        integer_product(tile), side, (side, side), n, np.uint32, 8 * tile * tile
    )


def _square(kernel, n, block=(32, 32), side=32, dtype=np.float32, arrays=2):
    """A kernel that goes through matrices of n x n, in tiles of `side` squared."""
    full = -(-n // side)
    return Launch(
        kernel,
        (4, 4),
        block,
        ones(*arrays * [(4 * side, 4 * side)], dtype=dtype),
        (full, full),
    )


def _line(kernel, n, block, arrays, grid=8, dtype=np.float32, shared_bytes=0):
    """A kernel of a thread for each of n numbers; `arrays` are the shapes that a trace
    of `grid` blocks takes.
    """
    return Launch(
        kernel,
        grid,
        block,
        ones(*arrays, dtype=dtype),
        -(-n // block),
        1.0,
        shared_bytes,
    )


LAUNCHES = {
    "matmul, not coalesced": _matmul(naive, 32, (32, 32)),
    "matmul, coalesced": _matmul(coalesced, 32, 1024),
    "matmul in shared memory": _matmul(in_shared_memory, 32, 1024),
    "matmul, 8 a thread": _matmul(eight_a_thread, 64, 512),
    "matmul, 8 x 8 a thread": _matmul(eight_by_eight(8), 128, 256),
    # gemm_v04 and gemm_v05 of the source index with size_t: as NVRTC compiles them for
    # 8.6
    "matmul, 8 x 8 a thread, depth 16": _matmul(
        eight_by_eight(16), 128, 256, registers=168
    ),
    "matmul, 8 x 8 a thread, depth 16, transposed": _matmul(
        eight_by_eight(16, transposed=True), 128, 256, registers=162
    ),
    "uint32 matmul": _integer(0, 2048),
    "uint32 matmul, tiles of 16, half the size": _integer(16, 2048),
    **{f"uint32 matmul, tiles of {side}": _integer(side) for side in (4, 8, 16, 32)},
    "copy": _line(memory.copied, 2**28, 128, [1024, 1024]),
    "transpose, not coalesced": _square(memory.transposed, 32768),
    "transpose in shared memory": _square(
        memory.transposed_in_shared_memory(float32), 32768
    ),
    "transpose, padded": _square(
        memory.transposed_in_shared_memory(float32, 32, 33), 32768
    ),
    **{
        f"transpose, padded, {32 // rows} a thread": _square(
            memory.transposed_in_shared_memory(float32, 32, 33, rows), 32768, (32, rows)
        )
        for rows in (16, 8, 4)
    },
    "copy in rows": _line(memory.copied, 8192**2, 256, [2048, 2048]),
    # 32 blocks in 16 rows, as many rows as the blocks that an A6000 runs at once go
    # through
    "transpose in rows, coalesced reads": _line(
        memory.transposed_in_rows, 8192**2, 256, [(16, 512), (512, 16)], 32
    ),
    "transpose in rows, coalesced writes": _line(
        memory.transposed_in_rows_by_writes, 8192**2, 256, [(512, 64), (64, 512)], 128
    ),
    "transpose, tiles of 16": _square(
        memory.transposed_in_shared_memory(float32, 16, 16, 16), 8192, (16, 16), 16
    ),
    **{
        f"{dtype} {name}": _square(kernel, 10000, dtype=dtype.name)
        for dtype in (np.dtype("f4"), np.dtype("f8"))
        for name, kernel in (
            ("copy in tiles", memory.copied_in_tiles),
            ("transpose, coalesced reads", memory.transposed),
            ("transpose, coalesced writes", memory.transposed_by_writes),
            (
                "transpose in shared memory",
                memory.transposed_in_shared_memory(getattr(memory, dtype.name)),
            ),
            (
                "transpose, padded",
                memory.transposed_in_shared_memory(getattr(memory, dtype.name), 32, 33),
            ),
        )
    },
    "float32 sum of two arrays": _line(memory.added, 10**8, 128, 3 * [1024]),
    "float64 sum of two arrays": _line(
        memory.added, 10**8, 128, 3 * [1024], dtype=np.float64
    ),
    "sum of two matrices": _square(memory.matrices_added, 8192, (16, 16), 16, arrays=3),
    "sum of two matrices, not coalesced": _square(
        memory.matrices_added_by_columns, 8192, (16, 16), 16, arrays=3
    ),
    "RGB to gray": Launch(
        memory.gray,
        (4, 4),
        (16, 16),
        ones((64, 192), (64, 64), dtype=np.uint8),
        (512, 512),
    ),
    **{
        f"convolution 1-D, {n} taps": Launch(
            memory.convolved, 8, 512, ones(4096, n, 4096), 2**17
        )
        for n in (5, 11)
    },
    "convolution 1-D, 5 taps, tiled": _line(
        memory.convolved_in_tiles, 2**26, 512, [4096, 4096], shared_bytes=516 * 4
    ),
    **{
        f"convolution 2-D, {n} x {n}": Launch(
            memory.convolved_2d,
            (4, 4),
            (16, 16),
            ones((64, 64), (n, n), (64, 64)),
            (512, 512),
        )
        for n in (5, 11)
    },
    "matrix times vector": Launch(
        memory.times_vector, 2, 512, ones((1024, 64), 64, 1024, dtype=np.uint32), 8, 64
    ),
    "matrix times vector, tiled": Launch(
        memory.times_vector_in_tiles,
        2,
        512,
        ones((1024, 512), 512, 1024, dtype=np.uint32),
        8,
        8,
        2048,
    ),
    **{
        f"{dtype} sum, {name}": Launch(
            kernel(getattr(np, dtype)),
            8,
            256,
            ones(2048 * loads, 1, dtype=dtype),
            2**17 // loads,
            races=races,
        )
        for dtype in ("float32", "int32")
        for name, loads, races, kernel in (
            ("global atomics", 1, False, lambda dtype: sums.all_atomic),
            ("shared atomics", 1, False, sums.block_atomic),
            ("shared tree", 1, False, sums.tree),
            (
                "shuffled tail",
                1,
                False,
                lambda dtype: sums.tree(dtype, 32, tail="shuffled"),
            ),
            (
                "unrolled tail",
                1,
                True,
                lambda dtype: sums.tree(dtype, 64, tail="unrolled"),
            ),
            (
                "2 loads a thread",
                2,
                True,
                lambda dtype: sums.tree(dtype, 64, 2, "shuffled"),
            ),
        )
    },
    **{
        f"uint32 sum, {name}": Launch(
            sums.blocks_of_512(way),
            8,
            512,
            ones(8192, 8, dtype=np.uint32),
            2**17 // (1 if way < 4 else 2),
            races=way > 3,
        )
        for way, name in enumerate(
            (
                "neighbors by remainder",
                "neighbors",
                "halves",
                "2 loads a thread",
                "last warp unrolled",
            ),
            1,
        )
    },
    "histogram of zeros, global atomics": Launch(
        sums.histogram,
        8,
        512,
        (np.zeros(4096, np.uint32), np.zeros(512, np.int32)),
        2**17,
    ),
    "histogram of zeros, shared atomics": Launch(
        sums.histogram_in_shared_memory(512),
        8,
        512,
        (np.zeros(4096, np.uint32), np.zeros(512, np.int32)),
        2**17,
    ),
    # a turn of the loop is traced: of 2^30 numbers 4,224 blocks of 512 threads take
    # 496.5 turns
    **{
        f"histogram of bytes, {where} atomics": Launch(
            kernel,
            8,
            512,
            (sums.RANDOM_BYTES, np.zeros(256, np.int32)),
            4224,
            2**30 / 4224 / 2048,
        )
        for where, kernel in (
            ("global", sums.histogram),
            ("shared", sums.histogram_in_shared_memory(256)),
        )
    },
}
