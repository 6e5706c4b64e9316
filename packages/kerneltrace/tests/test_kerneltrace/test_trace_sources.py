"""Where a traced kernel's source and names come from: files, cells, closures, imports,
numba's simulator.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda, int32

from kerneltrace import trace
from kerneltrace.errors import KernelError
from test_kerneltrace import numba_simulator
from test_kerneltrace.places import one_in
from test_kerneltrace.tracing import filled, made_in_a_cell

pytestmark = pytest.mark.slow  # runs kernels on numba's simulator


def factory(tile, step=2):
    def k(out):
        s = cuda.shared.array(tile, int32)
        t = cuda.threadIdx.x
        s[t] = step * t
        cuda.syncthreads()
        out[t] = s[tile - 1 - t]

    return k


def test_closures():
    assert filled(factory(4), 1, 4, 4) == [6, 4, 2, 0]
    assert filled(factory(8, step=3), 1, 8, 8)[0] == 21


def test_kernels_of_a_cell():
    k = made_in_a_cell(
        "@cuda.jit\ndef k(out):\n    i = cuda.grid(1)\n    if i < out.size:\n       "
        " out[i] = i + 1 // 0\n"
    )
    finding = trace(k, 1, 4, np.zeros(4)).findings[0]
    assert (finding.kind, finding.line) == ("division", 5)


# -- device functions


@cuda.jit(device=True)
def warp_sum(v):
    for offset in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, offset)
    return v


@cuda.jit(device=True)
def block_sum(v, scratch):
    v = warp_sum(v)
    if cuda.laneid == 0:
        scratch[cuda.threadIdx.x // 32] = v
    cuda.syncthreads()
    total = 0
    for w in range(cuda.blockDim.x // 32):
        total += scratch[w]
    return total


@cuda.jit(device=True)
def minmax(a, b):
    if a < b:
        return a, b
    return b, a


@cuda.jit(device=True)
def collatz(n):
    turns = 0
    while n != 1:
        if n % 2:
            n = 3 * n + 1
        else:
            n //= 2
        turns += 1
    return turns


def test_device_functions_that_wait():
    def k(out, x):
        s = cuda.shared.array(4, int32)
        i = cuda.grid(1)
        out[i] = block_sum(x[i], s)

    x = np.arange(256)
    assert (
        filled(k, 2, 128, 256, x)
        == np.repeat(x.reshape(2, 128).sum(axis=1), 128).tolist()
    )


def test_device_functions_that_return_tuples_and_loop():
    def k(out, x):
        i = cuda.grid(1)
        low, high = minmax(x[i], 8)
        out[i] = 1000 * collatz(high) + 10 * low + minmax(a=i, b=2)[1]

    def expected(i):
        return 1000 * collatz.py_func(max(i + 1, 8)) + 10 * min(i + 1, 8) + max(i, 2)

    assert filled(k, 1, 16, 16, np.arange(1, 17)) == [expected(i) for i in range(16)]


# -- numba's simulator


@pytest.fixture(scope="module")
def simulated(tmp_path_factory, request):
    """What each kernel of this run leaves behind on numba's simulator, in a process of
    its own.
    """
    path = tmp_path_factory.mktemp("simulator") / "left.pickle"
    here = [
        item
        for item in request.session.items
        if item.path == request.path and "simulated" in item.fixturenames
    ]
    names = [item.callspec.params["name"] for item in here]
    command = [
        sys.executable,
        "-m",
        "test_kerneltrace.numba_simulator",
        str(path),
        *names,
    ]
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    tests = Path(__file__).parents[1]
    completed = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, cwd=tests
    )
    assert completed.returncode == 0, completed.stderr
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize(
    "name", one_in(7, [(name,) for name in numba_simulator.launches()])
)
def test_the_simulator_of_numba_gives_the_same_results(name, simulated):
    kernel, blocks, threads, make, shared_bytes = numba_simulator.launches()[name]
    args = make()
    trace(kernel, blocks, threads, *args, shared_bytes=shared_bytes)
    for got, want in zip(numba_simulator.arrays_in(args), simulated[name], strict=True):
        if got.dtype.kind in "fc":
            np.testing.assert_allclose(
                got, want, rtol=1e-3 if got.dtype == np.float16 else 1e-6
            )
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("given", [print, None])
def test_what_is_no_kernel(given):
    with pytest.raises(
        TypeError,
        match="Expected a kernel, a function written against numba's `cuda`",
    ):
        trace(given, 1, 1)


def test_a_kernel_without_source():
    scope = {}
    exec("def k(x):\n    x[0] = 1", scope)
    with pytest.raises(
        KernelError,
        match=r"source of k can't be read .* Define the kernel with `def` in a cell",
    ):
        trace(scope["k"], 1, 1, np.zeros(1))
