"""Launches of numba.cuda under `simulate` and the pytest plugin: what runs, what fails,
and what is reported.
"""

import importlib
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import cuda, float32, float64
from numba.cuda.compiler import compile_cuda
from numba.cuda.extending import overload
from numba.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float32,
)

import kerneltrace
from kerneltrace.errors import KernelFault

N = 40


@cuda.jit
def add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]


@cuda.jit
def past_the_end(x):
    x[cuda.grid(1)] = 1


@cuda.jit
def without_a_barrier(x, y):
    tile = cuda.shared.array(N, float64)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    y[i] = tile[N - 1 - i]


@cuda.jit
def divergent_barrier(x):
    i = cuda.threadIdx.x
    if i < 3:
        cuda.syncthreads()
    x[i] = i


@cuda.jit
def never_written(x):
    tile = cuda.shared.array(N, float64)
    x[cuda.threadIdx.x] = tile[cuda.threadIdx.x]


@cuda.jit
def lost_update(x):
    x[0] += 1


@cuda.jit
def read_of_anothers_write(x, y):
    x[0] = 5
    y[cuda.grid(1)] = x[1] + x[0] * 0
    if cuda.grid(1) == 1:
        x[1] = 7


@cuda.jit
def far_before_the_beginning(x, y):
    i = cuda.grid(1)
    y[i] = x[i - N - 1]


