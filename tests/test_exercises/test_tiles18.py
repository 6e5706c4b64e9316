"""Notebook 18: its figures, what compilers made of its kernels, and unusual answers
that are right.
"""

# ruff: noqa: N803 - kernels write constants in capitals

import csv
import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data.make import tile_code
from exercises.nb18 import compiled, evidence, experts, figures, races
from exercises.nb18.kernels import load_rows, store_rows
from exercises.nb18.wrong_answers import merge, no_tile_is_skipped
from kerneltrace import tiles
from kerneltrace.tiles import tl, triton
from labkit.measure.bench import Comparison, Timing
from labkit.measure.machine import Gpu
from labkit.plot import to_png
from tests.helpers import check

with_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed here"
)
ADD = compiled.Code(
    "add", 90, {"threads": 128, "numbers a load": 4, "ld.global": 4}, "recorded"
)


def test_thread_0_has_four_neighbors_and_again_four_after_all_threads_had_some():
    picture = figures.tile_shares(1024, ADD)
    assert (
        "128 threads: thread 0 loads 0 to 3 and 512 to 515, with an instruction for"
        " each 4" in picture.sentence
    )
    cells = [
        patch
        for patch in picture.ax.patches
        if patch.get_facecolor() == picture.ax.patches[0].get_facecolor()
    ]
    assert [cell.get_xy() for cell in cells] == [
        (i, row) for row in (0, 4) for i in range(4)
    ]
    assert to_png(picture.ax).startswith(b"\x89PNG")


def test_the_first_tiles_of_an_order_and_the_stripes_that_they_need():
    orders = {
        "rows": lambda i, rows, columns: (i // columns, i % columns),
        "columns": lambda i, rows, _: (i % rows, 0),
    }
    picture = figures.first_tiles(orders, rows=4, columns=4, at_once=4)
    assert (
        "rows: 1 of a and 4 of b, 5 in all; columns: 4 of a and 1 of b, 5 in all."
        in picture.sentence
    )
    assert to_png(picture.ax).startswith(b"\x89PNG")


def test_what_was_recorded_has_each_generations_own_instructions():
    with compiled.RECORDED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    own = {"80": "mma.sync", "90": "wgmma", "100": "tcgen05"}
    for row in rows:
        if row["what"] in own.values():
            assert own[row["capability"]] == row["what"]
    assert {row["name"] for row in rows if row["what"] == "setmaxnreg"} == {
        "specialized"
    }
    assert "TMA (cp.async.bulk)" not in {
        row["what"] for row in rows if row["name"] == "pointers"
    }


@pytest.mark.parametrize(
    ("capability", "dots", "expected"),
    [((7, 5), True, False), ((7, 5), False, True), ((8, 0), True, True)],
)
def test_kernels_are_launched_where_triton_has_what_they_need(
    monkeypatch, capability, dots, expected
):
    gpu = Gpu("GPU", capability, 2**34)
    monkeypatch.setattr(compiled, "machine", lambda: SimpleNamespace(gpus=(gpu,)))
    triton = SimpleNamespace(runtime=None)
    monkeypatch.setattr(compiled.tiles, "triton", triton, raising=False)
    assert compiled.launches(dots=dots) is expected
    monkeypatch.setattr(compiled, "machine", lambda: SimpleNamespace(gpus=()))
    assert not compiled.launches(dots=False)


def test_without_triton_it_says_what_was_recorded(monkeypatch):
    monkeypatch.setattr(compiled, "with_triton", lambda: False)
    code = compiled.code("add", None)
    assert code.vector == 4
    assert "recorded, by Triton 3." in str(code)
    table = compiled.table(compiled.generations(None, None))
    assert table.headings[1] == "pointers 8.0"
    assert table.rows[0][:2] == ("mma.sync", "128")
    with pytest.raises(compiled.KernelError, match="'add' wasn't recorded for 8"):
        compiled.code("add", None, capability=80)


def test_tl_dot_is_scalar_arithmetic_for_a_t4_and_the_table_says_so(monkeypatch):
    monkeypatch.setattr(compiled, "with_triton", lambda: False)
    t4, a100 = compiled.dots(None)
    assert t4.instructions["fma"] == 64**3 // 128  # a thread's part, of 128
    assert "mma.sync" not in t4.instructions
    assert a100.instructions["mma.sync"] > 0
    assert "tl.dot for 7.5: 2048 fma" in str(t4)


IN_ONE_CALL = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    ("dropout", "words"),
    [(0.0, "its flash kernel for CPUs"), (0.1, "computes in steps")],
)
def test_the_kernel_that_attention_took_is_named(dropout, words):
    """With dropout none of PyTorch's kernels for CPUs is taken."""
    q, k, v = torch.rand(3, 1, 2, 64, 32)
    options = {"dropout_p": dropout, "is_causal": True}
    named = races.attention_kernel(lambda: IN_ONE_CALL(q, k, v, **options))
    assert words in named
    assert torch.__version__ in named


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("cudnn_attention", "takes cuDNN's kernel"),
        ("flash_attention", "takes FlashAttention-2"),
        ("efficient_attention", "takes its memory-efficient kernel"),
    ],
)
def test_each_gpu_s_kernel_has_an_operator_of_its_own(monkeypatch, operator, words):
    name = f"_scaled_dot_product_{operator}"
    assert hasattr(torch.ops.aten, name)
    monkeypatch.setitem(races._KERNELS, "aten::add", races._KERNELS[f"aten::{name}"])
    assert words in races.attention_kernel(lambda: torch.ones(2) + 1)


