"""Launches and kernels that can't be traced: each one clear error that
says what to do.
"""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from numba import cuda

from kerneltrace import check_numba, trace
from kerneltrace.errors import KernelError, TraceTooLarge
from kerneltrace.source import front_end, numba_versions
from test_kerneltrace.tracing import made_in_a_cell


def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i


@pytest.mark.parametrize(
    ("grid", "block", "words"),
    [
        (
            0,
            32,
            (
                "Expected grid.x to be 1 to 2,147,483,647, got 0. Nothing would run; is"
                " the number of blocks rounded"
            ),
        ),
        (1, 0, "Expected block.x to be 1 to 1,024, got 0"),
        ((1, 0), 32, "Expected grid.y to be 1 to 65,535, got 0"),
        (
            1,
            (32, 33),
            (
                "A block has at most 1,024 threads; 32 x 33 are 1,056. Use a smaller"
                " block and more blocks."
            ),
        ),
        (1, (2, 2, 65), "Expected block.z to be 1 to 64, got 65"),
        (
            2.0,
            32,
            "Expected grid to be a whole number or a tuple of up to three, got 2.0",
        ),
        (
            1,
            (1, 2, 3, 4),
            "Expected block to be a whole number or a tuple of up to three",
        ),
    ],
)
def test_shapes_of_launches(grid, block, words):
    with pytest.raises((TypeError, ValueError)) as info:
        trace(fill, grid, block, np.zeros(4))
    assert words in str(info.value)


@pytest.mark.parametrize("args", [(), (np.zeros(3), 1)])
def test_wrong_numbers_of_arguments(args):
    with pytest.raises(
        KernelError, match=rf"fill\(x\) takes 1 arguments?, got {len(args)}"
    ):
        trace(fill, 1, 1, *args)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1, 2], r"'x' is \[1, 2\]. Make it an array: np.array"),
        ("text", "takes arrays and numbers; 'x' is 'text'"),
        (
            np.array([None, 1]),
            r"'x' is an array of Python objects, .* x.astype\(np.float32\)",
        ),
        (np.zeros(2, [("a", object)]), "'x' is an array of Python objects"),
    ],
)
def test_arguments_that_no_kernel_takes(given, words):
    with pytest.raises(KernelError, match=words):
        trace(fill, 1, 1, given)


def test_a_tensor_that_numpy_has_no_type_for():
    torch = pytest.importorskip("torch")
    with pytest.raises(KernelError, match=r"'x'.*bfloat16"):
        trace(fill, 1, 1, torch.zeros(4, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("schedules", 1.5),
        ("shared_bytes", -1),
        ("max_steps", 0),
        ("memory_bytes", "1 GB"),
    ],
)
def test_options(option, value):
    with pytest.raises((TypeError, ValueError), match=option):
        trace(fill, 1, 1, np.zeros(4), **{option: value})


SOURCES = {
    "cuda.syncthread()": (
        "cuda.syncthread is not supported by kerneltrace. The nearest it knows:"
        " cuda.syncthreads"
    ),
    "cuda.atomic.addd(x, 0, 1)": (
        "cuda.atomic.addd is not supported by kerneltrace. The nearest it knows:"
        " cuda.atomic."
    ),
    "y = [v for v in x]": "a kernel can't use '[v for v in x]'",
    "import math": "a kernel can't use 'import math'",
    "def f(): pass": "a kernel can't use 'def f():",
    "with x: pass": "a kernel can't use 'with x:",
    "x[0], *y = 1, 2": "a kernel can't use '*y'",
}


@pytest.mark.parametrize("line", SOURCES)
def test_what_a_kernel_can_not_have(line):
    with pytest.raises(KernelError) as info:
        trace(
            made_in_a_cell(f"def k(x):\n    x[0] = 1\n    {line}\n"), 1, 1, np.zeros(4)
        )
    assert SOURCES[line] in str(info.value)
    assert "line 3" in str(info.value)


def test_a_device_function_that_calls_itself():
    source = (
        "@cuda.jit(device=True)\ndef f(n):\n    return 1 if n < 1 else n * f(n -"
        " 1)\ndef k(x):\n    x[0] = f(3)\n"
    )
    with pytest.raises(
        KernelError,
        match="The kernel calls a function that calls itself: write that as a loop",
    ):
        trace(made_in_a_cell(source), 1, 1, np.zeros(4))


def test_dynamic_shared_memory_without_bytes():
    def k(x):
        s = cuda.shared.array(0, np.float32)
        s[0] = 1

    with pytest.raises(
        KernelError,
        match=r"s is dynamic shared memory .* the launch gives none: pass shared_bytes",
    ):
        trace(k, 1, 1, np.zeros(4))


def test_a_grid_that_no_trace_can_hold():
    """Refused before a list of its blocks fills the memory."""
    with pytest.raises((ValueError, TraceTooLarge)):
        trace(fill, (100_000, 60_000, 60_000), 1, np.zeros(4))