FAULTS = {
    "outside": (past_the_end, lambda: (np.zeros(N - 1),)),
    "race": (without_a_barrier, lambda: (np.ones(N), np.zeros(N))),
    "barrier": (divergent_barrier, lambda: (np.zeros(N),)),
    "unset": (never_written, lambda: (np.zeros(N),)),
    "race of an update": (lost_update, lambda: (np.zeros(1),)),
    "race of a read": (read_of_anothers_write, lambda: (np.zeros(2), np.zeros(N))),
    "outside, far": (far_before_the_beginning, lambda: (np.zeros(N), np.zeros(N))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_launch_with_a_mistake_raises_with_its_line(fault):
    kernel, make = FAULTS[fault]
    with kerneltrace.simulate() as launches, pytest.raises(KernelFault) as caught:
        kernel[1, N](*make())
    finding = caught.value.findings[0]
    assert finding.kind == fault.partition(",")[0].split()[0]
    assert f"{__file__}:{finding.line}: {kernel.py_func.__name__}: [" in str(
        caught.value
    )
    assert launches.faults == str(caught.value).split("\n")


@cuda.jit
def same_value(x, y):
    x[0] = 3  # by all threads
    y[cuda.grid(1)] = x[0]


@cuda.jit
def from_the_end(x, y):
    i = cuda.grid(1)
    y[i] = x[i - 1] + x[-1]


def test_what_has_no_effect_by_numbas_rules_is_reported_and_fails_nothing():
    y = np.zeros(N)
    x = np.arange(float(N))
    with kerneltrace.simulate() as launches:
        same_value[2, N // 2](np.zeros(1), y)
        assert (y == 3).all()
        from_the_end[2, N // 2](x, y)
    np.testing.assert_array_equal(y, np.roll(x, 1) + x[-1])
    assert launches.faults == []
    kinds = [each.split("[")[1].split("]")[0] for each in launches.suspects]
    assert set(kinds) == {"race", "outside"}


def test_host_and_device_arrays_streams_and_events_work_as_numbas():
    x = np.arange(float(N))
    with kerneltrace.simulate() as launches:
        assert cuda.is_available()
        assert [device.id for device in cuda.list_devices()] == [0]
        stream = cuda.stream()
        event = cuda.event()
        with cuda.gpus[0], stream.auto_synchronize():
            device_x = cuda.to_device(x, stream=stream)
            result = cuda.device_array_like(device_x)
            add[(2,), (N // 2,), stream, 0](device_x, x, result)
            event.record(stream)
        assert cuda.event_elapsed_time(event, event) == 0
        np.testing.assert_array_equal(result.copy_to_host(), 2 * x)
        np.testing.assert_array_equal(result[5:][:3].copy_to_host(), 2 * x[5:8])
        x[:] = 1  # the device has its own copy
        add.forall(N)(device_x, x, x)
        np.testing.assert_array_equal(x, np.arange(N) + 1)
        with pytest.raises(ValueError, match="non-contiguous"):
            add[1, 4](x[::2], x, x)
        with pytest.raises(TypeError, match="incompatible dtype"):
            device_x.copy_to_host(np.zeros(N, np.float32))
        with pytest.raises(TypeError):
            device_x + 1
        assert cuda.reduce(lambda a, b: a + b)(cuda.to_device(x)) == x.sum()
    assert launches.traced == 2


def test_a_signature_converts_numbers_and_refuses_other_arrays():
    with kerneltrace.simulate():

        @cuda.jit("void(float64[:], float64, int32)")
        def scaled(x, σ, k):
            x[cuda.grid(1)] *= σ + k

        x = np.ones(N)
        scaled[1, N](x, 3, 2**32 + 1)
        assert (x == 4).all()
        with pytest.raises(TypeError, match=r"compiled for x: .*float64.*float32"):
            scaled[1, N](x.astype(np.float32), 3, 1)


@cuda.jit
def of_vectors(x):
    pair = cuda.float32x2(1, 2)
    x[cuda.grid(1)] = pair.x


@cuda.jit
def picky(x):
    if x[0] == 0:
        raise ValueError("x is zero")


def test_what_cannot_be_traced_runs_on_numbas_simulator_and_says_so():
    x = np.zeros(N)
    with kerneltrace.simulate() as launches:
        with pytest.warns(RuntimeWarning, match="without being traced: .*vector"):
            of_vectors[1, N](x)
        with (
            warnings.catch_warnings(action="ignore"),
            pytest.raises(ValueError, match="x is zero"),
        ):
            picky[1, 2](np.zeros(1))
    assert (x == 1).all()
    assert launches.traced == 0
    assert launches.untraced.total() == 2


def test_a_kernel_keeps_the_globals_of_its_first_compilation():
    rate = 0.5
    prices = np.array([10.0, 25, 5])
    with kerneltrace.simulate(warn=False) as launches:
        discounts = cuda.to_device(np.array([1.0, 2, 3]))

        @cuda.jit(device=True)
        def price(i):
            return prices[i] * rate - discounts[i]

        @cuda.jit
        def total(n, out):
            i = cuda.threadIdx.x
            out[i] = n * price(i)

        @cuda.jit("void(int64, float64[:])")
        def early(n, out):
            out[cuda.threadIdx.x] = n * rate

        out = np.zeros(3)
        early_out = np.zeros(3)
        total[1, 3](2, out)
        np.testing.assert_array_equal(out, [8, 21, -1])
        rate = 0.25
        prices[:] = 0
        discounts.copy_to_device(np.zeros(3))
        total[1, 3](2, out)
        np.testing.assert_array_equal(out, [10, 25, 5])
        early[1, 3](2, early_out)
        np.testing.assert_array_equal(early_out, 1)
        assert launches.traced == 3

        with pytest.raises(ValueError, match="as an argument and as a global"):
            total[1, 3](2, discounts)


@pytest.mark.skipif(
    "inline" not in inspect.signature(compile_cuda).parameters,
    reason="this numba-cuda refuses an inlined function that returns an array",
)
def test_inlined_device_functions_compute_in_their_types():
    @cuda.jit(device=True, inline="always")
    def buffer():
        return cuda.local.array(1, np.int64)

    @cuda.jit(device=True, inline="always")
    def square(x):
        result = buffer()
        result[0] = x * x
        return result[0]

    @cuda.jit
    def halved_square(x):
        i = cuda.grid(1)
        x[i] = square(x[i]) >> 1

    x = np.full(2, 2**62 + 3)
    expected = (x * x) >> 1  # which wraps around
    with kerneltrace.simulate() as launches:
        halved_square[1, 2](x)
    np.testing.assert_array_equal(x, expected)
    assert launches.traced == 1
    trace = kerneltrace.trace(halved_square, 1, 2, x)
    assert "4 integer operations" in str(trace)


def test_numbas_simulator_takes_cuda_from_the_function_around_a_kernel():
    from numba import cuda

    @cuda.jit
    def of_vectors(x):
        x[cuda.grid(1)] = cuda.float32x2(1, 2).x

    x = np.zeros(4)
    with kerneltrace.simulate(warn=False) as launches:
        of_vectors[2, 2](x)
    assert (x == 1).all()
    assert launches.untraced.total() == 1


# -- what libraries use


@cuda.jit
def drawn(states, y):
    i = cuda.grid(1)
    y[i] = cuda.random.xoroshiro128p_uniform_float32(states, i)
    y[i] += xoroshiro128p_normal_float32(states, i)


def test_random_numbers_are_numbas():
    y = np.zeros(2 * N, np.float32)
    with kerneltrace.simulate() as launches:
        states = create_xoroshiro128p_states(2 * N, seed=3).copy_to_host()
        drawn[2, N](states.copy(), y)
    uniform = cuda.random.xoroshiro128p_uniform_float32
    expected = [uniform(states, i) for i in range(2 * N)]  # on the CPU
    normal = [xoroshiro128p_normal_float32(states, i) for i in range(2 * N)]
    np.testing.assert_allclose(y, np.add(expected, normal), rtol=1e-5)
    assert launches.traced == 1


def test_universal_functions_run_traced():
    with kerneltrace.simulate() as launches:

        @numba.vectorize(["float64(float64, float64)"], target="cuda")
        def plus(a, b):
            return a + b

        @numba.guvectorize(
            ["void(float64[:], float64[:], float64[:])"], "(n),(n)->()", target="cuda"
        )
        def dot(a, b, out):
            out[0] = 0
            for k in range(a.shape[0]):
                out[0] += a[k] * b[k]

        x = np.arange(12.0).reshape(3, 4)
        on_device = cuda.to_device(x)
        row = cuda.to_device(x[:1])
        np.testing.assert_array_equal(plus(x, 1.0), x + 1)
        np.testing.assert_array_equal(plus(on_device, row).copy_to_host(), x + x[0])
        np.testing.assert_array_equal(dot(x, x[0]), x @ x[0])
        assert plus.reduce(x.ravel()) == x.sum()
    assert launches.traced > 3
    assert not launches.untraced


def clamped(x, low):
    """Replaced on a GPU."""


@overload(clamped, target="cuda")
def _clamped(x, low):
    def of_floats(x, low):
        return max(x, low)

    return of_floats


@cuda.jit
def clamp(x):
    x[cuda.grid(1)] = clamped(x[cuda.grid(1)], 3.0)


@cuda.jit
def swap_first(x):
    cuda.atomic.compare_and_swap(x, 2, 9)


class Foreign:
    """An array of another library."""

    def __init__(self, array):
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def test_overloads_swaps_and_arrays_of_other_libraries():
    x = np.arange(5.0)
    counts = np.full(1, 2)
    with kerneltrace.simulate() as launches:
        device_x = cuda.to_device(x)
        clamp[1, 5](Foreign(device_x))
        np.testing.assert_array_equal(device_x.copy_to_host(), [3, 3, 3, 3, 4])
        swap_first[1, 2](counts)
    assert counts[0] == 9
    assert launches.traced == 2


@cuda.jit
def reversed_in_a_grid(x, y, turns):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for _ in range(turns):
        x[i] = i
        grid.sync()
        y[i] = x[x.size - 1 - i]


@cuda.jit
def one_block_leaves(x):
    if cuda.blockIdx.x:
        cuda.cg.this_grid().sync()
    x[cuda.grid(1)] = 1


def test_all_blocks_wait_at_a_barrier_of_the_grid():
    x, y = np.zeros((2, 4 * N))
    trace = kerneltrace.trace(reversed_in_a_grid, 4, N, x, y, 1)
    assert trace.ok
    np.testing.assert_array_equal(y, np.arange(4 * N)[::-1])
    # what a thread writes next, another one may still have to read
    again = kerneltrace.trace(reversed_in_a_grid, 4, N, x, y, 2)
    assert {finding.kind for finding in again.findings} == {"race"}
    left = kerneltrace.trace(one_block_leaves, 3, N, x)
    assert "2 blocks wait" in str(left)
    with pytest.raises(ValueError, match="all blocks of the grid"):
        kerneltrace.trace(reversed_in_a_grid, 4, N, x, y, 1, blocks=2)


@cuda.jit(debug=True, opt=False)
def divided(x, y):
    x[0] = x[0] / y[0]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_a_division_by_zero_raises_in_debug_mode(dtype):
    x = np.ones(1)
    with kerneltrace.simulate():
        divided[1, 1](x, np.ones(1, dtype))
        with pytest.raises(ZeroDivisionError):
            divided[1, 1](x, np.zeros(1, dtype))
    assert x[0] == 1


def test_a_mistake_in_a_device_function_has_its_files_line(tmp_path, monkeypatch):
    source = "\n" * 998 + "def store(x, i):\n    x[i] = 1\n"  # line 1,000
    (tmp_path / "device_functions.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    store = cuda.jit(device=True)(importlib.import_module("device_functions").store)

    @cuda.jit
    def kernel(x):
        store(x, cuda.grid(1))

    with (
        kerneltrace.simulate(),
        pytest.raises(
            KernelFault, match=r"device_functions\.py:1000: kernel: .outside"
        ),
    ):
        kernel[1, N + 1](np.zeros(N))


def test_linked_code_is_refused_in_words():
    triple = cuda.declare_device("triple", "int32(int32)")

    @cuda.jit
    def linked(x):
        x[0] = triple(x[0])

    with kerneltrace.simulate(warn=False), pytest.raises(TypeError) as raised:
        linked[1, 1](np.ones(1))
    assert "triple is machine code" in raised.value.__notes__[0]


def test_kernels_of_numba_cuda_mlir_run_traced():
    mlir = pytest.importorskip("numba_cuda_mlir", reason="needs numba-cuda-mlir")
    cuda = mlir.cuda
    float32 = mlir.types.float32

    @cuda.jit(device=True)
    def doubled(x):
        return x * 2

    @cuda.jit
    def reverse(x, y):
        tile = cuda.shared.array(N, float32)
        i = cuda.threadIdx.x
        tile[i] = doubled(x[i])
        cuda.syncthreads()
        y[i] = tile[N - 1 - i]

    @cuda.jit
    def past(x):
        x[cuda.grid(1)] = 1

    x = np.arange(N, dtype=np.float32)
    with kerneltrace.simulate() as launches:
        y = cuda.device_array_like(x)
        reverse[1, N](cuda.to_device(x), y)
        np.testing.assert_array_equal(y.copy_to_host(), 2 * x[::-1])
        with pytest.raises(KernelFault, match="outside"):
            past[1, N + 1](x)
    assert launches.traced == 2


@cuda.jit
def rounded(x, digits, y):
    y[cuda.grid(1)] = round(x[cuda.grid(1)], digits)


@pytest.mark.parametrize(
    ("dtype", "digits", "expected"),
    [
        (np.float32, 3, [0.343, -0.343, 0.343, 3e38]),  # in float64, of float32's value
        (np.float64, 3, [0.342, -0.342, 0.344, 3e38]),  # halves to even
        (np.float32, 300, [0.3425, -0.3425, 0.3435, 3e38]),  # too many digits
    ],
)
def test_rounding_to_decimal_places_is_numbas(dtype, digits, expected):
    x = np.array([0.3425, -0.3425, 0.3435, 3e38], dtype)
    y = np.zeros_like(x)
    with np.errstate(over="ignore"):
        kerneltrace.trace(rounded, 1, 4, x, digits, y)
    np.testing.assert_allclose(y, np.array(expected, dtype), rtol=1e-6)


def test_a_kernel_sees_what_its_module_holds_now(monkeypatch):
    x = np.zeros(N, np.float32)
    for value in (float32(2), float32(3)):
        monkeypatch.setattr(sys.modules[__name__], "LEVEL", value, raising=False)
        kerneltrace.trace(at_level, 1, N, x)
        assert (x == value).all()


def at_level(x):
    x[cuda.grid(1)] = LEVEL  # noqa: F821


SUITE = """
import numpy as np
from numba import config, cuda


@cuda.jit
def count(x):
    x[cuda.grid(1)] = cuda.grid(1)


@cuda.jit("void(float64[:])")
def past_the_end(x):
    x[cuda.grid(1)] = 1


def test_passes():
    x = np.zeros(64)
    count[2, 32](x)
    assert (x == np.arange(64)).all()
    assert config.ENABLE_CUDASIM


def test_fails():
    past_the_end[2, 32](np.zeros(63))


def test_cuda_cpp(cuda_cpp):
    x = np.zeros(64, np.int32)
    constants = {"first": np.array([5], np.int32)}
    cuda_cpp("count.cu", constants=constants)[2, 32](x)
    assert (x == np.arange(5, 69)).all()
    past_the_end = cuda_cpp("count.cu", constants=constants)
    past_the_end[2, 33](x)
"""
SETTINGS = """
[pytest]
filterwarnings =
    ignore::numba.core.errors.NumbaPerformanceWarning
"""
COUNT = """
__constant__ int first[1];

extern "C" __global__ void count(int *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = first[0] + i;
}
"""


@pytest.mark.complete
def test_the_plugin_fails_the_tests_whose_launches_have_mistakes(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "count.cu").write_text(COUNT)
    package = str(Path(kerneltrace.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "KERNELTRACE": "1",
        "NUMBA_ENABLE_CUDASIM": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "kerneltrace.simulator.plugin"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-rfp", tmp_path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PASSED test_suite.py::test_passes" in ended.stdout, ended.stdout
    assert "FAILED test_suite.py::test_fails" in ended.stdout
    assert "FAILED test_suite.py::test_cuda_cpp" in ended.stdout
    assert "4 launches traced, 0 not; 2 faults found" in ended.stdout
    assert "test_suite.py:13: past_the_end: [outside]" in ended.stdout
    assert "count.cu:6: count: [outside]" in ended.stdout