def attention_trace():
    @triton.jit
    def product(x, out, TILE: tl.constexpr):
        at = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
        tile = tl.load(x + at)
        tl.store(out + at, tl.dot(tile, tile))

    x = torch.rand(64, 64).half()
    return tiles.trace(product, 1, x, torch.zeros(64, 64), TILE=64)


@pytest.mark.parametrize(
    ("gpus", "name"),
    [((), "H100 SXM5 80GB"), ((Gpu("Tesla T4", (7, 5), 2**34),), "T4")],
)
def test_what_cant_be_launched_is_calculated_for_the_gpu_at_hand(
    monkeypatch, gpus, name
):
    """1,024 heads fill either GPU; a T4 has scalar arithmetic for them."""
    monkeypatch.setattr(races, "machine", lambda: SimpleNamespace(gpus=gpus))
    estimate = races.estimate(attention_trace(), 64, heads=1024)
    ((device, seconds),) = races.calculated(estimate).items()
    assert name in device
    assert seconds == estimate(device).seconds
    assumed = " ".join(estimate(device).assumed)
    is_scalar = "tl.dot is scalar arithmetic" in assumed
    assert is_scalar == bool(gpus)
    assert races.calculated(None) == {}


def in_steps(q, k, v):
    return (q @ k.mT / 8).softmax(-1) @ v


WAYS = {"in steps": in_steps, "in one call": IN_ONE_CALL}


def race_of(call_s, steps_s):
    """A race of readings that differ by 2 % either way."""
    noise = (0.98, 0.99, 1.0, 1.01, 1.02)
    timings = [
        Timing(name, seconds, tuple(seconds * each for each in noise))
        for name, seconds in (("in one call", call_s), ("in steps", steps_s))
    ]
    return Comparison(tuple(timings), ())


@pytest.mark.parametrize(
    ("call_s", "verdict"),
    [(0.2, False), (0.6, "not shown"), (0.9, "not shown"), (2.0, "not shown")],
)
def test_flop_dont_explain_a_gain_that_is_larger_than_they_are_fewer(call_s, verdict):
    """Of 8 x 8 tiles a mask leaves 36, so FLOP are worth 1.78 x at most."""
    judged = evidence.fewer_flop(race_of(call_s, 1.0), WAYS, None)
    assert judged["evidence"] == verdict
    assert "1.00 x the FLOP without a mask, 0.56 x with it" in judged["because"][0]


