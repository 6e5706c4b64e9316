"""Puzzles: par is what the solutions cost, and a right answer above it passes and is
told what it wastes.
"""

# ruff: noqa: N803 - kernels of tiles write constants in capitals

import csv

import numpy as np
import pytest
from numba import cuda, float32

from exercises.nb23 import counting, figures, par, puzzles, scores, sketches
from exercises.nb23.check import CHECKS
from gpufacts import find
from kerneltrace import compile_numba, trace
from kerneltrace.tiles import tl, triton
from labkit.lesson import bests, exercise_files, notebook_files
from test_kerneltrace.tracing import not_on_macos
from tests.helpers import check

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]  # traces kernels

NUMBERS = list(puzzles.PUZZLES)


def test_there_are_twenty_and_each_has_its_check_sketch_and_par():
    assert [f"23.{n}" for n in range(1, 21)] == NUMBERS
    assert [n for n in exercise_files.numbers() if n[:2] == "23"] == NUMBERS
    for named in (CHECKS, sketches.SKETCHES, scores._TITLES):
        assert list(named) == NUMBERS
    for number in NUMBERS:
        assert list(par.par(number)) == list(puzzles.PUZZLES[number].counts)


def test_par_is_what_the_solutions_cost():
    with par.TABLE.open(encoding="utf-8") as file:
        kept = [(*row[:4], float(row[4])) for row in list(csv.reader(file))[1:]]
    assert kept == counting.counted_anew(), (
        "python -m exercises.nb23.counting counts anew"
    )


LEAST_BYTES = {  # that the large launch has to move: each number once, in and out
    **dict.fromkeys(("23.1", "23.3", "23.6", "23.8", "23.12", "23.15"), 8 * 2**24),
    "23.2": 12 * 2**24,
    "23.4": 8 * 2**26,
    "23.5": 4 * 2**26,
    "23.7": 12 * 2**24,
    "23.9": 5 * 2**26,
    "23.10": 8 * 2**26,
    "23.11": 8 * 2**24,
    "23.13": 4 * 2**24,
    "23.16": 4 * 2**18 * 100,
    "23.17": 8 * 2**18 * 100,
    "23.19": 8 * 2**18 * 100,
}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_solution_is_at_par_and_no_faster_than_a_gpu_can_be(number):
    outcome = check(number, counting.solved(number))
    assert outcome.state == "passed", outcome
    assert bests.compared(outcome.details["costs"], par.par(number)) == "par"
    shown = scores.score(outcome, "T4")
    assert str(shown).splitlines()[1].startswith("Par. Calculated for ")
    assert scores.score(outcome, "T4").standing == shown.standing
    assert len(bests.history(number)) == 1, "the same answer again is no new best"
    _, grid, longer = puzzles.PUZZLES[number].large
    for gpu in ("T4", "H100 SXM5 80GB"):
        least_s = LEAST_BYTES.get(number, 0) / find(gpu).bandwidth_bytes_per_s
        trace = outcome.details["trace"]
        assert trace.estimate(gpu, grid=grid, longer=longer).seconds > least_s


# -- right answers above par, and one below


@cuda.jit
def rows_by_lanes(x, out):
    row, column = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = -x[row, column]


@cuda.jit
def five_reads(x, out):
    i = cuda.grid(1)
    if i < x.size:
        total = float32(0)
        for j in range(max(i - 2, 0), min(i + 3, x.size)):
            total += x[j]
        out[i] = total


