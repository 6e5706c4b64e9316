"""Full sizes: programs that stand for a grid, arrays beyond 2 GiB, what a review
remarks, and Triton's own signatures.
"""

import importlib
import importlib.util
import inspect
import re

import numpy as np
import pytest

from gpufacts import find
from kerneltrace import tiles
from kerneltrace.errors import KernelError
from kerneltrace.tiles import running, sampling, tl, triton
from kerneltrace.tiles.language import FUNCTIONS, Language
from test_kerneltrace.tile_kernels import (
    add,
    attention,
    matmul,
    random,
    scan,
    transpose,
)

pytestmark = pytest.mark.slow  # runs kernels
TRITON = importlib.util.find_spec("triton") is not None
REFUSED = ("make_block_ptr", "make_tensor_descriptor", "print")
"""Functions that take anything."""
NEWER = ("to_tensor",)
"""Functions that Triton 3.6 doesn't have."""


def _of_vector(kernel, n, block):
    args = random(n), random(n, seed=1), np.zeros(n, np.float32), n
    return kernel, (-(-n // block),), args, {"BLOCK": block}


def _of_rows(rows, columns):
    x = np.arange(rows * columns, dtype=np.int32)
    return scan, (rows,), (x, np.zeros_like(x), columns), {"BLOCK": 128}


def _of_matrix(rows, columns, tile):
    x = random(rows, columns)
    grid = -(-rows // tile), -(-columns // tile)
    out = np.zeros((columns, rows), np.float32)
    return transpose, grid, (x, out, rows, columns), {"TILE": tile}


def _of_matrices(n):
    a = np.ones((n, n), np.float16)
    args = a, a.copy(), np.zeros((n, n), np.float32), n, n, n, n, 1, n, 1, n, 1
    sizes = {"BM": 16, "BN": 16, "BK": 32, "GROUP": 4}
    return matmul, ((n // 16) ** 2,), args, sizes


def _of_heads(heads, n):
    q = np.ones((heads, n, 32), np.float16)
    args = q, q.copy(), q.copy(), np.zeros_like(q), n, n, 0.1
    sizes = {"D": 32, "BM": 16, "BN": 16, "CAUSAL": False}
    return attention, (n // 16, heads), args, sizes


LAUNCHES = {
    "vectors": lambda: _of_vector(add, 4096, 64),
    "vectors whose last tile is masked": lambda: _of_vector(add, 4097, 64),
    "rows": lambda: _of_rows(64, 100),
    "a matrix": lambda: _of_matrix(64, 128, 8),
    "a matrix whose edges are masked": lambda: _of_matrix(60, 100, 8),
    "a product": lambda: _of_matrices(128),
    "heads": lambda: _of_heads(8, 128),
}


def counted(trace):
    """All counts of a trace that stand for the whole grid."""
    counts = {}
    for array in ("x", "y", "out", "a", "b", "c", "q", "k", "v"):
        for kind in ("load", "store"):
            try:
                each = trace.count(array, kind=kind)
            except ValueError:
                continue
            counts[array, kind] = each.elements, each.bytes, each.sectors
    return counts, trace.flop, trace.dot_flop


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_sample_counts_what_the_whole_grid_does(name, monkeypatch):
    kernel, grid, args, constants = LAUNCHES[name]()
    whole = tiles.trace(kernel, grid, *args, **constants)
    assert whole.traced == whole.programs
    monkeypatch.setattr(sampling, "BUDGET", 1)
    kernel, grid, args, constants = LAUNCHES[name]()
    sample = tiles.trace(kernel, grid, *args, **constants)
    assert sample.traced < whole.programs
    assert sample.ok
    assert sample.notes == ()
    assert counted(sample) == counted(whole)
    assert re.search(
        r"of the \d+ programs were run, .*: counts are scaled to the whole grid",
        str(sample),
    )


@pytest.mark.parametrize(
    ("programs", "traced"),
    [("all", 64), (3, 3), (1000, 64), ([(0,), (5,), 63], 3), ([(0, 0)], 1)],
)
def test_programs_by_number_or_place(programs, traced):
    kernel, grid, args, constants = _of_vector(add, 4096, 64)
    trace = tiles.trace(kernel, grid, *args, programs=programs, **constants)
    assert trace.traced == traced
    assert trace.count("out").elements == 4096
    assert trace.estimate("A100 SXM4 80GB").seconds > 0


@pytest.mark.parametrize(
    ("programs", "error"),
    [
        (0, ValueError),
        ("some", TypeError),
        ([], ValueError),
        ([(64,)], ValueError),
        ([(0, 1)], ValueError),
        (1.5, TypeError),
    ],
)
def test_programs_that_are_not_of_the_grid_are_refused(programs, error):
    kernel, grid, args, constants = _of_vector(add, 4096, 64)
    with pytest.raises(error, match="Expected"):
        tiles.trace(kernel, grid, *args, programs=programs, **constants)


@triton.jit
def chain(flags, out):
    program = tl.program_id(0)
    while tl.atomic_add(flags + program, 0) == 0:
        pass
    tl.store(out + program, 1.0)
    tl.atomic_xchg(flags + program + 1, 1)


def _flags():
    flags = np.zeros(201, np.int32)
    flags[0] = 1
    return flags


def test_a_program_that_waits_for_one_outside_of_the_sample_is_no_mistake(monkeypatch):
    out = np.zeros(200, np.float32)
    monkeypatch.setattr(running, "MAX_DECISIONS", 100)
    with pytest.raises(KernelError, match=r'did not run: pass programs="all"'):
        tiles.trace(chain, 200, _flags(), out, programs=[0, 100])
    monkeypatch.setattr(sampling, "BUDGET", 1)
    trace = tiles.trace(chain, 200, _flags(), out)
    assert trace.ok
    assert trace.count("out").elements == 200
    assert tiles.trace(chain, 200, _flags(), out, programs="all").ok


@triton.jit
def heavy_but_for_the_first(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at)
    if tl.program_id(0) > 0:
        for _ in range(50):
            total += tl.load(x + at)
    tl.store(out + at, total)


def test_later_programs_that_take_longer_end_in_a_sample(monkeypatch):
    monkeypatch.setattr(sampling, "BUDGET", 10**7)
    x = np.ones(200 * 32, np.float32)
    trace = tiles.trace(heavy_but_for_the_first, 200, x, np.zeros_like(x), BLOCK=32)
    assert 32 < trace.traced < 200
    assert trace.count("x").elements == 32 * (1 + 199 * 51)


def test_what_the_programs_of_a_sample_share_is_that_of_the_first_ones(monkeypatch):
    monkeypatch.setattr(sampling, "BUDGET", 1)
    kernel, grid, args, constants = _of_matrices(256)
    trace = tiles.trace(kernel, grid, *args, **constants)
    estimate = trace.estimate("A100 SXM4 80GB")
    assert "L2 is simulated for the first" in str(estimate)
    traffic = trace.traffic("A100 SXM4 80GB")
    assert traffic.l2_bytes["a"] == 16 * 256 * 256 * 2
    assert traffic.dram_read_bytes["a"] < traffic.l2_bytes["a"]


@triton.jit
def rows_apart(x, out, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + row + at))


@pytest.mark.parametrize(
    ("dtype", "stride"), [(np.int8, 2**30), (np.float16, 2**30), (np.float32, 2**28)]
)
def test_arrays_beyond_2_gib_are_traced_at_their_size(dtype, stride):
    """Offsets are elements: those of 2**30 leave int32 in the third row."""
    x = np.zeros(3 * stride, dtype)
    out = np.zeros(48, dtype)
    trace = tiles.trace(rows_apart, 3, x, out, stride, BLOCK=16)
    kinds = {finding.kind for finding in trace.findings}
    assert kinds == ({"overflow", "outside"} if stride == 2**30 else set())
    assert trace.count("x").distinct_bytes <= 48 * x.itemsize
    assert trace.estimate("A100 SXM4 80GB").seconds > 0


@pytest.mark.parametrize("repeated", [False, True])
def test_elements_between_the_rows_of_a_view_lie_outside(repeated):
    rows = np.zeros((70_000, 70_000), np.uint8)[:, :50]
    x = np.broadcast_to(rows, (3, *rows.shape)) if repeated else rows
    out = np.zeros(64, np.uint8)
    trace = tiles.trace(rows_apart, 1, x, out, 0, BLOCK=64)
    assert "loads 14 elements outside of x, the first at 50" in str(trace)


@triton.jit
def column_by_column(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at * n + tl.program_id(0))
    tl.store(out + tl.program_id(0) * n + at, values)


@triton.jit
def row_by_row(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def test_a_review_names_lines_and_what_they_cost():
    x = random(1024, 1024)
    trace = tiles.trace(column_by_column, 1024, x, np.zeros_like(x), 1024, BLOCK=1024)
    chip = "A100 SXM4 80GB"
    review = trace.review(chip, grid=4096)
    (remark,) = review.of("uncoalesced")
    assert remark.line == column_by_column.fn.__code__.co_firstlineno + 3
    assert remark.source.startswith("values = tl.load(")
    mended = tiles.trace(row_by_row, 1024, x, np.zeros_like(x), 1024, BLOCK=1024)
    saved_s = review.estimate.seconds - mended.estimate(chip, grid=4096).seconds
    assert remark.cost_ms == pytest.approx(1e3 * saved_s, rel=1e-6)
    assert mended.review(chip, grid=4096).remarks == ()
    assert review.remarks == (remark,)


def test_a_review_of_a_product_by_small_tiles_asks_for_larger_ones():
    kernel, grid, args, constants = _of_matrices(128)
    trace = tiles.trace(kernel, grid, *args, **constants)
    review = trace.review("H100 SXM5 80GB", grid=2**16)
    arrays = [each.sentence for each in review.of("reuse")]
    assert len(arrays) == 2
    assert "load each byte of a 8 times" in arrays[0]


@triton.jit
def long_sums(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        total += tl.load(x + k + at)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def test_a_review_of_few_programs_names_the_sms_that_have_none():
    """An SM takes at most 32 bytes a clock from L2, and a store a sector to it."""
    x = random(8, 65536)
    trace = tiles.trace(long_sums, 8, x, np.zeros(8, np.float32), 65536, BLOCK=1024)
    chip = find("A100 SXM4 80GB")
    review = trace.review(chip)
    (remark,) = review.remarks
    assert remark.kind == "occupancy"
    assert "100 of 108 SMs have no program" in remark.sentence
    l2_s = (4 * 65536 + 32) / (32 * chip.boost_hz)
    assert review.estimate.parts["L2 cache"] == pytest.approx(l2_s)
    assert remark.cost_ms < 1e3 * review.estimate.seconds
    assert not trace.review(chip, grid=108).remarks


@triton.autotune(
    configs=[triton.Config({"BLOCK": 32}, num_warps=8), triton.Config({"BLOCK": 64})],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n)
    tl.store(out + at, 2 * values, mask=at < n)


@pytest.mark.parametrize("n", [96, 100])
@pytest.mark.parametrize("constants", [{}, {"EVEN": False}, {"BLOCK": 64}])
def test_heuristics_are_worked_out_from_the_other_arguments(n, constants):
    x = random(n)
    out = np.zeros(n, np.float32)
    trace = tiles.trace(
        doubled,
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
        *(x, out, n),
        **constants,
    )
    assert trace.ok, trace
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(REFUSED)))
def test_a_function_has_triton_s_signature(name):
    own = inspect.signature(getattr(Language(), name)).parameters.values()
    modules = (
        "triton.language",
        "triton.language.math",
        "triton.language.extra.libdevice",
    )
    functions = [
        getattr(module, name)
        for module in map(importlib.import_module, modules)
        if hasattr(module, name)
    ]
    if name in NEWER and not functions:
        pytest.skip(f"this Triton has no tl.{name}")
    function = functions[0]
    signature = inspect.signature(getattr(function, "fn", function))
    theirs = [
        parameter
        for parameter in signature.parameters.values()
        if not parameter.name.startswith("_")
    ]
    if name == "tanh":  # of libdevice: (arg0)
        assert len(own) == len(theirs)
        return
    mine = {each.name: each for each in own}
    # Versions differ: what any of them takes is taken, in Triton's order.
    names = [each.name for each in theirs]
    assert [name for name in mine if name in names] == names
    for other in theirs:
        each = mine[other.name]
        assert other.kind in (each.kind, inspect.Parameter.KEYWORD_ONLY)
        default = getattr(other.default, "value", other.default)
        if other.name == "propagate_nan":
            default = int(default)
        if default is None and other.name == "out_dtype":
            default = "float32"  # Triton 3.9 chooses it later
        assert str(each.default) == str(default).replace("fp32", "float32")


UNKNOWN = ("sort", "associative_scan", "reduce", "rand", "histogram", "topk", "gather")


@pytest.mark.parametrize("name", UNKNOWN)
def test_functions_that_only_the_ptx_has_say_so(name):
    with pytest.raises(AttributeError, match=rf"tl\.{name} .*: kerneltrace\.trace\("):
        getattr(Language(), name)


@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
def test_a_function_that_triton_lacks_is_said_to_be_unknown_to_it():
    with pytest.raises(AttributeError, match=r"tl\.sorted is not known here, nor to"):
        _ = Language().sorted


@triton.jit
def by_keywords(x, out):
    at = tl.arange(0, 16)
    values = tl.reshape(tl.load(pointer=x + at), (4, 4))
    clamped = tl.clamp(values, min=-0.5, max=0.5)
    total = tl.sum(input=clamped, axis=1, keep_dims=True)
    positional = tl.sum(clamped, 1, True)
    most, place = tl.max(values, 1, True, keep_dims=True)
    shared = tl.maximum(most, float("nan"), propagate_nan=tl.PropagateNan.ALL)
    known = tl.where(shared == shared, 1.0, 0.0)
    result = tl.cast(input=total - positional, dtype=tl.float32) + most + place + known
    tl.atomic_add(out + at, val=tl.ravel(tl.broadcast_to(result, 4, 4)))


def test_keywords_and_positions_mean_what_they_mean_to_triton():
    x = random(16)
    out = np.zeros(16, np.float32)
    tiles.trace(by_keywords, 1, x, out)
    rows = x.reshape(4, 4)
    expected = np.repeat(rows.max(1) + rows.argmax(1), 4)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