def test_an_unknown_name_is_told_in_words():
    def k(x):
        x[0] = nowhere  # noqa: F821

    with pytest.raises(
        KernelError,
        match=(
            r"numba can't compile `nowhere` .* name 'nowhere' is not defined. Import or"
            r" define it"
        ),
    ):
        trace(k, 1, 1, np.zeros(4))


def test_counts_of_what_is_not_there():
    traced = trace(fill, 1, 4, np.zeros(4))
    for call, words in (
        (
            lambda: traced.count("y"),
            "There is no array 'y' in this trace. The nearest: x",
        ),
        (lambda: traced.count(kind="read"), "There is no kind 'read'"),
        (lambda: traced.count(space="local"), "There is no space 'local'"),
        (lambda: traced.busiest("z"), "There is no array 'z'"),
        (
            lambda: traced.request("x", number=7),
            "Warp 0 made 1 such requests, there is no number 7",
        ),
        (lambda: traced.request("x", warp=7), "Warp 7 made 0 such requests"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("number", [-(2**63) - 1, (1, 2**64)])
def test_an_integer_that_no_kernel_takes(number):
    def k(x, n):
        x[cuda.grid(1)] = 1

    with pytest.raises(KernelError, match="numbers of at most 64 bits"):
        trace(k, 1, 32, np.zeros(32), number)


WIDTH = 32
NUMBA_PAIRS = {
    ("0.68.1", "0.30.3"): False,
    ("0.66.0rc1", "0.22.2"): False,
    ("0.66.0", "0.30.4"): True,
    ("1.0", "1.0"): True,
    ("0.65.9", "0.22.2"): True,
    ("0.68.1", None): True,
}


@pytest.mark.parametrize("pair", NUMBA_PAIRS)
def test_a_numba_cuda_too_old_for_numba(monkeypatch, pair):
    versions = dict(zip(("numba", "numba-cuda"), pair, strict=True))
    monkeypatch.setattr(numba_versions, "_version", versions.get)
    fits = NUMBA_PAIRS[pair]
    words = rf"numba {pair[0]} needs numba-cuda 0\.30\.4.*pip install"
    refused = pytest.raises(RuntimeError, match=words)
    with contextlib.nullcontext() if fits else refused:
        check_numba.__wrapped__()


OWN_TARGET = """
import sys
sys.meta_path = [x for x in sys.meta_path if type(x).__name__ != "NumbaCudaFinder"]
import numpy as np
from numba import cuda, float32
from kerneltrace import trace

def k(x, y):
    y[0] = max(x[0], x[1])
    y[1] = min(x[0], float32(0.5), x[1])

assert "numba_cuda" not in cuda.__file__
y = np.zeros(2, np.float32)
print(trace(k, 1, 1, np.arange(1, 3, dtype=np.float32), y).flop, *y)
"""


@pytest.mark.slow  # a process of its own
def test_numbas_own_target_takes_max_and_min_of_several_numbers(tmp_path):
    file = tmp_path / "own_target.py"
    file.write_text(OWN_TARGET)
    command = [sys.executable, file]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.stdout == "2 2.0 0.5\n", completed.stderr


def test_an_expression_as_a_shape_says_to_compute_it_outside():
    def k(y):
        s = cuda.shared.array(WIDTH + 2, np.float32)
        y[0] = s[0]

    with pytest.raises(KernelError, match="product outside of the kernel"):
        trace(k, 1, 1, np.zeros(1))


ONE_NUMBER = "give an index for each dimension"
ROWS = {
    "x = 0.0\n    if i > 2:\n        x = a[i]\n    out[i] = x": (5, ONE_NUMBER),
    "x = 0.0\n    for k in range(4):\n        x = x + a[k]\n    out[i] = x": (
        5,
        "x would be float64 in one place and array",
    ),
    "x = 0.0\n    x += a[i]\n    out[i] = x": (4, ONE_NUMBER),
    "x = 0.0\n    out[i] = max(a[i], x)": (4, ONE_NUMBER),
    "cuda.atomic.add(out, (0, i), 1.0)": (3, "Cannot cast .* to int64.$"),
}


@pytest.mark.parametrize("lines", ROWS)
def test_a_row_in_place_of_a_number_is_refused_where_it_is_read(lines):
    line, words = ROWS[lines]
    k = made_in_a_cell(f"def k(a, out):\n    i = cuda.grid(1)\n    {lines}\n")
    with pytest.raises(KernelError, match=rf"k, line {line}: .*{words}"):
        trace(k, 1, 4, np.zeros((4, 4)), np.zeros(4))


def test_numba_cuda_finds_what_numpy_removed(monkeypatch):
    monkeypatch.delattr(np, "row_stack", raising=False)
    check_numba.__wrapped__()
    assert np.row_stack is np.vstack


def test_what_numba_cuda_cant_read_of_a_new_python_is_told_in_words():
    _, words = front_end.reason(NotImplementedError(), "kernel.py")
    assert "on Python 3.14 that is so for `assert`" in words