@cuda.jit
def without_padding(x, out):
    tile = cuda.shared.array((32, 32), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + j < x.shape[0] and column + i < x.shape[1]:
        tile[j, i] = x[row + j, column + i]
    cuda.syncthreads()
    if column + j < out.shape[0] and row + i < out.shape[1]:
        out[column + j, row + i] = tile[i, j]


@cuda.jit
def halving(a, b, out):
    sums = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    sums[t] = a[i] * b[i] if i < a.size else float32(0)
    half = 64
    while half:
        cuda.syncthreads()
        if t < half:
            sums[t] += sums[t + half]
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = sums[0]


@triton.jit
def loads_twice(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    top = tl.max(tl.load(x + at, mask=column < columns, other=-float("inf")), 0)
    powers = tl.exp(tl.load(x + at, mask=column < columns, other=-float("inf")) - top)
    tl.store(out + at, powers / tl.sum(powers, 0), mask=column < columns)


@pytest.mark.parametrize(
    ("number", "answer", "words"),
    [
        (
            "23.4",
            rows_by_lanes,
            "Right. Yours on 64 x 96 numbers: 12,288 sectors, par 1,536; 384 steps, par 384: the writes of out"
            " waste 5,376 and the reads of x waste 5,376.",
        ),
        ("23.8", five_reads, "the reads of x waste"),
        (
            "23.10",
            without_padding,
            "par 512: a bank of shared memory has to give up to 32 words at once.",
        ),
        ("23.11", halving, "1,000 pairs: 56 barriers, par 8"),
        ("23.17", loads_twice, "the reads of x waste 12,800"),
    ],
)
def test_a_right_answer_above_par_passes_and_is_told_what_it_wastes(
    number, answer, words
):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
    assert words in outcome.message
    assert scores.score(outcome, "T4").standing.startswith("Above par.")


@cuda.jit
def double_by_two_reads(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


@not_on_macos
def test_an_access_counts_as_it_is_written_though_the_compiler_may_leave_it_out():
    outcome = check("23.3", double_by_two_reads)
    assert "375 sectors, par 250" in outcome.message
    assert "the reads of x waste 125." in outcome.message
    x = np.ones(1000, np.float32)
    out = np.zeros(1000, np.float32)
    compiled = compile_numba(double_by_two_reads, (x, out), compute_capability=(8, 0))
    assert trace(compiled, 4, 256, x, out).count("x", kind="load").sectors == 125


def test_below_par_is_a_new_par(monkeypatch):
    outcome = check("23.1", counting.solved("23.1"))
    monkeypatch.setattr(scores, "par", lambda number: {"sectors": 257, "steps": 64})
    assert scores.score(outcome, "T4").standing.startswith("A new par: send us")


@triton.jit
def one_program_for_all(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    key = tl.arange(0, 128)[:, None]
    wide = tl.arange(0, WIDTH)[None, :]
    here = (key < tokens) & (tl.program_id(0) == 0)
    queries = tl.load(q + key * WIDTH + wide, mask=here, other=0.0)
    keys = tl.load(k + key * WIDTH + wide, mask=here, other=0.0)
    values = tl.load(v + key * WIDTH + wide, mask=here, other=0.0)
    scores = tl.dot(queries, tl.trans(keys)) * scale
    scores = tl.where(tl.arange(0, 128)[None, :] < tokens, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    mixed = tl.dot(weights.to(tl.float16), values) / tl.sum(weights, 1)[:, None]
    tl.store(out + key * WIDTH + wide, mixed, mask=here)


def test_a_program_that_does_the_others_work_is_not_below_par():
    outcome = check("23.20", one_program_for_all)
    assert outcome.state == "not yet"
    assert "Each program has a tile of its own" in outcome.message


KEPT = np.zeros(1024, np.float32)


@cuda.jit
def kept_elsewhere(x, out):
    i = cuda.grid(1)
    out[i] = KEPT[i]


def test_what_isn_t_the_kernel_s_own_work_passes_nothing():
    for answer, words in (
        (kept_elsewhere, "an array of the notebook"),
        (lambda x, out: x + 10, "needs @cuda.jit"),
        (np.add, "Expected a kernel"),
        (None, "Expected a kernel"),
    ):
        outcome = check("23.1", answer)
        assert outcome.state == "not yet"
        assert words in outcome.message


def test_an_unknown_gpu_is_named_and_the_best_is_kept_all_the_same():
    outcome = check("23.1", counting.solved("23.1"))
    assert "H1000" in scores.score(outcome, "H1000").standing
    assert bests.best("23.1") is not None


def test_an_open_puzzle_shows_what_is_open_and_keeps_nothing():
    outcome = check("23.1", ...)
    shown = scores.score(outcome, "T4")
    assert "todo" in str(shown)
    assert bests.best("23.1") is None
    page = shown.data()[0]["text/html"]
    assert page.index("<img ") < page.index("23.1 todo")
    assert "0 of 20 are solved" in str(scores.board())


@pytest.mark.parametrize("number", ["23.1", "23.5", "23.9", "23.20"])
def test_a_sketch_says_in_words_what_it_shows(number):
    picture = figures.puzzle(number)
    assert " reads " in picture.alt
    assert " and writes " in picture.alt
    assert picture.alt.startswith(str(picture))
    shown = {text.get_text() for text in picture.ax.texts}
    assert set(sketches.SKETCHES[number].arrays) <= shown


def test_a_puzzle_is_a_short_statement_a_blank_and_a_check():
    (path,) = (p for p in notebook_files.paths() if p.name[:2] == "23")
    cells = notebook_files.read(path)["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    for number in NUMBERS:
        (at,) = (i for i, text in enumerate(texts) if f"**Exercise {number}.**" in text)
        statement = texts[at].partition("**")[2]
        assert len(statement.split()) <= 60, number
        assert notebook_files.stub_number(texts[at + 1]) == number
        assert texts[at + 2].startswith(f'scores.score(lab.check("{number}", ')
