"""Correct kernels of tiles leave the right results without a finding,
and are counted.
"""

import contextlib
import importlib.util
import os
import re
import statistics
import subprocess
import sys
import warnings

import numpy as np
import pytest

from kerneltrace import tiles
from kerneltrace.errors import KernelError
from kerneltrace.tiles.traffic import SPAN
from test_kerneltrace import published_tiles
from test_kerneltrace.places import ROOT, validation
from test_kerneltrace.tile_kernels import add, launches, random
from test_kerneltrace.tile_mistakes import PLANTED, launch_of, line_of

pytestmark = pytest.mark.slow  # runs sixty kernels
LAUNCHES = launches()


def traced(name):
    launch = LAUNCHES[name]()
    return launch, tiles.trace(
        launch.kernel, launch.grid, *launch.args, **launch.constants
    )


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_correct_kernel_leaves_the_right_result_without_a_finding(name):
    launch, trace = traced(name)
    for position, expected in launch.expected.items():
        np.testing.assert_allclose(
            launch.args[position],
            expected,
            rtol=launch.tolerance,
            atol=launch.tolerance,
        )
    assert trace.ok, trace
    assert trace.notes == (), trace


TRITON = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed"
)
# the interpreter takes the whole float32, tensor cores 10 bits of its fraction
OTHERWISE = {"matmul of float32": 2e-2}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The results of Triton's own interpreter, which runs in a process of its own."""
    path = tmp_path_factory.mktemp("interpreted") / "results.npz"
    command = [sys.executable, "-m", "test_kerneltrace.tile_kernels", str(path)]
    subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=ROOT / "tests",
        check=True,
    )
    return np.load(path)


@TRITON
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_results_are_those_of_triton_s_interpreter(name, interpreted):
    launch, _ = traced(name)
    close = OTHERWISE.get(name, max(launch.tolerance / 10, 1e-6))
    for position in launch.expected:
        np.testing.assert_allclose(
            launch.args[position],
            interpreted[f"{name}/{position}"],
            rtol=close,
            atol=close,
        )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_in_its_line(name):
    kernel, grid, args, constants = launch_of(name)
    trace = tiles.trace(kernel, grid, *args, **constants)
    _, kind, words, *_ = PLANTED[name]
    findings = [
        each
        for each in trace.findings
        if each.kind == kind and each.line == line_of(name)
    ]
    assert findings, trace
    assert re.search(words, findings[0].words), findings[0]


WARNED = {"and_of_masks"}  # Triton compiles it with a warning that it won't for long


@TRITON
@pytest.mark.parametrize("name", [*PLANTED, *LAUNCHES])
def test_what_is_refused_is_what_triton_refuses(name):
    if name in PLANTED:
        kernel, _, args, constants = launch_of(name)
    else:
        launch = LAUNCHES[name]()
        kernel = launch.kernel
        args = launch.args
        constants = launch.constants
    refused = name in PLANTED and PLANTED[name][1] == "refused" and name not in WARNED
    with (
        warnings.catch_warnings(action="ignore"),
        (
            pytest.raises(KernelError, match="Triton can't compile")
            if refused
            else contextlib.nullcontext()
        ),
    ):
        tiles.compile(kernel, *args, **constants)


@pytest.mark.parametrize("n", [0, 1, 1023])
def test_sizes_that_fill_no_tile(n):
    x = random(n)
    out = np.zeros(n, np.float32)
    trace = tiles.trace(add, 2, x, x, out, n, BLOCK=512)
    assert trace.ok, trace
    np.testing.assert_array_equal(out, x + x)


def rows_by_cost():
    """Published times: sums of vectors always, a matmul and an attention with
    `--complete`, others nightly.
    """
    kernels = []
    for row in published_tiles.rows():
        kernel = row["kernel"]
        marks = []
        if kernel != "vector add":
            marks.append(
                pytest.mark.nightly if kernel in kernels else pytest.mark.complete
            )
        kernels.append(kernel)
        yield pytest.param(row, marks=marks, id=f"{kernel} {row['m']:g}")


@pytest.mark.parametrize("row", list(rows_by_cost()))
def test_the_table_of_published_times_holds_what_is_calculated(row):
    estimate = published_tiles.estimated(row)
    assert 1e3 * estimate.seconds == pytest.approx(row["calculated_ms"], rel=1e-3)
    low, high = estimate.interval_s
    assert low <= published_tiles.published_s(row) <= high


def test_the_span_of_an_estimate_is_that_of_the_published_times():
    shares = [
        1e3 * published_tiles.published_s(row) / row["calculated_ms"]
        for row in published_tiles.rows()
    ]
    assert len(shares) >= 15
    low, high = SPAN
    assert low <= min(shares) < low + 0.01
    assert high - 0.01 < max(shares) <= high


def test_the_pages_say_how_many_kernels_and_how_far_published_times_are_off():
    said = validation()
    shares = [
        1e3 * published_tiles.published_s(row) / row["calculated_ms"]
        for row in published_tiles.rows()
    ]
    assert f"{len(PLANTED)} kernels of tiles with a planted mistake each" in said
    assert f"and {len(LAUNCHES)} correct ones, in which nothing may be found" in said
    assert f"are {min(shares):.2f} to {max(shares):.2f} times those calculated" in said
    assert f"{len(shares)} published times of Triton kernels" in said
    assert f"with a median of {statistics.median(shares):.2f}" in said


def test_the_example_of_the_page_shows_its_mistake(tmp_path):
    text = (ROOT / "docs/tiles.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", text)
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, tmp_path / "example.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[undefined] line 13: program 0 stores to out" in run.stdout
    assert "softmax on A100 SXM4 80GB: " in run.stdout
