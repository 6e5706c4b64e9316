"""Reviews of kernels that each waste one thing, and of kernels as textbooks write them,
in Python and in CUDA C++.
"""

import pytest

from kerneltrace import trace
from test_kerneltrace.reviewed import good, wasteful
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels


def named(kernels):
    return [
        pytest.param(each, id=f"{each.kind} {each.name}".strip()) for each in kernels
    ]


@pytest.mark.parametrize("planted", named(wasteful.WASTEFUL))
def test_a_waste_is_remarked_in_its_line(monkeypatch, planted):
    # some of these small launches hide it
    monkeypatch.setattr("kerneltrace.judge.review.LEAST", -1.0)
    traced = trace(planted.kernel, planted.grid, planted.block, *planted.args())
    assert traced.ok
    remarks = traced.review(**{"device": "A100 SXM4 80GB", **dict(planted.options)}).of(
        planted.kind
    )
    assert {remark.line for remark in remarks} & set(planted.lines())


@pytest.mark.parametrize("planted", named(good.GOOD))
def test_there_is_nothing_to_remark_on_a_good_kernel(planted):
    traced = trace(planted.kernel, planted.grid, planted.block, *planted.args())
    assert traced.ok
    for device in ("T4", "A100 SXM4 80GB", "H100 SXM5 80GB"):
        assert traced.review(device, **dict(planted.options)).remarks == ()
