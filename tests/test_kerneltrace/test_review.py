"""Remarks on traced kernels: each kind on planted kernels, and none on those that have nothing of it."""

import inspect

import numpy as np
import pytest
from numba import cuda, float32, float64, int32

from kerneltrace import trace
from kerneltrace.devices import named
from kerneltrace.errors import BadArgument, KernelTraceError
from kerneltrace.judge.estimate import L2_CLOCKS
from kerneltrace.judge.review import METRICS
from tests.test_kerneltrace.textbook import ENTRIES

N = 1024


def scaled_by_python_floats(x, y):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(32):
        v = v * 0.999 + 0.001  # here
    y[i] = v


def mean_by_an_integer(x, y):
    i = cuda.grid(1)
    total, count = float32(0), 0
    for k in range(16):
        total += x[(i + 32 * k) % x.size]
        count += 1
    y[i] = total / count  # here


def tile_read_in_columns(x, y):
    tile = cuda.shared.array((32, 32), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    tile[j, i] = x[32 * j + i]
    cuda.syncthreads()
    y[32 * j + i] = tile[i, j]  # here


def columns_in_shared_memory(x, y):
    rows = cuda.shared.array((32, 16), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    rows[j, i % 16] = x[32 * j + i % 16]
    cuda.syncthreads()
    total = float32(0)
    for k in range(16):
        total += rows[i, k]  # here
    y[32 * j + i] = total


def reads_every_32nd(x, y):
    y[cuda.grid(1)] = x[32 * cuda.grid(1) % x.size]  # here


def writes_columns(x, y):
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    y[32 * i + j] = x[32 * j + i]  # here


def saxpy_by_atomics(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, i, float32(2) * x[i])  # here


def sum_by_atomics(x, y):
    cuda.atomic.add(y, 0, x[cuda.grid(1)])  # here


def four_numbers_a_thread(x, y):
    i = 4 * cuda.threadIdx.x  # from the L1 cache but for the first time
    total = float32(0)
    for _ in range(8):
        for k in range(4):
            total = total * total + x[i + k]  # here
    y[cuda.grid(1)] = total


def two_numbers_a_thread(x, y):
    i = 2 * cuda.threadIdx.x
    total = float32(0)
    for _ in range(8):
        total = total * total + x[i]  # here
        total = total * total + x[i + 1]
    y[cuda.grid(1)] = total


def one_warp_a_block(x, y):
    wide = cuda.shared.array(8192, float32)
    i = cuda.grid(1)
    wide[cuda.threadIdx.x] = x[i]  # here
    y[i] = wide[cuda.threadIdx.x]


def chain_of_loads(x, y):
    at = 0
    for k in range(32):
        at += int32(x[(cuda.grid(1) + k * N) % x.size])  # here
    y[cuda.grid(1)] = at


def sum_of_neighbours(x, y):
    sums = cuda.shared.array(256, float32)
    t, step = cuda.threadIdx.x, 1
    sums[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    while step < 256:
        if t % (2 * step) == 0:  # here
            sums[t] += sums[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        y[cuda.blockIdx.x] = sums[0]


def odd_and_even(x, y):
    i = cuda.grid(1)
    total = float32(0)
    if i % 2 == 0:  # here
        for k in range(32):
            total += x[k]
    else:
        for k in range(32):
            total -= x[k]
    y[i] = total


def half_of_shared_memory(x, y):
    mine = cuda.shared.array(8192, float32)  # here
    i, t = cuda.grid(1), cuda.threadIdx.x
    for k in range(8):
        mine[t + 256 * k] = x[(i + 256 * k) % x.size]
    y[i] = mine[t]


def tile_that_one_warp_needs(x, y):
    tile = cuda.shared.array((64, 128), float32)  # here
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t % 64, t % 128] = 0
    y[i] = x[i]


def waits_for_nobody(x, y):
    mine = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    mine[t] = x[cuda.grid(1)]
    cuda.syncthreads()  # here
    y[cuda.grid(1)] = mine[t]


def waits_at_the_end(x, y):
    mine = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    mine[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    y[cuda.grid(1)] = mine[255 - t]
    cuda.syncthreads()  # here


def reads_neighbours(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)]


def sum_in_float64(x, y):
    total = float64(0)
    for k in range(16):
        total += x[cuda.grid(1) + 32 * k]
    y[cuda.grid(1)] = total


def tiles(x, y):
    tile = cuda.shared.array(1024, float32)
    t, total = cuda.threadIdx.x, float32(0)
    for first in range(0, x.size, cuda.blockDim.x):
        tile[t] = x[first + t]
        cuda.syncthreads()
        for k in range(cuda.blockDim.x):
            total += tile[k]
        cuda.syncthreads()
    y[t] = total


def guarded(x):
    if cuda.grid(1) < x.size:
        x[cuda.grid(1)] = 1


def plain(kernel, grid, block):
    return trace(kernel, grid, block, np.ones(32 * N, np.float32), np.zeros(32 * N, np.float32))


def marked_line(kernel):
    lines, first = inspect.getsourcelines(kernel)
    return next(first + n for n, line in enumerate(lines) if "# here" in line)


PLANTED = [
    ("float64", scaled_by_python_floats, 4, 256, {}),
    ("float64", mean_by_an_integer, 4, 256, {}),
    ("bank conflicts", tile_read_in_columns, 1, (32, 32), {}),
    ("bank conflicts", columns_in_shared_memory, 1, (32, 32), {}),
    ("uncoalesced", reads_every_32nd, 4, 256, {}),
    ("uncoalesced", writes_columns, 1, (32, 32), {}),
    ("atomics", saxpy_by_atomics, 4, 256, {}),
    ("atomics", sum_by_atomics, 4, 256, {}),
    ("narrow loads", four_numbers_a_thread, 4, 256, {}),
    ("narrow loads", two_numbers_a_thread, 4, 256, {}),
    ("bytes in flight", one_warp_a_block, 4, 32, {}),
    ("bytes in flight", chain_of_loads, 1, 32, {"grid": 100}),
    ("divergence", sum_of_neighbours, 4, 256, {}),
    ("divergence", odd_and_even, 4, 256, {}),
    ("occupancy", half_of_shared_memory, 4, 64, {}),
    ("occupancy", tile_that_one_warp_needs, 4, 64, {}),
    ("barrier", waits_for_nobody, 4, 256, {}),
    ("barrier", waits_at_the_end, 4, 256, {}),
]
EXPECTED = {  # of the textbook, which has kernels that show a waste
    "stride 2": "uncoalesced",
    "stride 32": "uncoalesced",
    "int8": "bytes in flight",
    "scatter": "uncoalesced",
    "2-D, lanes along a column": "uncoalesced",
    "a column as a view": "uncoalesced",
    "transpose, naive": "uncoalesced",
    "one field of a struct": "uncoalesced",
    "stencil of 3": "float64",
    "grid-stride loop": "float64",
    "array of structs": "narrow loads",
    "atomic add, an element a warp": "atomics",
    "atomics at one address": "atomics",
    "histogram": "atomics",
    "transpose, tile unpadded": "bank conflicts",
    "reduction 1, interleaved with divergence": "divergence",
    "reduction 2, interleaved with bank conflicts": "bank conflicts",
    "atomic add, own elements": "atomics",
    "atomic add, two elements": "atomics",
    "atomic count of some lanes": "atomics",
    "atomic sub": "atomics",
    "atomic max of float32": "atomics",
    "atomic max of int32": "atomics",
    "atomic min of float64": "atomics",
    "atomic exchange": "atomics",
    "compare and swap": "atomics",
    "atomic inc, 8 counters": "atomics",
    "atomic add in two rows": "atomics",
    "shared atomics, own words": "atomics, barrier",
    "names that begin with int": "float64",
    "one function for two types": "float64",
    "functions that call functions": "float64",
    "functions of math": "float64",
    "min and max": "float64",
    "a quotient of integers": "float64",
    "a cast, then a product": "float64",
    "polynomial": "float64",
    "a sum that starts as an integer": "float64",
    "a loop on floats": "float64",
    "an element that is added to": "float64",
    "divmod of floats": "float64",
    "a tuple of numbers": "float64",
    "bytes to floats": "float64",
    "a column by a slice": "uncoalesced",
    "a view with a step": "uncoalesced",
    "a column, C order": "uncoalesced",
    "a field as an array": "uncoalesced",
    "a field written": "uncoalesced",
    "a field of 8 bytes": "uncoalesced",
    "a field of 2 bytes": "uncoalesced",
    "fields by name": "uncoalesced",
}


@pytest.mark.parametrize(
    ("kind", "kernel", "grid", "block", "options"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_waste_is_remarked_in_its_line(kind, kernel, grid, block, options):
    remarks = plain(kernel, grid, block).review("A100 SXM4 80GB", **options).of(kind)
    assert remarks[0].line == marked_line(kernel)
    assert remarks[0].metric == METRICS[kind]


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_textbook_gets_the_remarks_that_it_deserves_and_no_other(entry):
    done = trace(entry.kernel, entry.grid, entry.block, *entry.args(lambda array: array))
    remarks = done.review("T4").remarks
    assert {remark.kind for remark in remarks} - set(EXPECTED.get(entry.name, "").split(", ")) == set()
    assert {remark.kind for remark in remarks} or entry.name not in EXPECTED


def test_a_needless_atomic_costs_at_least_its_latency():
    x, y = np.ones(1024, np.float32), np.zeros(1024, np.float32)
    (remark,) = trace(saxpy_by_atomics, 4, 256, x, y).review("T4").of("atomics")
    assert remark.cost_ms >= 1e3 * L2_CLOCKS / named("T4").boost_hz > 1e-4


def test_many_registers_are_remarked():
    done = plain(reads_neighbours, 4, 256)
    assert [remark.line for remark in done.review(registers=255).of("occupancy")] == [0]
    assert not done.review(registers=32).of("occupancy")


def test_a_cost_is_the_difference_of_two_estimates():
    done, fast = plain(reads_every_32nd, 4, 256), plain(reads_neighbours, 4, 256)
    review = done.review("T4", grid=100_000)
    saved = review.estimate.seconds - fast.estimate("T4", grid=100_000).seconds
    assert review.remarks[0].cost_ms == pytest.approx(1e3 * saved, rel=0.2)
    assert review.remarks[0].share == pytest.approx(1e-3 * review.remarks[0].cost_ms / review.estimate.seconds)


def test_float64_that_the_kernel_names_is_meant():
    done = plain(sum_in_float64, 4, 256)
    assert not done.review().of("float64")


@pytest.mark.parametrize("threads", [64, 1024])
def test_a_barrier_in_a_loop_that_went_round_once_is_not_judged(threads):
    """With one turn the second barrier of a tiled loop has nothing to order yet."""
    x = np.ones(threads, np.float32)
    assert not trace(tiles, 1, threads // 4, x[: threads // 4], np.zeros_like(x)).review().of("barrier")


def test_a_review_prints_as_a_table():
    review = plain(tile_read_in_columns, 1, (32, 32)).review("T4")
    assert "tile[i, j]" in str(review)
    assert "<table" in review._repr_html_()
    assert "Nothing to remark." in str(plain(reads_neighbours, 4, 256).review("T4"))


def test_a_launch_without_accesses_has_nothing_to_remark():
    assert trace(guarded, 1, 32, np.zeros(0, np.float32)).review("T4").remarks == ()


@pytest.mark.parametrize("options", [{"device": "T5"}, {"registers": 0}, {"grid": 0}, {"longer": -1}])
def test_a_review_refuses_what_an_estimate_refuses(options):
    with pytest.raises(KernelTraceError, match=r"Expected|T4"):
        plain(reads_neighbours, 4, 256).review(**options)


def test_a_kind_of_remark_that_does_not_exist_is_refused():
    with pytest.raises(BadArgument, match="bank conflicts"):
        plain(reads_neighbours, 4, 256).review().of("banks")


def test_a_review_sends_back_a_kernel_with_a_mistake_first():
    @cuda.jit
    def one_sum(x, total):
        total[0] += x[cuda.grid(1)]

    traced = trace(one_sum, 4, 32, np.ones(128, np.float32), np.zeros(1, np.float32))
    assert not traced.ok
    assert "The trace found mistakes, which it prints: mend them first." in str(traced.review("T4"))
    sound = trace(one_sum, 1, 1, np.ones(1, np.float32), np.zeros(1, np.float32))
    assert sound.ok
    assert "mistakes" not in str(sound.review("T4"))