def test_the_flop_of_a_readers_kernel_are_counted_and_drawn():
    picture = figures.keys_by_program(no_tile_is_skipped)
    assert "100% of the FLOP" in picture.ax.get_title(loc="left")
    assert evidence._share(no_tile_is_skipped) == 1
    assert evidence._share(None) == 36 / 64


def test_one_call_has_the_result_of_the_steps_and_another_has_not():
    memory = {"in steps": {64: 1.0, 256: 16.0}, "in one call": {64: 1.0, 256: 4.0}}
    judged = evidence.without_scores(WAYS, memory)
    assert judged["evidence"]
    assert "4.0 x the memory for 4 x the tokens" in judged["because"]
    other = WAYS | {"in one call": lambda q, k, v: IN_ONE_CALL(q, k, v, is_causal=True)}
    assert not evidence.without_scores(other, memory)["evidence"]
    memory["in one call"][256] = 16.0
    assert not evidence.without_scores(WAYS, memory)["evidence"]


def test_masked_ways_agree():
    q, k, v = torch.rand(3, 1, 2, 40, 16)
    call, steps = (way() for way in evidence.masked_ways(q, k, v).values())
    assert torch.allclose(call, steps, atol=1e-5)


def test_a_gpu_of_unknown_rates_has_no_calculated_time(monkeypatch):
    gpus = (Gpu("Something New", (7, 5), 2**34),)
    monkeypatch.setattr(races, "machine", lambda: SimpleNamespace(gpus=gpus))
    assert races.calculated(races.estimate(attention_trace(), 64, heads=1)) == {}


@pytest.mark.parametrize("rows", [(32, 32), (21, 0, 16, 33), (0, 3), (0, 7, 40, 0)])
def test_one_launch_multiplies_each_row_by_its_experts_matrix(rows):
    starts = np.cumsum([0, *rows]).astype(np.int32)
    draw = np.random.default_rng(0)
    x = draw.random((sum(rows), 32), np.float32)
    w = draw.random((len(rows), 32, 48), np.float32)
    out = np.full((sum(rows), 48), np.nan, np.float32)
    kernel = tile_code.kernels()["for_experts"]
    constants = {"EXPERTS": len(rows), "TILE": 16}
    trace = tiles.trace(kernel, 3, x, w, out, starts, 32, 48, **constants)
    assert trace.ok, trace
    ends = zip(starts[:-1], starts[1:], w, strict=True)
    right = np.concatenate([x[first:end] @ matrix for first, end, matrix in ends])
    np.testing.assert_allclose(out, right, rtol=1e-3)  # products are TF32


def test_pytorch_s_ways_for_experts_agree():
    x, w, starts = experts.task(100, 7, 16)
    assert starts[-1] == 100
    each, padded, grouped = (way() for way in experts.ways(x, w, starts).values())
    expected = torch.cat(each)
    assert torch.allclose(grouped, expected, atol=1e-4)
    rows = starts.diff().tolist()
    parts = [part[:n] for part, n in zip(padded, rows, strict=True)]
    assert torch.allclose(torch.cat(parts), expected, atol=1e-4)


@with_triton
@pytest.mark.slow
def test_the_compiler_makes_the_same_families_as_were_recorded():
    """Counts differ from version to version; which instructions a generation has does
    not.
    """
    made = {
        (one.name, one.capability): set(one.instructions) for one in tile_code.codes()
    }
    monitored = ("mma.sync", "wgmma", "tcgen05", "TMA (cp.async.bulk)", "setmaxnreg")
    with compiled.RECORDED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["what"] in monitored:
                assert row["what"] in made[row["name"], int(row["capability"])], row


@with_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_triton_compiles_the_solutions_and_their_notebooks_kernels(capability):
    x = torch.empty(16, dtype=torch.float16)
    names = tile_code.kernels()
    launches = {
        "softmax": ((x, x, 1000), {"BLOCK": 1024}),
        "matmul": (
            (x, x, x, 4096),
            {"GROUP": 8, "TILE": 128, "DEPTH": 64, "num_warps": 8},
        ),
        "attention": ((x, x, x, x, 1000, 0.125), {"WIDTH": 64, "TILE": 64}),
        "for_experts": (
            (x, x, x, x.int(), 1024, 1024),
            {"EXPERTS": 16, "TILE": 64},
        ),
    }
    for name, (args, constants) in launches.items():
        code = tiles.compile(names[name], *args, capability=capability, **constants)
        assert code.spills == 0, name


