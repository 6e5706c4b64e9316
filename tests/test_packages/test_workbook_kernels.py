"""The workbook's own kernels, and what its exercises ask for, compile for the oldest
and the newest GPU.
"""

import linecache

import numpy as np
import pytest
from numba import cuda, float32, int32

from exercises.nb03 import check as nb03
from exercises.nb04 import check as nb04, numba_kernels
from kerneltrace import compile_cuda, compile_numba
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels
for_old_and_new_gpus = pytest.mark.parametrize(
    "capability", [(7, 5), (10, 0)], ids=["sm_75", "sm_100"]
)

LINE = np.zeros(64, np.float32)
MATRIX = np.zeros((64, 64), np.float32)
SIGNATURES = {
    "sum_shared": (LINE, LINE),
    "sum_shuffle": (LINE, LINE),
    "matmul_tiled": (MATRIX, MATRIX, MATRIX),
    "matmul_blocked": (MATRIX, MATRIX, MATRIX),
}
KERNELS = sorted(
    name for name, value in vars(numba_kernels).items() if hasattr(value, "py_func")
)


@for_old_and_new_gpus
@pytest.mark.parametrize("name", KERNELS)
def test_the_fast_kernels_compile_without_spills(name, capability):
    kernel = getattr(numba_kernels, name)
    built = compile_numba(kernel, SIGNATURES[name], compute_capability=capability).only
    assert (built.spill_store_bytes, built.spill_load_bytes) == (0, 0)


def kernel_of(number):
    """The kernel that a solution defines, kept where IPython keeps its cells."""
    source = exercise_files.solutions(number[:2])[number]
    name = f"<solution {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"cuda": cuda, "np": np, "float32": float32, "int32": int32}
    exec(compile(source, name, "exec"), scope)
    return next(
        value for value in reversed(scope.values()) if hasattr(value, "py_func")
    )


class Compiled(Exception):
    """Ends a check once its first case is known."""


# the exercises whose answer is a CUDA kernel
@for_old_and_new_gpus
@pytest.mark.parametrize(
    "number", ["03.1", "03.2", "03.5", "03.6", "03.7", "04.2", "04.3", "04.5", "04.6"]
)
def test_the_solutions_compile(number, capability, monkeypatch):
    def compile_instead(answer, parameters, cases, **options):
        assert compile_numba(
            answer, cases[0].args, compute_capability=capability
        ).registers
        raise Compiled

    for module in (nb03, nb04):
        monkeypatch.setattr(module, "correct", compile_instead)
    with pytest.raises(Compiled):
        exercise_files.exercise(number).check(kernel_of(number))


@for_old_and_new_gpus
@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("exercises/nb*/*.cu"), *ROOT.glob("benchmarks/*.cu")]),
    ids=lambda path: path.name,
)
def test_each_cuda_file_compiles(path, capability):
    made = compile_cuda(path.read_text(encoding="utf-8"), compute_capability=capability)
    assert made.kernels
