"""Run kernels on numba's own simulator, and pickle what they leave behind.

usage: python -m tests.test_kerneltrace.numba_simulator FILE [NAME ...]

The simulator is chosen when numba is imported, so this runs in a process of its own, with NUMBA_ENABLE_CUDASIM=1.
"""

import math
import pickle
import sys
from pathlib import Path

import numpy as np
from numba import cuda, float32, int32

from kerneltrace import trace
from tests.test_kerneltrace.textbook import ENTRIES

TILE = 4


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]


@cuda.jit(device=True)
def warm(v):
    return math.exp(-v) + 1.0


@cuda.jit
def device_call(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = warm(x[i])


@cuda.jit
def reduction(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = 16
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


@cuda.jit
def tiled(a, b, c):
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], TILE):
        sa[ty, tx] = a[y, k + tx]
        sb[ty, tx] = b[k + ty, x]
        cuda.syncthreads()
        for j in range(TILE):
            total += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit
def grid_3d(out):
    x, y, z = cuda.grid(3)
    sx, sy, sz = cuda.gridsize(3)
    out[z, y, x] = x + sx * (y + sy * z) + sz


@cuda.jit
def histogram(x, h, top):
    i = cuda.grid(1)
    for k in range(i, x.size, cuda.gridsize(1)):
        cuda.atomic.add(h, x[k] % h.size, 1)
        cuda.atomic.max(top, 0, x[k])


@cuda.jit
def votes(x, out):
    t = cuda.threadIdx.x
    out[0, t] = cuda.syncthreads_count(int32(x[t] > 2))
    out[1, t] = cuda.syncthreads_and(int32(x[t] > 2))
    out[2, t] = cuda.syncthreads_or(int32(x[t] > 2))


@cuda.jit
def dynamic(x, y):
    s = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    y[t] = s[cuda.blockDim.x - 1 - t]


@cuda.jit
def local_memory(x, y):
    i = cuda.grid(1)
    last = cuda.local.array(3, float32)
    for k in range(3):
        last[k] = x[i] * (k + 1)
    y[i] = last[0] + last[1] - last[2]


@cuda.jit
def bits(x, y):
    i = cuda.grid(1)
    y[i] = cuda.popc(x[i]) + 100 * cuda.ffs(x[i]) + (x[i] << 3) % 7


def floats(*shape):
    return np.random.default_rng(0).random(shape).astype(np.float32)


def whole(n):
    return np.random.default_rng(1).integers(1, 50, n).astype(np.int32)


CASES = {
    "saxpy": (saxpy, 3, 32, lambda: (np.float32(2.5), floats(70), floats(70)), 0),
    "device_call": (device_call, 3, 32, lambda: (floats(70), floats(70)), 0),
    "reduction": (reduction, 2, 32, lambda: (floats(64), np.zeros(1, np.float32)), 0),
    "tiled": (tiled, (2, 2), (4, 4), lambda: (floats(8, 8), floats(8, 8), floats(8, 8)), 0),
    "grid_3d": (grid_3d, (2, 1, 2), (2, 3, 2), lambda: (np.zeros((4, 3, 4), np.int64),), 0),
    "histogram": (histogram, 2, 16, lambda: (whole(100), np.zeros(8, np.int32), np.zeros(1, np.int32)), 0),
    "votes": (votes, 1, 8, lambda: (np.arange(8), np.zeros((3, 8), np.int32)), 0),
    "dynamic": (dynamic, 1, 16, lambda: (whole(16), np.zeros(16, np.int32)), 64),
    "local_memory": (local_memory, 1, 16, lambda: (floats(16), floats(16)), 0),
    "bits": (bits, 1, 16, lambda: (whole(16), np.zeros(16, np.int64)), 0),
}


NOT_SIMULATED = {
    "shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "ballot_sync", "any_sync", "activemask", "syncwarp",
}  # fmt: skip


def launches():
    """What can be simulated, by name: kernel, grid, block, a function that makes the arguments, shared bytes."""
    textbook = {
        entry.name: (entry.kernel, entry.grid, entry.block, lambda entry=entry: entry.args(np.asarray), 0)
        for entry in ENTRIES
        if not NOT_SIMULATED & set(entry.kernel.__code__.co_names)
        # It copies arrays to its device only where they are in one piece.
        and all(array.flags.forc for array in arrays_in(entry.args(np.asarray)))
    }
    return CASES | textbook


def arrays_in(value):
    """The arrays among arguments, also those in tuples."""
    if isinstance(value, tuple):
        return [array for part in value for array in arrays_in(part)]
    return [value] if isinstance(value, np.ndarray) else []


def simulated(names):
    """The arrays of each launch of these names after it ran on the simulator."""
    left, known = {}, launches()
    for name in names:
        kernel, grid, block, make, shared_bytes = known[name]
        args = make()
        jitted = kernel if hasattr(kernel, "fn") else cuda.jit(kernel)
        with np.errstate(all="ignore"):
            jitted[grid, block, 0, shared_bytes](*args)
        left[name] = [np.array(array) for array in arrays_in(args)]
    return left


def traced_in_the_simulator():
    """Trace one kernel here, where numba has no types, on arrays and on the simulator's device arrays."""
    kernel, grid, block, make, _ = CASES["saxpy"]
    host, device = make(), tuple(cuda.to_device(arg) if isinstance(arg, np.ndarray) else arg for arg in make())
    done = trace(kernel, grid, block, *host)
    assert done.findings == (), done.findings
    assert "operations are not counted" in str(done)
    trace(kernel, grid, block, *device)
    np.testing.assert_array_equal(device[2].copy_to_host(), host[2])


if __name__ == "__main__":
    traced_in_the_simulator()
    Path(sys.argv[1]).write_bytes(pickle.dumps(simulated(sys.argv[2:])))
