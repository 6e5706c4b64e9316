"""Reviews of kernels that each waste one thing, and of kernels as textbooks write them, in Python and in CUDA C++."""

import sys

import pytest

from kerneltrace import trace
from tests.test_kerneltrace.reviewed import good, later, wasteful, wasteful_cuda

pytestmark = [
    pytest.mark.slow,  # traces sixty kernels, and compiles half of them with NVRTC
    pytest.mark.skipif(sys.platform == "darwin", reason="NVIDIA has no compiler for macOS"),
]


def named(kernels):
    return [pytest.param(one, id=f"{one.kind} {one.name}".strip()) for one in kernels]


@pytest.mark.parametrize("planted", named([*wasteful.PYTHON, *wasteful_cuda.CUDA, *later.WASTEFUL]))
def test_a_waste_is_remarked_in_its_line(planted):
    done = trace(planted.kernel, planted.grid, planted.block, *planted.args())
    assert done.ok
    remarks = done.review(**{"device": "A100 SXM4 80GB", **dict(planted.options)}).of(planted.kind)
    assert {remark.line for remark in remarks} & set(planted.lines())


@pytest.mark.parametrize("device", ["T4", "A100 SXM4 80GB", "H100 SXM5 80GB"])
@pytest.mark.parametrize("planted", named([*good.GOOD, *later.GOOD]))
def test_there_is_nothing_to_remark_on_a_good_kernel(planted, device):
    done = trace(planted.kernel, planted.grid, planted.block, *planted.args())
    assert done.ok
    assert done.review(device, **dict(planted.options)).remarks == ()
