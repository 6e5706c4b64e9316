"""What limits a loop: eight planted limits are named, a balanced loop has none, bad loops are told so."""

import math

import pytest
import torch

from labkit.core.errors import BadArgument, BadMeasurement
from labkit.measure import profiling
from labkit.measure.machine import threads
from labkit.measure.profiling import bottleneck, operator_timing
from labkit.measure.profiling.bottleneck import Limit
from labkit.measure.profiling.operator_timing import OperatorCall, Pace
from labkit.measure.torch_calls import EachOperator
from tests.test_measure import planted_loops
from tests.test_measure.planted_loops import CEILINGS, VirtualTime


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):
        yield


@pytest.fixture
def time(monkeypatch):
    """Virtual time, on which everything is measured that the test does."""
    found = VirtualTime()
    monkeypatch.setattr(bottleneck, "perf_counter", found.clock)
    monkeypatch.setattr(operator_timing, "perf_counter", found.clock)
    with EachOperator(found.operator):
        yield found


@pytest.mark.parametrize(
    ("loop", "limit"),
    [
        (planted_loops.slow_source, "input"),
        (planted_loops.slow_decoding, "input"),
        (planted_loops.many_small_layers, "launch overhead"),
        (planted_loops.one_sample_at_a_time, "launch overhead"),
        (planted_loops.element_by_element, "memory bandwidth"),
        (planted_loops.large_weights_one_row, "memory bandwidth"),
        (planted_loops.large_matmuls, "arithmetic"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_limit_is_named(time, loop, limit):
    found = profiling.find_bottleneck(*loop(time), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant == limit, found
    assert found.gain > 2
    assert sum(found.shares.values()) == pytest.approx(1)
    assert str(found).startswith(f"{limit.capitalize()} limits this loop")


def test_planted_communication_is_named(home):
    path = home / "limit"
    torch.multiprocessing.spawn(planted_loops.exchange, (str(home / "meeting"), str(path)), nprocs=2)
    assert path.read_text() == "communication"
    # Ranks write at the same time, and each has a file of its own.
    assert sorted(p.name for p in (home / "traces").glob("step*")) == ["step-rank0.json", "step-rank1.json"]


def test_in_a_balanced_loop_nothing_dominates(time):
    found = profiling.find_bottleneck(*planted_loops.balanced(time), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant is None, found
    assert "Nothing dominates" in str(found)
    for limit in ("input", "memory bandwidth", "arithmetic"):
        assert found.shares[limit] == pytest.approx(1 / 3, abs=0.03)


def test_the_evidence_names_each_experiment(time):
    step, fetch = planted_loops.slow_source(time)
    evidence = " ".join(profiling.find_bottleneck(step, fetch, budget_s=0.5, ceilings=CEILINGS).evidence)
    for words in ("already in memory", "Input alone", "Batch doubled", "timed one by one", "By the ceilings"):
        assert words in evidence


def test_a_batch_in_memory_has_no_input_to_judge(time):
    step, batch = planted_loops.many_small_layers(time)
    found = profiling.find_bottleneck(step, batch, budget_s=0.5, ceilings=CEILINGS)
    assert found.shares["input"] == 0
    assert "already in memory" not in str(found)


def test_a_step_that_refuses_twice_the_batch_is_judged_without(time):
    step, batch = planted_loops.many_small_layers(time)

    def strict(batch):
        if len(batch[0]) > 4:
            raise RuntimeError("out of memory")
        step(batch)

    found = profiling.find_bottleneck(strict, batch, budget_s=0.5, ceilings=CEILINGS)
    assert "the step refused it (RuntimeError: out of memory)" in str(found)
    assert found.dominant == "launch overhead"


def test_a_step_that_does_not_do_the_same_work_twice_is_refused():
    calls = []

    def step(batch):
        calls.append(1)
        for _ in range(10 * len(calls)):
            batch[0] + 1

    with pytest.raises(BadMeasurement, match="does the same work each time"):
        profiling.find_bottleneck(step, (torch.ones(4),), budget_s=0.1, ceilings=CEILINGS)


def test_a_step_without_operators_is_refused():
    with pytest.raises(BadMeasurement, match="called no operator of torch"):
        profiling.find_bottleneck(lambda batch: None, (torch.ones(4),), budget_s=0.1, ceilings=CEILINGS)


@pytest.mark.parametrize(
    ("step", "options", "words"),
    [
        ("step", {}, "Expected step to be a function"),
        (print, {"budget_s": 0}, "budget_s to be a finite number above 0"),
        (print, {"batches": 3}, "Expected batches as an iterable"),
    ],
)
def test_bad_input_says_what_to_do(step, options, words):
    with pytest.raises(BadArgument, match=words):
        profiling.find_bottleneck(step, **{"batches": (torch.ones(4),), **options})


def test_a_limits_vanishing_is_bounded_by_amdahls_law():
    shares = {"input": 0.75, "arithmetic": 0.25, "launch overhead": 0.0, "memory bandwidth": 0.0, "communication": 0.0}
    found = Limit(shares, (), 1.0)
    assert found.dominant == "input"
    assert found.gain == pytest.approx(4)
    assert found.bound("arithmetic") == pytest.approx(4 / 3)
    assert Limit({**shares, "input": 1.0, "arithmetic": 0.0}, (), 1.0).gain == math.inf
    assert Limit({**shares, "input": 0.5, "arithmetic": 0.5}, (), 1.0).dominant is None


PACE = Pace({"float32": 1e9}, 1e9, 1e-6)


def shares_of(call, doubled_s=None):
    doubled = None if doubled_s is None else [OperatorCall(call.name, doubled_s, call.flop, call.n_bytes)]
    found = operator_timing.split_by_wait([call], doubled, PACE)
    return {name: seconds for name, seconds in found.items() if seconds}


@pytest.mark.parametrize(
    ("call", "doubled_s", "expected"),
    [
        (OperatorCall("mm", 101e-6, 1e5, 1e3), 200e-6, {"arithmetic": 100e-6, "launch": 1e-6}),  # at its floor
        (OperatorCall("add", 101e-6, 0, 1e5), 200e-6, {"memory": 100e-6, "launch": 1e-6}),
        (OperatorCall("mm", 101e-6, 1e3, 1e3), 101e-6, {"arithmetic": 1e-6, "launch": 100e-6}),  # doesn't grow
        (OperatorCall("mm", 101e-6, 1e3, 1e3), 181e-6, {"arithmetic": 80e-6, "launch": 21e-6}),  # grows by 80 µs
        (OperatorCall("mm", 101e-6, 1e3, 1e3), None, {"arithmetic": 1e-6, "launch": 100e-6}),  # nothing to compare with
        (OperatorCall("add", 101e-6, 0, 1e4), 101e-6, {"memory": 100e-6, "launch": 1e-6}),  # ten times a copy's time
        (OperatorCall("erfinv", 1001e-6, 0, 1e4), 2001e-6, {"arithmetic": 1e-3, "launch": 1e-6}),  # a hundred times
        (OperatorCall("c10d.allreduce_", 5e-6, 0, 0), None, {"communication": 5e-6}),
        (OperatorCall("between devices: copy_", 5e-6, 0, 0), None, {"copies": 5e-6}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_operators_time_is_split_by_what_it_waits_for(call, doubled_s, expected):
    assert shares_of(call, doubled_s) == pytest.approx(expected)


def test_a_float32_convolution_is_held_against_tf32_where_that_was_measured():
    pace = Pace({"float32": 1e9, "tf32": 8e9}, 1e9, 0.0)
    assert pace.arithmetic_s(OperatorCall("convolution", 1.0, 8e9, 0)) == 1.0
    assert pace.arithmetic_s(OperatorCall("mm", 1.0, 8e9, 0)) == 8.0
    assert pace.arithmetic_s(OperatorCall("convolution", 1.0, 8e9, 0, "bfloat16")) == 8.0


def test_a_timed_operator_has_its_flop_and_bytes():
    a, b, table = torch.ones(8, 16), torch.ones(16, 4), torch.ones(1000, 4)

    def work():
        (a @ b).add_(1)
        a.view(-1).t()
        torch.nn.functional.embedding(torch.tensor([1, 2]), table)

    calls = operator_timing.timed_calls(work, lambda: None)
    found = {call.name: call for call in calls}
    assert found["mm"].flop == 2 * 8 * 16 * 4
    assert found["mm"].n_bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert found["add_.Tensor"].n_bytes == 2 * 4 * 8 * 4
    assert found["view"].n_bytes == 0
    assert found["embedding"].n_bytes == 2 * 4 * 2 * 4, "what is looked up, not the whole table"


def test_of_several_runs_each_call_is_at_its_median():
    runs = [[OperatorCall("a", s, 0, 0), OperatorCall("b", 1.0, 0, 0)] for s in (1.0, 9.0, 2.0)]
    assert [call.seconds for call in operator_timing.median_calls(runs)] == [2.0, 1.0]
    other = [[OperatorCall("a", 5.0, 0, 0)], [OperatorCall("b", 3.0, 0, 0)]]
    assert operator_timing.median_calls(other) == other[1]
