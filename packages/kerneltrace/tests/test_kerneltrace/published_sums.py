"""Published reductions and histograms, for numba.cuda."""

import numpy as np
from numba import cuda, int32, uint32

FULL = 0xFFFFFFFF


@cuda.jit
def all_atomic(x, total):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])


def block_atomic(dtype):
    @cuda.jit
    def kernel(x, total):
        partial = cuda.shared.array(1, dtype)
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        if t == 0:
            partial[0] = 0
        cuda.syncthreads()
        if i < x.size:
            cuda.atomic.add(partial, 0, x[i])
        cuda.syncthreads()
        if t == 0:
            cuda.atomic.add(total, 0, partial[0])

    return kernel


def tree(dtype, last=1, loads=1, tail=""):
    """A kernel whose blocks of 256 add halves down to `last` sums; the `tail` adds the
    rest within a warp.
    """
    shuffled = tail == "shuffled"
    unrolled = tail == "unrolled"

    @cuda.jit
    def kernel(x, total):
        sums = cuda.shared.array(256, dtype)
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        sums[t] = x[i]
        if loads == 2:
            sums[t] += x[i + x.size // 2]
        step = 128
        while step >= last:
            cuda.syncthreads()
            if t < step:
                sums[t] += sums[t + step]
            step //= 2
        if unrolled and t < 32:  # as published, without a barrier after the last turn
            for k in (32, 16, 8, 4, 2, 1):
                kept = sums[t] + sums[t + k]
                cuda.syncwarp()
                sums[t] = kept
                cuda.syncwarp()
        own = sums[t]
        if shuffled and t < 32:
            if last == 64:
                own += sums[t + 32]
            for k in (16, 8, 4, 2, 1):
                own += cuda.shfl_down_sync(FULL, own, k)
        if t == 0:
            cuda.atomic.add(total, 0, own if shuffled else sums[0])

    return kernel


def blocks_of_512(way):
    """A kernel whose blocks of 512 add neighbors, or halves, in one of five published
    ways.
    """
    loads = 1 if way < 4 else 2
    last = 64 if way == 5 else 1

    @cuda.jit
    def kernel(x, out):
        sums = cuda.shared.array(512, uint32)
        t = cuda.threadIdx.x
        i = cuda.blockIdx.x * 512 * loads + t
        sums[t] = x[i]
        if loads == 2:
            sums[t] += x[i + 512]
        else:  # two loads go on without a barrier, as published
            cuda.syncthreads()
        if way < 3:
            step = uint32(1)
            while step < cuda.blockDim.x:
                if way == 1:
                    if uint32(t) % (2 * step) == 0:
                        sums[t] += sums[t + step]
                else:
                    at = 2 * step * t
                    if at < 512:
                        sums[at] += sums[at + step]
                cuda.syncthreads()
                step *= 2
        else:
            step = 256
            while step >= last:
                if t < step:
                    sums[t] += sums[t + step]
                cuda.syncthreads()
                step //= 2
        if way == 5 and t < 32:
            for k in (32, 16, 8, 4, 2, 1):
                kept = sums[t] + sums[t + k]
                cuda.syncwarp()
                sums[t] = kept
                cuda.syncwarp()
        if t == 0:
            out[cuda.blockIdx.x] = sums[0]

    return kernel


@cuda.jit
def histogram(x, bins):
    step = cuda.blockDim.x * cuda.gridDim.x
    for i in range(cuda.grid(1), x.size, step):
        cuda.atomic.add(bins, x[i], 1)


def histogram_in_shared_memory(n_bins):
    @cuda.jit
    def kernel(x, bins):
        own = cuda.shared.array(n_bins, int32)
        for k in range(cuda.threadIdx.x, n_bins, cuda.blockDim.x):
            own[k] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), x.size, cuda.blockDim.x * cuda.gridDim.x):
            cuda.atomic.add(own, x[i], 1)
        cuda.syncthreads()
        for k in range(cuda.threadIdx.x, n_bins, cuda.blockDim.x):
            cuda.atomic.add(bins, k, own[k])

    return kernel


RANDOM_BYTES = np.random.default_rng(4).integers(0, 256, 2**14, np.uint8)
