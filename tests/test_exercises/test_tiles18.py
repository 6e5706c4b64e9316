"""Notebook 18: its figures, what compilers made of its kernels, and unusual answers
that are right.
"""

# ruff: noqa: N803 - kernels write constants in capitals

import csv
import importlib.util
from types import SimpleNamespace

import pytest
import torch

from data.make import tile_code
from exercises.nb18 import compiled, figures
from exercises.nb18.kernels import load_rows, store_rows
from exercises.nb18.wrong_answers import merge
from kerneltrace import tiles
from kerneltrace.tiles import tl, triton
from labkit.measure.machine import Gpu
from labkit.plot import to_png
from tests.helpers import check

with_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed here"
)
ADD = compiled.Code(
    "add", 90, {"threads": 128, "numbers a load": 4, "ld.global": 4}, "recorded"
)


def test_thread_0_has_four_neighbours_and_again_four_after_all_threads_had_some():
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
        "specialised"
    }
    assert "TMA (cp.async.bulk)" not in {
        row["what"] for row in rows if row["name"] == "pointers"
    }
    assert {row["capability"] for row in rows if row["name"] == "cutile"} == set(own)


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
