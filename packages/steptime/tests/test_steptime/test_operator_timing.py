"""The time of an operator, its FLOP and its bytes, and which limit its
time belongs to.
"""

import dataclasses

import pytest
import torch

import steptime as profiling
from steptime.judge.operator_limits import (
    Pace,
    divide_gaps,
    explained,
    split_by_limit,
)
from steptime.limits import LIMITS
from steptime.measure import operator_timing
from steptime.measure.machine import no_sync
from steptime.measure.operator_timing import OperatorCall

PACE = Pace(
    {"float32": 1e9}, 1e9, empty_s=1e-6, dearest_s=30e-6, gap_s=1e-5, launch_s=5e-6
)


def shares_of(call, doubled_s=None, more=1, pace=PACE):
    doubled = (
        None
        if doubled_s is None
        else [OperatorCall(call.name, doubled_s, more * call.flop, call.n_bytes)]
    )
    measured = split_by_limit([call], doubled, pace)
    return {name: seconds for name, seconds in measured.items() if seconds}


@pytest.mark.parametrize(
    ("call", "doubled_s", "expected"),
    [
        # at its floor
        (OperatorCall("mm", 101e-6, 1e5, 1e3), 200e-6, {"arithmetic": 100e-6}),
        (OperatorCall("add", 101e-6, 0, 1e5), 200e-6, {"memory bandwidth": 100e-6}),
        # three times a copy's time
        (OperatorCall("add", 101e-6, 0, 3e4), 101e-6, {"memory bandwidth": 100e-6}),
        # doesn't grow
        (
            OperatorCall("mm", 26e-6, 1e3, 1e2),
            26e-6,
            {"arithmetic": 1e-6, "launch overhead": 24e-6},
        ),
        (
            OperatorCall("mm", 26e-6, 1e3, 1e2),
            None,
            {"arithmetic": 1e-6, "launch overhead": 24e-6},
        ),
        # a tenth of the ceiling, and grows
        (OperatorCall("mm", 101e-6, 1.5e4, 1e3), 201e-6, {"arithmetic": 100e-6}),
        # a hundredth
        (OperatorCall("mm", 101e-6, 1e3, 1e2), 201e-6, {"unknown": 100e-6}),
        # capped
        (
            OperatorCall("svd", 1001e-6, 0, 1e4),
            1001e-6,
            {"unknown": 970e-6, "launch overhead": 30e-6},
        ),
        # a hundred times a copy's time
        (OperatorCall("erfinv", 1001e-6, 0, 1e4), 2001e-6, {"unknown": 1e-3}),
        (OperatorCall("c10d.allreduce_", 6e-6, 0, 0), None, {"communication": 5e-6}),
        (OperatorCall("between devices: copy_", 6e-6, 0, 0), None, {"input": 5e-6}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_operators_time_is_split_by_what_limits_it(call, doubled_s, expected):
    assert shares_of(call, doubled_s) == pytest.approx(expected, abs=1.1e-6)


def test_what_a_product_prepares_for_any_batch_is_launch_overhead_on_a_cpu():
    call = OperatorCall("convolution", 201e-6, 1e4, 1e3)
    on_cpu = dataclasses.replace(PACE, on_cpu=True)
    assert shares_of(call, 261e-6, more=2, pace=on_cpu) == pytest.approx(
        {"launch overhead": 140e-6, "arithmetic": 60e-6}, abs=1.1e-6
    )
    # Work on weights alone doesn't grow either, and is no launch. A GPU may have had
    # room for both halves at once.
    capped = {"launch overhead": 30e-6, "unknown": 170e-6}
    assert shares_of(call, 261e-6, pace=on_cpu) == pytest.approx(capped, abs=1.1e-6)
    assert shares_of(call, 261e-6, more=2) == pytest.approx(capped, abs=1.1e-6)


@pytest.mark.parametrize(
    ("in_call_s", "gap_s", "waits_s", "host_s"),
    [
        (0.0, 0.5, 0.5, 0.0),  # the wait follows the call
        (0.5, 0.0, 0.0, 0.0),  # it is in the call
        (0.0, 0.9, 0.5, 0.4),  # the rest of the gap is work of the host
        (0.0, 0.7, 0.0, 0.7),  # no wait at all
    ],
)
def test_a_wait_for_other_ranks_counts_once(in_call_s, gap_s, waits_s, host_s):
    calls = [
        OperatorCall("c10d.allreduce_", in_call_s, 0, 0),
        OperatorCall("add", 0.1, 0, 1e8, before_s=PACE.gap_s + gap_s),
    ]
    measured = {**split_by_limit(calls, None, PACE), "other host work": 0.0}
    divide_gaps(measured, calls, PACE, 0.1 + in_call_s + gap_s, waits_s)
    assert measured["other host work"] == pytest.approx(host_s, abs=1e-4)
    assert measured["communication"] == pytest.approx(in_call_s + waits_s, abs=1e-4)
    assert sum(measured.values()) == pytest.approx(0.1 + in_call_s + gap_s, abs=1e-4)


@pytest.mark.parametrize(("unknown_s", "told"), [(0.09, False), (0.2, True)])
def test_parts_that_take_more_than_the_step_are_said_to(unknown_s, told):
    seconds_of = dict.fromkeys(LIMITS, 0.0) | {"unknown": unknown_s}
    calls = [OperatorCall(name, unknown_s / 2, 0.0, 0.0) for name in ("sort", "end")]
    _, evidence = explained(calls, seconds_of, PACE, step_s=0.1)
    words = "Timed one by one, all of it takes 200 ms, more than the step"
    assert (words in " ".join(evidence)) == told


def test_a_float32_convolution_is_held_against_tf32_where_that_was_measured():
    pace = dataclasses.replace(PACE, flop_per_s={"float32": 1e9, "tf32": 8e9})
    assert pace.arithmetic_s(OperatorCall("convolution", 1.0, 8e9, 0)) == 1.0
    assert pace.arithmetic_s(OperatorCall("mm", 1.0, 8e9, 0)) == 8.0
    assert (
        pace.arithmetic_s(OperatorCall("convolution", 1.0, 8e9, 0, "bfloat16")) == 8.0
    )


def test_a_timed_operator_has_its_flop_and_bytes():
    a = torch.ones(8, 16)
    b = torch.ones(16, 4)
    table = torch.ones(1000, 4)

    def work():
        (a @ b).add_(1)
        a.view(-1).t()
        torch.nn.functional.embedding(torch.tensor([1, 2]), table)

    calls = operator_timing.timed_calls(work, lambda: None)
    measured = {call.name: call for call in calls}
    assert measured["mm"].flop == 2 * 8 * 16 * 4
    assert measured["mm"].n_bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert measured["add_.Tensor"].n_bytes == 2 * 4 * 8 * 4
    assert measured["view"].n_bytes == 0
    assert measured["embedding"].n_bytes == 2 * 4 * 2 * 4, (
        "what is looked up, not the whole table"
    )


N = 1024
ROW = torch.tensor([3])
a = torch.rand(N)
b = torch.rand(N)
table = torch.rand(64, 16)
# the gradient, and both ways the weight and its two averages
ADAM_READS_AND_WRITES = 1 + 2 + 2 + 2


@pytest.mark.parametrize(
    ("work", "numbers"),
    [
        (lambda: a + b, 3 * N),
        (lambda: a * a, 2 * N),
        (lambda: a.add_(b), 3 * N),
        (lambda: torch.add(a, a, out=b), 2 * N),
        (lambda: torch.mul(a, table.view(-1), out=b), 3 * N),
        (lambda: b.copy_(a), 2 * N),
        (lambda: b.zero_(), N),
        (lambda: b.fill_(1.0), N),
        (lambda: torch.zeros_like(a), N),
        (lambda: torch.empty_like(a), 0),
        (lambda: torch.empty(N), 0),
        (lambda: a.view(-1, 2).t()[0], 0),
        (lambda: a.detach().unsqueeze_(0), 0),
        (lambda: a[::2].neg(), N + N // 2),  # a line of memory comes whole
        (lambda: torch._foreach_add_([a, b], 1.0), 4 * N),
        (lambda: torch._foreach_sqrt([a, b]), 4 * N),
        # 2 to clone the row; ROW is 8 bytes
        (lambda: table.index_add_(0, ROW, table[:1].clone()), 5 * 16 + 2),
    ],
    ids=lambda value: "",
)
def test_bytes_are_what_an_operator_reads_and_writes(work, numbers):
    assert (
        sum(call.n_bytes for call in operator_timing.timed_calls(work, no_sync))
        == 4 * numbers
    )


@pytest.mark.parametrize(
    ("options", "least"),
    [({"foreach": True}, 2), ({"foreach": False}, 2), ({"fused": True}, 1)],
)
def test_an_optimizers_bytes_are_counted_however_it_is_run(options, least):
    weight = torch.nn.Parameter(torch.rand(N))
    weight.grad = torch.rand(N)
    optimizer = torch.optim.Adam([weight], **options)
    optimizer.step()
    n_bytes = sum(
        call.n_bytes for call in operator_timing.timed_calls(optimizer.step, no_sync)
    )
    assert (
        least * ADAM_READS_AND_WRITES <= n_bytes / (4 * N) < 3.5 * ADAM_READS_AND_WRITES
    )


def test_the_time_before_each_operator_and_after_the_last_is_kept(time):
    def work():
        time.wait(1e-3)
        x = torch.ones(1)
        time.wait(2e-3)
        x.add(1)
        time.wait(3e-3)

    calls = operator_timing.timed_calls(work, lambda: None)
    assert [call.name for call in calls] == ["ones", "add.Tensor", "end of the step"]
    assert [call.before_s for call in calls] == pytest.approx([1e-3, 2e-3, 3e-3])


def test_of_alike_runs_each_call_is_at_its_shortest_and_others_are_weighted():
    runs = [
        [OperatorCall("a", s, 0, 0, before_s=s / 2), OperatorCall("b", 1.0, 0, 0)]
        for s in (3.0, 9.0, 2.0)
    ]
    calls = operator_timing.typical_calls(runs)
    assert [(call.name, call.seconds, call.weight) for call in calls] == [
        ("a", 2.0, 1.0),
        ("b", 1.0, 1.0),
    ]
    assert calls[0].before_s == 1.0
    calls = operator_timing.typical_calls([*runs, [OperatorCall("c", 4.0, 0, 0)]])
    assert [(call.name, call.weight) for call in calls] == [
        ("a", 0.75),
        ("b", 0.75),
        ("c", 0.25),
    ]
    measured = split_by_limit([calls[-1]], None, PACE)
    assert measured["unknown"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("inference", [False, True])
def test_the_flop_of_a_call_are_counted_for_attention_and_lstms_too(inference):
    q = torch.rand(1, 2, 5, 4)
    layer = torch.nn.LSTM(4, 5)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode(inference):
        assert profiling.counted_flop(lambda: attend(q, q, q)) == 2 * (
            2 * 2 * 5 * 5 * 4
        )
        assert (
            profiling.counted_flop(lambda: torch.nn.functional.linear(q, q[0, 0]))
            == 2 * 10 * 4 * 5
        )
        assert profiling.counted_flop(
            lambda: layer(torch.rand(3, 2, 4))
        ) == 2 * 3 * 2 * (20 * 4 + 20 * 5)
        assert profiling.counted_flop(lambda: q + 1) == 0


def test_backward_passes_count():
    q = torch.rand(1, 2, 5, 4, requires_grad=True)
    layer = torch.nn.LSTM(4, 5)
    attend = torch.nn.functional.scaled_dot_product_attention
    forward = profiling.counted_flop(lambda: attend(q, q, q))
    # Of five products, backward makes the scores a second time.
    assert (
        profiling.counted_flop(lambda: attend(q, q, q).sum().backward())
        == 3.5 * forward
    )
    x = torch.rand(3, 2, 4)
    assert profiling.counted_flop(
        lambda: layer(x)[0].sum().backward()
    ) == 3 * profiling.counted_flop(lambda: layer(x))
