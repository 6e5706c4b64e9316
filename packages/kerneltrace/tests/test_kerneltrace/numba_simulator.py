"""Run kernels on numba's own simulator, and pickle what they leave behind.

usage: python -m test_kerneltrace.numba_simulator FILE [NAME ...]

The simulator is chosen when numba is imported, so this runs in a process of its own,
with NUMBA_ENABLE_CUDASIM=1.
"""

import pickle
import sys
from pathlib import Path

import numpy as np
from numba import cuda, int32

from kerneltrace import trace
from test_kerneltrace.textbook import ENTRIES


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def grid_3d(out):
    x, y, z = cuda.grid(3)
    sx, sy, sz = cuda.gridsize(3)
    out[z, y, x] = x + sx * (y + sy * z) + sz


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
def bits(x, y):
    i = cuda.grid(1)
    y[i] = cuda.popc(x[i]) + 100 * cuda.ffs(x[i]) + (x[i] << 3) % 7


def floats(*shape):
    return np.random.default_rng(0).random(shape).astype(np.float32)


CASES = {
    "saxpy": (saxpy, 3, 32, lambda: (np.float32(2.5), floats(70), floats(70)), 0),
    "grid_3d": (
        grid_3d,
        (2, 1, 2),
        (2, 3, 2),
        lambda: (np.zeros((4, 3, 4), np.int64),),
        0,
    ),
    "votes": (votes, 1, 8, lambda: (np.arange(8), np.zeros((3, 8), np.int32)), 0),
    "dynamic": (
        dynamic,
        1,
        16,
        lambda: (np.arange(16, dtype=np.int32), np.zeros(16, np.int32)),
        64,
    ),
    "bits": (
        bits,
        1,
        16,
        lambda: (np.arange(16, dtype=np.int32), np.zeros(16, np.int64)),
        0,
    ),
}


NOT_SIMULATED = {
    "shfl_sync",
    "shfl_up_sync",
    "shfl_down_sync",
    "shfl_xor_sync",
    "ballot_sync",
    "any_sync",
    "activemask",
    "syncwarp",
}


def launches():
    """What can be simulated, by name: kernel, grid, block, a function that makes the
    arguments, shared bytes.
    """
    textbook = {
        entry.name: (
            entry.kernel,
            entry.grid,
            entry.block,
            lambda entry=entry: entry.args(np.asarray),
            0,
        )
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
    left = {}
    by_name = launches()
    for name in names:
        kernel, grid, block, make, shared_bytes = by_name[name]
        args = make()
        jitted = kernel if hasattr(kernel, "fn") else cuda.jit(kernel)
        with np.errstate(all="ignore"):
            jitted[grid, block, 0, shared_bytes](*args)
        left[name] = [np.array(array) for array in arrays_in(args)]
    return left


def traced_in_the_simulator():
    """Trace one kernel here, where numba has no types, on arrays and on the simulator's
    device arrays.
    """
    kernel, grid, block, make, _ = CASES["saxpy"]
    host = make()
    device = tuple(
        cuda.to_device(arg) if isinstance(arg, np.ndarray) else arg for arg in make()
    )
    traced = trace(kernel, grid, block, *host)
    assert traced.findings == (), traced.findings
    assert "operations are not counted" in str(traced)
    trace(kernel, grid, block, *device)
    np.testing.assert_array_equal(device[2].copy_to_host(), host[2])


if __name__ == "__main__":
    traced_in_the_simulator()
    Path(sys.argv[1]).write_bytes(pickle.dumps(simulated(sys.argv[2:])))
