"""Proofs that no two threads meet: none is false, and the textbook's are found."""

# ruff: noqa: N803 - kernels of Triton write constants in capitals

import random

import numpy as np
import pytest
from numba import cuda, float32, types

from kerneltrace import tiles, trace
from kerneltrace.proof.kernel import thread_proof
from kerneltrace.tiles import tl, triton
from test_kerneltrace import affine_kernels
from test_kerneltrace.tracing import made_in_a_cell

KINDS = types.float32[::1], types.float32[::1], types.int64


def judged(seed):
    """Whether a random kernel is proven; its launches are tried where it is."""
    source = affine_kernels.kernel(random.Random(seed))
    function = affine_kernels.defined(source, f"<affine {seed}>")
    proof = thread_proof(function, KINDS, grid=(2, 1, 1), block=(4, 1, 1))
    for block, grid, n in affine_kernels.LAUNCHES if proof.proven else ():
        if proof.block is None or block == proof.block[0]:
            try:
                affine_kernels.check_by_force(function, block, grid, n)
            except affine_kernels.Meets:
                pytest.fail(f"seed {seed}: {block, grid, n}\n{source}\n{proof}")
    return proof.proven


def test_no_proof_is_false():
    assert sum(map(judged, range(40))) >= 8


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, 10_000, 500))
def test_no_proof_of_ten_thousand_is_false(start):
    assert sum(map(judged, range(start, start + 500))) >= 50


BODIES = {
    "y[i] = x[i]": "any block",
    "if i < n: y[n - 1 - i] = x[i]": "any block",
    "if t == 0: y[b] = x[b]": "any block",
    "y[2 * i] = 0\n    y[2 * i + 1] = 1": "any block",
    "y[b * 8 + t] = 0": "blocks of (8,)",
    "s[t] = x[i]\n    cuda.syncthreads()\n    y[i] = s[7 - t]": "any block",
    "if t < n: s[t] = s[t + n]": "any block",
    "if t % 2 == 0: s[t] += s[t + 1]": "any block",
    "cuda.atomic.add(y, 0, x[i])": "any block",
    "for k in range(i, n, cuda.gridsize(1)): y[k] = x[k]": "any block",
    "while i < n:\n        y[i] = x[i]\n        i += cuda.gridsize(1)": "any block",
    "y[i // 2] = 0": "may reach the same element of y",
    "y[t] = 0": "two different blocks",
    "y[i] = y[i + 1]": "may reach the same element of y",
    "y[i - 1] = 0": "may be below 0",
    "y[int(x[i])] = 0": "line 7: an index of y depends on data",
    "y[0] = 1": "may reach the same element of y",
    "s[t] = x[i]\n    y[i] = s[7 - t]": "the shared array s of line 6",
    "if x[i] > 0: cuda.syncthreads()": "only some threads may come to this barrier",
    "y[i] = 0\n    cuda.atomic.add(y, 0, 1)": "lines 7 and 8",
}
"""What a proof, or why there is none, says of a kernel's body."""


@pytest.mark.parametrize("body", BODIES)
def test_a_proof_says_for_which_launches_or_why_there_is_none(body):
    head = (
        "def k(x, y, n):\n    i = cuda.grid(1)\n    t = cuda.threadIdx.x\n"
        "    b = cuda.blockIdx.x\n\n    s = cuda.shared.array(64, float32)\n    "
    )
    kernel = made_in_a_cell(head + body + "\n", float32=float32)
    proof = thread_proof(kernel, KINDS, grid=(2, 1, 1), block=(8, 1, 1))
    assert BODIES[body] in proof.reason, proof.reason
    assert proof.proven == (BODIES[body][:3] in ("any", "blo"))


def test_a_proof_of_atomics_does_not_say_that_nothing_is_shared():
    @cuda.jit
    def count(x, out):
        cuda.atomic.add(out, 0, x[cuda.grid(1)])

    proof = trace(count, 2, 32, np.ones(64, np.int32), np.zeros(1, np.int32)).proof()
    assert proof.proven
    assert "nor do atomics" in str(proof)


@cuda.jit
def double(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


def test_a_trace_proves_and_says_what_is_taken_for_granted():
    x = np.ones(64, np.float32)
    proof = trace(double, 2, 32, x, np.zeros(64, np.float32)).proof()
    assert proof.proven
    assert "each block has elements of its own" in str(proof)
    assert "different parameters are different arrays" in str(proof)
    assert "x and out overlap" in trace(double, 1, 64, x, x).proof().reason


def test_arrays_that_overlap_are_proven_where_both_are_only_read():
    @cuda.jit
    def products(x, y, out):
        i = cuda.grid(1)
        out[i] = x[i] * y[i]

    x = np.ones(64, np.float32)
    assert trace(products, 2, 32, x, x, np.zeros(64, np.float32)).proof().proven
    tiled = (summed, 4, x, x, np.zeros(64, np.float32), 16)
    assert tiles.trace(*tiled, BLOCK=16).proof().proven
    in_place = tiles.trace(summed, 4, x, x, x, 16, BLOCK=16).proof()
    assert "x and out overlap" in in_place.reason


def test_a_race_and_a_kernel_in_cplusplus_are_not_proven():
    x = np.ones(64, np.float32)
    racing = trace(double, 1, 32, x[:32], x[16:48]).proof()
    assert racing.reason.startswith("This run has a race.")
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'
    assert not trace(source, 1, 32, x).proof().proven


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def summed(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


@triton.jit
def overlapping(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@triton.jit
def transposed(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    pointers = out + row
    for _ in range(0, n, BLOCK):
        tl.store(pointers + at * n, tl.load(x + row * n + at), mask=row < n)
        pointers += BLOCK * n


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (scaled, "any grid, with BLOCK = 16, and no number below 0 (n)"),
        (overlapping, "may reach the same element of out"),
        (transposed, "any grid"),
    ],
)
def test_programs_are_proven_apart(kernel, words):
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    proof = tiles.trace(kernel, 4, x, out, 16, BLOCK=16).proof()
    assert words in proof.reason, proof.reason
    assert proof.proven == ("grid" in words)
