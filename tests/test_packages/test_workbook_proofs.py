"""How many of the workbook's kernels that have no race are proven to have none."""

import ast
import json

import numpy as np
import pytest
from numba import float32, types

from exercises.nb04 import numba_kernels
from exercises.nb18.kernels import load_rows, store_rows
from kerneltrace import python_function, tiles
from kerneltrace.proof.kernel import thread_proof
from kerneltrace.tiles import tl, triton
from labkit.core.paths import NOTEBOOKS
from labkit.lesson import exercise_files
from test_kerneltrace.tracing import made_in_a_cell

pytestmark = pytest.mark.slow

LEAST_SHARE = 0.6
TYPES = {
    "v": types.float32[::1],
    "m": types.float32[:, ::1],
    "c": types.float32[:, :, ::1],
    "w": types.float32[:, :, :, ::1],
    "i": types.int32[::1],
    "n": types.int64,
    "f": types.float32,
}
THREADS = {
    "leave_name": ("ii", 4),
    "double": ("vv", 64),
    "leave_name_in_strides": ("ii", 4),
    "relu": ("vv", 64),
    "adjust_kernel": ("vffv", 256),
    "histogram": ("ii", 256),
    "saxpy": ("fvv", 64),
    "leave_name_2d": ("mm", (4, 4)),
    "blur": ("mm", (16, 16)),
    "every": ("vvnn", 256),
    "add_bias": ("mvm", (32, 8)),
    "naive": ("mm", (32, 32)),
    "tiled": ("mm", (32, 32)),
    "padded": ("mm", (32, 32)),
    "all_atomic": ("vv", 256),
    "interleaved": ("vv", 256),
    "few_atomics": ("vv", 256),
    "naive_matmul": ("mmm", (16, 16)),
    "tiled_matmul": ("mmm", (16, 16)),
    "sum_shared": ("vv", 256),
    "sum_shuffle": ("vv", 256),
    "matmul_tiled": ("mmm", (16, 16)),
    "matmul_blocked": ("mmm", 256),
    "fused_block": ("cwvcc", (8, 8, 4)),
}
"""Kernels of notebooks 03 to 06: the kinds of their parameters, and a block."""


def functions(*notebooks):
    """The sources of functions under jit, by name, of notebooks and their solutions."""
    cells = []
    for number in notebooks:
        (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells += ["".join(cell["source"]) for cell in notebook["cells"][1:]]
        cells += exercise_files.solutions(number).values()
    sources = {}
    for cell in cells:
        if ".jit\ndef " not in cell:
            continue
        for node in ast.parse(cell).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                sources[node.name] = ast.unparse(node)
    return sources


def test_most_kernels_of_threads_are_proven():
    sources = functions("03", "04", "06")
    unproven = {}
    for name, (kinds, block) in THREADS.items():
        kernel = getattr(numba_kernels, name, None)
        if kernel is None:
            source = f"{sources[name]}\nk = {name}\n"
            kernel = made_in_a_cell(source, float32=float32)
        block = (*np.atleast_1d(block).tolist(), 1, 1)[:3]
        parameters = [TYPES[kind] for kind in kinds]
        proof = thread_proof(python_function(kernel), parameters, (4, 1, 1), block)
        if not proof.proven:
            unproven[name] = proof.reason
    assert len(unproven) <= (1 - LEAST_SHARE) * len(THREADS), unproven


def test_most_kernels_of_tiles_are_proven():
    names = {"tl": tl, "triton": triton, "np": np}
    names |= {"load_rows": load_rows, "store_rows": store_rows}
    sources = functions("18")
    for name in ("grouped", "merge"):
        names[name] = made_in_a_cell(f"{sources[name]}\nk = {name}\n", **names)
    line = np.ones(256, np.float32)
    square = np.ones((64, 64), np.float16)
    heads = np.ones((2, 40, 16), np.float16)
    launches = {
        "add": (2, [line, line.copy(), 0 * line, 256], {"BLOCK": 128}),
        "softmax": (4, [line, 0 * line, 64], {"BLOCK": 64}),
        "matmul": (
            16,
            [square, square.copy(), 0 * square, 64],
            {"GROUP": 0, "TILE": 16, "DEPTH": 16},
        ),
        "attention": (
            (3, 2),
            [heads, heads.copy(), heads.copy(), 0 * heads, 40, 0.25],
            {"WIDTH": 16, "TILE": 16},
        ),
    }
    reasons = {}
    for name, (grid, args, constants) in launches.items():
        kernel = made_in_a_cell(f"{sources[name]}\nk = {name}\n", **names)
        proof = tiles.trace(kernel, grid, *args, **constants).proof()
        if not proof.proven:
            reasons[name] = proof.reason
    assert len(reasons) <= (1 - LEAST_SHARE) * len(launches), reasons
