import functools
import importlib

import pytest

from labkit.measure import bench
from labkit.measure.step_overhead import StepOverhead, step_overhead


def test_the_line_through_two_steps_is_split_into_overhead_and_items():
    found = StepOverhead(8, 64, 3e-3 + 8 * 1e-4, 3e-3 + 64 * 1e-4)
    assert found.overhead_s == pytest.approx(3e-3)
    assert found.item_s == pytest.approx(1e-4)
    assert found.even_at == pytest.approx(30)
    assert found.share(30) == pytest.approx(0.5)
    assert (
        str(found)
        == "A step of 8 takes 3.80 ms, one of 64 9.40 ms: 3.00 ms of overhead, 79% of"
        " the smaller step; the work of 30.0 items takes as long"
    )


def test_steps_of_both_sizes_are_measured(monkeypatch):
    sizes = []
    now_s = [0.0]
    timed = functools.partial(bench.compare, clock=lambda: now_s[0])
    # the function has the same name
    module = importlib.import_module("labkit.measure.step_overhead")
    monkeypatch.setattr(module, "compare", timed)

    def step_of(n):
        sizes.append(n)
        return lambda: now_s.append(now_s.pop() + 1e-3 * (4 + n))

    found = step_overhead(step_of, 1, 11, budget_s=0.05)
    assert sizes == [1, 11]
    assert (found.small_s, found.large_s) == pytest.approx((5e-3, 15e-3))
