"""Remarks on traced kernels: each kind on planted kernels, and none on those that have
nothing of it.
"""

import inspect

import numpy as np
import pytest
from numba import cuda, float32, float64, int32

from gpufacts import find
from kerneltrace import trace
from kerneltrace.judge.estimate import L2_CLOCKS
from kerneltrace.judge.review import LEAST, METRICS
from test_kerneltrace.textbook import ENTRIES

N = 1024


def scaled_by_python_floats(x, y):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(32):
        v = v * 0.999 + 0.001  # here
    y[i] = v


def tile_read_in_columns(x, y):
    tile = cuda.shared.array((32, 32), float32)
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    tile[j, i] = x[32 * j + i]
    cuda.syncthreads()
    y[32 * j + i] = tile[i, j]  # here


def reads_every_32nd(x, y):
    y[cuda.grid(1)] = x[32 * cuda.grid(1) % x.size]  # here


def writes_columns(x, y):
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
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


def chain_of_loads(x, y):
    at = 0
    for k in range(32):
        at += int32(x[(cuda.grid(1) + k * N) % x.size])  # here
    y[cuda.grid(1)] = at


def sum_of_neighbors(x, y):
    sums = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    step = 1
    sums[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    while step < 256:
        if t % (2 * step) == 0:  # here
            sums[t] += sums[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        y[cuda.blockIdx.x] = sums[0]


def half_of_shared_memory(x, y):
    mine = cuda.shared.array(8192, float32)  # here
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    for k in range(8):
        mine[t + 256 * k] = x[(i + 256 * k) % x.size]
    y[i] = mine[t]


def waits_for_nobody(x, y):
    mine = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    mine[t] = x[cuda.grid(1)]
    cuda.syncthreads()  # here
    y[cuda.grid(1)] = mine[t]


def reads_neighbors(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)]


def sum_in_float64(x, y):
    total = float64(0)
    for k in range(16):
        total += x[cuda.grid(1) + 32 * k]
    y[cuda.grid(1)] = total


TABLE = np.arange(256, dtype=np.float32)


def looked_up_in_constants(x, y):
    table = cuda.const.array_like(TABLE)
    i = cuda.grid(1)
    total = float32(0)
    for k in range(8):
        total += table[(97 * i + k) & 255]  # here
    y[i] = total


def counts_in_a_local_array(x, y):
    counts = cuda.local.array(32, float32)
    i = cuda.grid(1)
    for k in range(32):
        counts[k] = float32(0)  # here
    for k in range(16):
        counts[(i * k) & 31] += x[i]
    y[i] = counts[i & 31]


def digits(x, y):
    i = cuda.grid(1)
    total = 0
    number = int32(x[i]) + i
    base = int32(x[0]) + 9
    while number > 0:
        total += number % base  # here
        number //= base
    y[i] = total


def squared_often(x, y):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(64):
        v = v * v + float32(0.5)
    y[i] = v


def rows_of_ten(x, y):
    column, row = cuda.grid(2)
    at = row * 40 + column
    y[at] = float32(2) * x[at]  # here


def plain(kernel, grid, block):
    return trace(
        kernel, grid, block, np.ones(32 * N, np.float32), np.zeros(32 * N, np.float32)
    )


def marked_line(kernel):
    lines, first = inspect.getsourcelines(kernel)
    marked = (first + n for n, line in enumerate(lines) if "# here" in line)
    return next(marked, 0)


PLANTED = [
    ("float64", scaled_by_python_floats, 4, 256, {}),
    ("bank conflicts", tile_read_in_columns, 1, (32, 32), {}),
    ("uncoalesced", reads_every_32nd, 4, 256, {}),
    ("uncoalesced", writes_columns, 1, (32, 32), {}),
    ("atomics", saxpy_by_atomics, 4, 256, {}),
    ("atomics", sum_by_atomics, 4, 256, {}),
    ("narrow loads", four_numbers_a_thread, 4, 256, {}),
    ("bytes in flight", chain_of_loads, 1, 32, {"grid": 100}),
    ("divergence", sum_of_neighbors, 4, 256, {}),
    ("occupancy", half_of_shared_memory, 4, 64, {}),
    ("barrier", waits_for_nobody, 4, 256, {}),
    ("constant memory", looked_up_in_constants, 4, 256, {}),
    ("local memory", counts_in_a_local_array, 4, 256, {}),
    ("integer division", digits, 4, 256, {}),
    ("block size", squared_often, 4, 40, {}),
    ("block size", squared_often, 64, 8, {}),
    ("block size", rows_of_ten, (4, 4), (10, 10), {}),
]
REMARKED = {
    "uncoalesced": (
        "stride 2", "stride 32", "scatter", "2-D, lanes along a column",
        "a column as a view", "transpose, naive", "one field of a struct",
        "a column by a slice", "a view with a step", "a column, C order",
        "a field as an array", "a field written", "a field of 8 bytes",
        "a field of 2 bytes", "fields by name",
    ),
    "bytes in flight": (
        "int8", "bytes to floats",
    ),
    "float64": (
        "stencil of 3", "grid-stride loop", "names that begin with int",
        "one function for two types", "functions that call functions",
        "functions of math", "min and max", "a quotient of integers",
        "a cast, then a product", "polynomial", "a sum that starts as an integer",
        "a loop on floats", "an element that is added to", "divmod of floats",
        "a tuple of numbers", "bytes to floats",
    ),
    "narrow loads": (
        "array of structs",
    ),
    "atomics": (
        "atomic add, an element a warp", "atomics at one address", "histogram",
        "atomic add, own elements", "atomic add, two elements",
        "atomic count of some lanes", "atomic sub", "atomic max of float32",
        "atomic max of int32", "atomic min of float64", "atomic exchange",
        "compare and swap", "atomic inc, 8 counters", "atomic add in two rows",
        "shared atomics, own words",
    ),
    "bank conflicts": (
        "transpose, tile unpadded", "reduction 2, interleaved with bank conflicts",
    ),
    "divergence": (
        "reduction 1, interleaved with divergence",
    ),
    "barrier": (
        "shared atomics, own words",
    ),
    "integer division": (
        "reduction 1, interleaved with divergence",
    ),
}  # fmt: skip
"""Kernels of the textbook that show a waste, by its kind."""


@pytest.mark.parametrize(
    ("kind", "kernel", "grid", "block", "options"),
    PLANTED,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_waste_is_remarked_in_its_line(kind, kernel, grid, block, options):
    remarks = plain(kernel, grid, block).review("A100 SXM4 80GB", **options).of(kind)
    assert remarks[0].line == marked_line(kernel)
    metric = METRICS[kind]
    if kernel is writes_columns:
        metric = metric.replace("op_ld", "op_st")
    assert remarks[0].metric == metric


def test_a_waste_of_stores_names_the_metric_of_stores():
    @cuda.jit
    def transpose(a, out):
        i, j = cuda.grid(2)
        out[i, j] = a[j, i]

    review = trace(
        transpose, (2, 8), (32, 8), np.zeros((64, 64)), np.ones((64, 64))
    ).review("A100 SXM4 80GB")
    (remark,) = review.of("uncoalesced")
    assert "op_st" in remark.metric
    assert "The traced grid of (2, 8, 1) is repeated" in str(review)
    own = trace(
        transpose, (2, 8), (32, 8), np.zeros((64, 64)), np.ones((64, 64))
    ).review("A100 SXM4 80GB", grid=(64, 256))
    assert "is repeated" not in str(own)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_textbook_gets_the_remarks_that_it_deserves_and_no_other(
    monkeypatch, entry
):
    traced = trace(
        entry.kernel, entry.grid, entry.block, *entry.args(lambda array: array)
    )
    for remark in traced.review("T4").remarks:
        assert remark.share >= LEAST
    # all that would be remarked if it cost more
    monkeypatch.setattr("kerneltrace.judge.review.LEAST", -1.0)
    remarks = traced.review("T4").remarks
    deserved = {kind for kind, names in REMARKED.items() if entry.name in names}
    assert {remark.kind for remark in remarks} <= deserved
    assert bool(remarks) == bool(deserved)


def test_a_needless_atomic_costs_at_least_its_latency():
    x = np.ones(1024, np.float32)
    y = np.zeros(1024, np.float32)
    (remark,) = trace(saxpy_by_atomics, 4, 256, x, y).review("T4").of("atomics")
    assert remark.cost_ms >= 1e3 * L2_CLOCKS / find("T4").boost_hz > 1e-4


def test_a_cost_is_the_difference_of_two_estimates():
    traced = plain(reads_every_32nd, 4, 256)
    fast = plain(reads_neighbors, 4, 256)
    review = traced.review("T4", grid=100_000)
    saved = review.estimate.seconds - fast.estimate("T4", grid=100_000).seconds
    assert review.remarks[0].cost_ms == pytest.approx(1e3 * saved, rel=0.2)
    assert review.remarks[0].share == pytest.approx(
        1e-3 * review.remarks[0].cost_ms / review.estimate.seconds
    )


@cuda.jit
def read_apart_and_stored(x, at):
    x[at + cuda.grid(1)] = x[32 * cuda.grid(1)]


def test_the_cost_of_loads_is_that_of_the_loads_of_an_array_that_is_stored_too():
    x = np.ones(64 * N, np.float32)
    loads = trace(read_apart_and_stored, 4, 256, x, 40 * N).review("T4")
    others = plain(reads_every_32nd, 4, 256).review("T4")
    costs = [review.of("uncoalesced")[0].cost_ms for review in (loads, others)]
    assert costs[0] == pytest.approx(costs[1], rel=0.05)


def test_float64_that_costs_nothing_on_a_gpu_is_not_remarked_there():
    traced = plain(scaled_by_python_floats, 4, 256)
    assert traced.review("T4").of("float64")

    @cuda.jit
    def halved(x, y):
        y[cuda.grid(1)] = 0.5 * x[cuda.grid(1)]

    assert not plain(halved, 4, 256).review("H100 SXM5 80GB").remarks


@pytest.mark.parametrize("threads", [1, 9, 33, 100])
def test_a_block_that_fills_no_warp_is_the_first_remark(threads):
    traced = plain(squared_often, 16, threads)
    first = traced.review("A100 SXM4 80GB").remarks[0]
    assert first.kind == "block size"
    assert "Take a multiple of 32" in first.sentence
    assert not plain(squared_often, 16, 64).review("A100 SXM4 80GB").remarks


def test_float64_that_the_kernel_names_is_meant():
    traced = plain(sum_in_float64, 4, 256)
    assert not traced.review().of("float64")


def test_a_review_prints_as_a_table():
    review = plain(tile_read_in_columns, 1, (32, 32)).review("T4")
    assert "tile[i, j]" in str(review)
    assert "<table" in review._repr_html_()
    assert "Nothing to remark." in str(plain(reads_neighbors, 4, 256).review("T4"))


@pytest.mark.parametrize("options", [{"device": "T5"}, {"longer": -1}])
def test_a_review_refuses_what_an_estimate_refuses(options):
    with pytest.raises(ValueError, match=r"Expected|T4"):
        plain(reads_neighbors, 4, 256).review(**options)


def test_a_kind_of_remark_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="bank conflicts"):
        plain(reads_neighbors, 4, 256).review().of("banks")


def test_a_review_sends_back_a_kernel_with_a_mistake_first():
    @cuda.jit
    def one_sum(x, total):
        total[0] += x[cuda.grid(1)]

    traced = trace(one_sum, 4, 32, np.ones(128, np.float32), np.zeros(1, np.float32))
    assert not traced.ok
    assert "The trace found mistakes, which it prints: mend them first." in str(
        traced.review("T4")
    )
    sound = trace(one_sum, 1, 1, np.ones(1, np.float32), np.zeros(1, np.float32))
    assert sound.ok
    assert "mistakes" not in str(sound.review("T4"))


def guarded(x):
    if cuda.grid(1) < x.size:
        x[cuda.grid(1)] = 1


def test_a_launch_without_accesses_has_nothing_to_remark():
    assert trace(guarded, 1, 32, np.zeros(0, np.float32)).review("T4").remarks == ()
