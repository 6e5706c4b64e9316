"""Kernels written in Python for numba and in CUDA C++ ask for the same, whichever of
them is traced.
"""

import dataclasses

import numpy as np
import pytest

from kerneltrace import compile_numba, trace
from test_kerneltrace.textbook import ENTRIES
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;"


def kernel(parameters, body):
    return f'extern "C" __global__ void k({parameters}) {{ {INDEX} {body} }}'


XY = "const float* x, float* y"
SHARED = "__shared__ float s[128]; s[t] = x[i]; __syncthreads();"
LOOP = (
    "for (int d = {}; {}; {}) {{ {} __syncthreads(); }} if (t == 0) out[blockIdx.x] ="
    " s[0];"
)
IN_CPLUSPLUS = {
    "stride 1": kernel(XY, "y[i] = x[i];"),
    "stride 2": kernel(XY, "y[i] = x[2 * i];"),
    "misaligned by 4 bytes": kernel(XY, "y[i] = x[i];"),
    "int8": kernel("const char* x, char* y", "y[i] = x[i];"),
    "broadcast": kernel(XY, "y[i] = x[0];"),
    "gather": kernel("const float* x, const int* at, float* y", "y[i] = x[at[i]];"),
    "partial last warp": kernel(XY, "if (i < 100) y[i] = x[i];"),
    "transpose, naive": kernel(
        "const float* a, float* b",
        "int r = blockIdx.y * blockDim.y + threadIdx.y; b[i * 64 + r] = a[r * 64 + i];",
    ),
    "even and odd warps": kernel(
        "const float* x, float* y, float* z",
        "if (i / 32 % 2 == 0) y[i / 64 * 32 + i % 32] = x[i]; else z[i / 64 * 32 + i %"
        " 32] = x[i];",
    ),
    "as many turns as the lane's number": kernel(
        XY, "float v = x[i]; for (int k = 0; k < i % 32; ++k) v *= v; y[i] = v;"
    ),
    "atomics at one address": kernel(XY, "atomicAdd(y, x[i]);"),
    "histogram": kernel("const int* x, int* y", "atomicAdd(y + x[i], 1);"),
    "matmul, naive": kernel(
        "const float* a, const float* b, float* c",
        "int r = blockIdx.y * blockDim.y + threadIdx.y; float sum = 0;for (int k = 0; k"
        " < 32; ++k) sum += a[r * 32 + k] * b[k * 32 + i]; c[r * 32 + i] = sum;",
    ),
}
BY_NAME = {entry.name: entry for entry in ENTRIES}


def counts(done, name, kind):
    actual = dataclasses.asdict(done.count(name, kind=kind))
    return actual | {"findings": [finding.kind for finding in done.findings]}


@pytest.mark.parametrize("name", IN_CPLUSPLUS)
def test_the_textbook_in_cplusplus_asks_for_what_it_asks_for_in_python(name):
    entry = BY_NAME[name]
    ours, theirs = ([*entry.args(lambda array: array.copy())] for _ in range(2))
    python = trace(entry.kernel, entry.grid, entry.block, *ours)
    compiled = trace(IN_CPLUSPLUS[name], entry.grid, entry.block, *theirs)
    for got, want in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    for key in entry.want:
        assert counts(compiled, *key.split()) == counts(python, *key.split()), key
    assert compiled.flop == python.flop == entry.flop


CHANGED = {
    "grid-stride loop": (
        "unrolled four times, so that lanes that stop earlier part from the others"
        " earlier"
    ),
    "even and odd lanes": "the load of both branches is done before them",
    "atomic max of float32": "a loop around a compare-and-swap",
    "atomic min of float64": (
        "a volatile read first, and a compare-and-swap only by who has the smaller"
        " number"
    ),
    "shared counter, an atomic a warp": (
        "only the lanes that use the loaded number load it"
    ),
    "butterfly of integers": "numba widens the sum to 64 bits: two shuffles each",
    "functions of math": "an element is loaded once, not once for each function",
    "complex numbers": "real and imaginary part are accessed one after the other",
    "int32": "an element is loaded once",
    "uint8": "an element is loaded once",
    "a tuple of arrays": "an element is loaded once",
    "a tuple of numbers": "an element is loaded once",
    "a local array": "an element is loaded once",
}
LINKED = "a sum of float16"  # numba links its operators only at a launch


# which are packed, so that a compiler loads their fields byte by byte
def has_records(entry):
    return any(
        array.dtype.names
        for array in entry.args(np.asarray)
        if isinstance(array, np.ndarray)
    )


COMPILED = [
    entry
    for entry in ENTRIES
    if entry.name not in (*CHANGED, LINKED) and not has_records(entry)
]


@pytest.mark.parametrize("entry", COMPILED, ids=lambda entry: entry.name)
def test_a_kernel_that_numba_compiled_asks_for_what_its_source_asks_for(entry):
    ours, theirs = ([*entry.args(lambda array: array.copy())] for _ in range(2))
    python = trace(entry.kernel, entry.grid, entry.block, *ours)
    made = compile_numba(entry.kernel, tuple(ours), compute_capability=(8, 0))
    compiled = trace(made, entry.grid, entry.block, *theirs)
    for got, want in zip(theirs, ours, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got, want, rtol=1e-4)
    arrays = {key for key in entry.want if key.split()[0] in python.arrays}
    for key in arrays & {
        f"{name} {kind}"
        for name in compiled.arrays
        for kind in ("load", "store", "atomic")
    }:
        assert counts(compiled, *key.split()) == counts(python, *key.split()), key
    assert [finding.kind for finding in compiled.findings] == [
        finding.kind for finding in python.findings
    ]
    assert (compiled.barriers, compiled.shuffles) == (python.barriers, python.shuffles)