@triton.jit
def by_a_row_of_two_axes(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * columns + tl.arange(0, BLOCK)[None, :]
    inside = tl.arange(0, BLOCK)[None, :] < columns
    row = tl.where(inside, tl.load(x + at, mask=inside, other=0.0), -float("inf"))
    row = tl.exp(row - tl.max(row, 1)[:, None])
    tl.store(out + at, row / tl.sum(row, 1)[:, None], inside)


@triton.jit
def powers_of_two(x, out, columns, BLOCK: tl.constexpr):
    """As on a GPU, which has an instruction for powers of two alone."""
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=-float("inf")) * 1.44269504  # log2(e)
    row = tl.exp2(row - tl.max(row, 0))
    tl.store(out + at, row * (1 / tl.sum(row, 0)), mask=inside)


@triton.jit
def less_the_log_of_the_sum(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=-1e30)
    top = tl.max(row, 0)
    tl.store(out + at, tl.exp(row - top - tl.log(tl.sum(tl.exp(row - top)))), inside)


@triton.jit
def both_scaled(top, total, mixed, scores, values):
    """The tile gets a softmax of its own top, and is scaled like what was before."""
    newest = tl.max(scores, axis=1)
    higher = tl.maximum(top, newest)
    weights = tl.exp2((scores - tl.maximum(newest, -1e30)[:, None]) * 1.44269504)
    old, new = tl.exp(top - higher), tl.exp(newest - higher)
    part = tl.dot(weights.to(values.dtype), values) * new[:, None]
    total = total * old + tl.sum(weights, axis=1) * new
    return higher, total, mixed * old[:, None] + part


@triton.jit
def backwards(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """From the diagonal to key 0, with a mask that is added."""
    start = tl.program_id(0) * TILE
    query = start + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top = tl.full((TILE,), -float("inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    while start >= 0:
        key = start + tl.arange(0, TILE)
        scores = scale * tl.dot(mine, load_rows(k, key, tokens, WIDTH).T)
        scores += tl.where(key[None, :] <= query[:, None], 0.0, -1.0e6)
        top, total, mixed = merge(
            top, total, mixed, scores, load_rows(v, key, tokens, WIDTH)
        )
        start -= TILE
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def diagonal_apart(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    """Tiles before the diagonal need no mask, and the one on it is merged last."""
    first = tl.program_id(0) * TILE
    query = first + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top = tl.full((TILE,), -float("inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, first, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, load_rows(k, key, tokens, WIDTH).T) * scale
        top, total, mixed = merge(
            top, total, mixed, scores, load_rows(v, key, tokens, WIDTH)
        )
    scores = tl.dot(mine, load_rows(k, query, tokens, WIDTH).T) * scale
    scores = tl.where(query[:, None] >= query[None, :], scores, float("-inf"))
    top, total, mixed = merge(
        top, total, mixed, scores, load_rows(v, query, tokens, WIDTH)
    )
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("18.2", by_a_row_of_two_axes),
        ("18.2", powers_of_two),
        ("18.2", less_the_log_of_the_sum),
        ("18.4", both_scaled),
        ("18.5", diagonal_apart),
        ("18.5", backwards),
    ],
)
def test_other_ways_that_are_right_pass(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome


def test_attention_waits_for_merge():
    @triton.jit
    def attention(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
        merge(q, k, v, out, tokens)

    @triton.jit
    def merge(top, total, mixed, scores, values): ...

    attention.fn.__globals__["merge"], before = merge, attention.fn.__globals__["merge"]
    try:
        assert "18.4 comes first" in check("18.5", attention).message
    finally:
        attention.fn.__globals__["merge"] = before
