"""Each numba kernel of notebook 04, of the textbook and of the solutions compiles for GPUs of four generations."""

import itertools
import linecache

import numpy as np
import pytest
from numba import cuda, float32, int32

from exercises.nb03 import check as nb03
from exercises.nb04 import check as nb04, numba_kernels
from kerneltrace.compiler import compile_numba
from labkit.lesson import exercise_files
from tests.selection import sampled
from tests.test_kerneltrace.textbook import ENTRIES

pytestmark = pytest.mark.slow  # compiles kernels for four generations of GPUs

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0)]
LINE, MATRIX = np.zeros(64, np.float32), np.zeros((64, 64), np.float32)
SIGNATURES = {
    "sum_shared": (LINE, LINE),
    "sum_shuffle": (LINE, LINE),
    "matmul_tiled": (MATRIX, MATRIX, MATRIX),
    "matmul_blocked": (MATRIX, MATRIX, MATRIX),
}


def each_at_each(what, values, n):
    """Run a test for each value, its argument `what`, at each capability; `n` of these pairs in `make test`."""
    params = [
        pytest.param(value, capability, id=f"{getattr(value, 'name', value)} sm_{capability[0]}{capability[1]}")
        for value, capability in itertools.product(values, CAPABILITIES)
    ]
    return pytest.mark.parametrize((what, "capability"), sampled(params, n))


@each_at_each("name", SIGNATURES, 8)
def test_the_fast_kernels_compile_without_spills(name, capability):
    built = compile_numba(getattr(numba_kernels, name), SIGNATURES[name], compute_capability=capability).only
    assert (built.spill_store_bytes, built.spill_load_bytes) == (0, 0)


def test_no_fast_kernel_is_left_out():
    kernels = {name for name, value in vars(numba_kernels).items() if hasattr(value, "py_func")}
    assert kernels == set(SIGNATURES)


# numba links the operators of float16 only when it launches a kernel, from CUDA's headers
LINKED = [entry for entry in ENTRIES if entry.name != "a sum of float16"]


@each_at_each("entry", LINKED, 80)
def test_the_textbook_compiles(entry, capability):
    assert compile_numba(entry.kernel, entry.args(lambda array: array), compute_capability=capability).registers


def kernel_of(number):
    """The kernel that a solution defines, kept where IPython keeps its cells."""
    source = exercise_files.solutions(number[:2])[number]
    name = f"<solution {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"cuda": cuda, "np": np, "float32": float32, "int32": int32}
    exec(compile(source, name, "exec"), scope)
    return next(value for value in reversed(scope.values()) if hasattr(value, "py_func"))


class Compiled(Exception):
    """Ends a check once its first case is known."""


# the exercises whose answer is a CUDA kernel
@each_at_each("number", ["03.1", "03.2", "03.5", "03.6", "03.7", "04.2", "04.3", "04.5", "04.6"], 9)
def test_the_solutions_compile(number, capability, monkeypatch):
    def compile_instead(answer, parameters, cases, **options):
        assert compile_numba(answer, cases[0].args, compute_capability=capability).registers
        raise Compiled

    for module in (nb03, nb04):
        monkeypatch.setattr(module, "correct", compile_instead)
    with pytest.raises(Compiled):
        exercise_files.exercise(number).check(kernel_of(number))
