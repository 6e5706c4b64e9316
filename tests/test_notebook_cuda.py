"""All CUDA C++ in the notebooks and their solutions compiles for each generation of
GPUs, on a machine without one.
"""

import ast
import re
import sys

import numpy as np
import pytest

from kerneltrace import compile_cuda, trace
from labkit.core.paths import EXERCISES
from tests.helpers import code_cells, notebook_paths

COARSENED = EXERCISES / "nb05" / "matmul_coarsened.cu"
CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))

NO_WHEELS = pytest.mark.skipif(
    sys.platform == "darwin", reason="NVIDIA has no compiler for macOS"
)
pytestmark = [pytest.mark.slow, NO_WHEELS]


def trees():
    """(where, syntax tree) of each code cell with CUDA C++ in it, and of each file of
    solutions.
    """
    for path in notebook_paths():
        for number, source in enumerate(code_cells(path)):
            if "_cuda" in source or "__global__" in source:
                yield (
                    f"{path.stem}, code cell {number}",
                    ast.parse(re.sub(r"(?m)^(\s*)[!%].*$", r"\1pass", source)),
                )
    for path in sorted(EXERCISES.glob("nb*/solution.py")):
        yield path.parent.name, ast.parse(path.read_text(encoding="utf-8"))


def sources(tree):
    """{name: text} of the string literals assigned to a name that ends in _cuda."""
    return {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.endswith("_cuda")
    }


FOUND = [
    *(
        pytest.param(text, id=f"{where}: {name}")
        for where, tree in trees()
        for name, text in sources(tree).items()
    ),
    # one that its notebook launches, and only the test on a pretend GPU would run
    pytest.param(COARSENED.read_text(encoding="utf-8"), id=COARSENED.name),
]


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("text", FOUND)
def test_it_compiles(text, capability):
    assert compile_cuda(text, compute_capability=capability).kernels


def text_of(name):
    return next(param.values[0] for param in FOUND if param.id.endswith(f": {name}"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("frame_cuda", lambda x: x),
        (
            "gelu_cuda",
            lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
        ),
    ],
)
def test_its_elementwise_kernels_compute_what_numpy_computes(name, wanted):
    x = np.linspace(-4, 4, 300, dtype=np.float32)
    numbers = (1.0, 2.0, 3.0) if name == "frame_cuda" else ()
    done = trace(text_of(name), 3, 128, x, *numbers, y := np.zeros_like(x), 300)
    assert done.ok, done
    np.testing.assert_allclose(y, wanted(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize(
    "options", [(), ("-DSTEPS=8",), ("-DBOUNDS=__launch_bounds__(256,4)",)]
)
def test_its_matrix_product_computes_what_numpy_computes(options):
    a, b = np.random.default_rng(5).random((2, 128, 128), np.float32)
    done = trace(
        COARSENED.read_text(encoding="utf-8"),
        (1, 2),
        (16, 16),
        a,
        b,
        c := np.zeros_like(a),
        128,
        options=options,
    )
    assert done.ok, done
    assert done.flop == 2 * 128**3
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_no_kernel_is_written_where_this_test_does_not_find_it():
    for where, tree in trees():
        known = set(sources(tree).values())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and "__global__" in node.value
            ):
                assert node.value in known, (
                    f"{where}: assign the source to a name that ends in _cuda"
                )
