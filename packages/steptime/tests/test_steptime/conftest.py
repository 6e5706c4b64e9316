"""Virtual time, on which whatever a test measures is measured."""

import pytest
from torch._dynamo.utils import counters

from steptime.measure.machine import one_thread
from steptime.measure.operator_hooks import EachOperator
from test_steptime.virtual_time import VirtualTime, run_on


@pytest.fixture
def time(monkeypatch):
    clock = VirtualTime()
    run_on(clock, monkeypatch.setattr)
    monkeypatch.setitem(counters["stats"], "unique_graphs", 0)
    with one_thread(), EachOperator(clock.operator):
        yield clock
