"""Where a step's time went: on traces made by hand, for a CPU and a GPU, and on real
steps with planted parts.
"""

import json
from pathlib import Path

import pytest
import torch

import steptime as profiling
from steptime.errors import TooLittleSeen
from steptime.measure.batches import Supply
from steptime.profile import part_spans
from steptime.profile.step_profile import read_profile
from test_steptime.loop_parts import labels, lenet

MAIN = 1
BACKWARD = 2
STEP = part_spans.STEP


def event(name, ts, dur, cat="cpu_op", tid=MAIN, **args):
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": float(ts),
        "dur": float(dur),
        "tid": tid,
        "pid": 0,
        "args": args,
    }


def named(name, ts, dur, tid=MAIN):
    return event(name, ts, dur, "user_annotation", tid)


def profile(events, gpu=False):
    return read_profile(events, device="a test", path=Path("trace.json"), gpu=gpu)


def microseconds(measured):
    return {name: round(1e6 * s, 3) for name, s in measured.parts.items() if s > 0}


STEP_ON_CPU = [
    named(STEP, 0, 1000),
    named("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 190),
    event("aten::stack", 20, 50),
    named("Optimizer.zero_grad#SGD.zero_grad", 210, 40),
    event("aten::zero_", 215, 10),
    event("aten::conv2d", 300, 200),
    event("aten::convolution", 310, 180),
    event("aten::relu", 510, 40),
    event("autograd::engine::evaluate_function: ReluBackward0", 600, 50),
    event("autograd::engine::evaluate_function: ConvolutionBackward0", 670, 130),
    event("aten::convolution_backward", 680, 110),
    named("Optimizer.step#SGD.step", 850, 100),
    event("aten::add_", 860, 50),
]


def test_every_instant_of_a_step_on_the_cpu_belongs_to_one_part():
    measured = profile(STEP_ON_CPU)
    # backward: 50 + the 20 between its pieces + 130; other: what is left
    expected = {
        "input": 190,
        "forward": 240,
        "backward": 200,
        "optimizer": 140,
        "other": 230,
    }
    assert microseconds(measured) == expected
    assert sum(measured.parts.values()) == pytest.approx(measured.mean_s)
    assert measured.share("input") == pytest.approx(0.19)


def test_a_named_range_says_what_its_operators_and_its_python_are():
    events = [
        named(STEP, 0, 100),
        named("steptime: optimizer", 20, 60),
        event("aten::add_", 30, 10),
    ]
    somebody_elses = named("my own name", 0, 100)
    assert microseconds(profile([*events, somebody_elses])) == {
        "optimizer": 60,
        "other": 40,
    }


def test_input_and_communication_inside_a_named_range_are_told_apart():
    events = [
        named(STEP, 0, 100),
        named("steptime: backward", 0, 100),
        event("c10d::allreduce_", 50, 20),
    ]
    events += [named("steptime: input", 80, 10), event("aten::mm", 10, 20)]
    assert microseconds(profile(events)) == {
        "backward": 70,
        "communication": 20,
        "input": 10,
    }


def test_waiting_for_communication_of_another_thread_counts_only_where_no_operator_runs():
    events = [
        named(STEP, 0, 100),
        event("aten::mm", 10, 30),
        named("gloo:all_reduce", 20, 60, tid=9),
    ]
    assert microseconds(profile(events)) == {
        "forward": 30,
        "communication": 40,
        "other": 30,
    }


def launch(ts, correlation, tid=MAIN, name="cudaLaunchKernel"):
    return event(name, ts, 5, "cuda_runtime", tid, correlation=correlation)


def kernel(name, ts, dur, correlation, cat="kernel"):
    return event(name, ts, dur, cat, tid=7, correlation=correlation)


STEP_ON_GPU = [
    named(STEP, 0, 1000),
    named("steptime: input", 0, 100),
    event("aten::to", 100, 20),
    launch(110, 1, name="cudaMemcpyAsync"),
    kernel("Memcpy HtoD (Pinned -> Device)", 120, 80, 1, "gpu_memcpy"),
    event("aten::conv2d", 130, 30),
    launch(150, 2),
    kernel("implicit_convolve", 200, 200, 2),
    event("aten::_local_scalar_dense", 170, 300),
    launch(180, 9, name="cudaStreamSynchronize"),
    event(
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        500,
        60,
        tid=BACKWARD,
    ),
    launch(520, 3, tid=BACKWARD),
    kernel("dgrad", 550, 150, 3),
    kernel("ncclDevKernel_AllReduce", 650, 150, 4),
    named("Optimizer.step#SGD.step", 820, 50),
    launch(830, 5),
    kernel("multi_tensor_apply", 850, 100, 5),
    named(part_spans.END, 950, 50),
    launch(951, 10, name="cudaDeviceSynchronize"),
]


def test_the_gpus_time_goes_to_the_part_that_launched_its_kernels():
    measured = profile(STEP_ON_GPU, gpu=True)
    expected = {
        "input": 100,  # idle, while the host was fetching
        "copies": 80,
        "forward": 200,
        "backward": 150,
        "communication": 100,  # of 150, the 50 beside backward are hidden
        "optimizer": 100,
        "gaps": 20 + 150 + 50 + 50,
    }
    assert microseconds(measured) == expected
    assert {span.lane for span in measured.spans} == {"host", "device"}


def test_waits_are_counted_but_not_the_profilers_own():
    assert profile(STEP_ON_GPU, gpu=True).waits == {"cudaStreamSynchronize": 1}


def test_on_a_cpu_what_would_wait_is_counted_but_not_the_optimizers_counters():
    scalar = "aten::_local_scalar_dense"
    events = [*STEP_ON_CPU, event(scalar, 970, 2), event(scalar, 870, 2)]
    assert profile(events).waits == {scalar: 1}


def test_own_time_is_without_what_an_operator_called():
    own = {o.name: o.self_s for o in profile(STEP_ON_CPU).operators}
    assert own["aten::conv2d"] == pytest.approx(20e-6)
    assert own["aten::convolution"] == pytest.approx(180e-6)
    gpu = {o.name: o for o in profile(STEP_ON_GPU, gpu=True).operators}
    assert gpu["dgrad"].lane == "device"
    assert gpu["dgrad"].self_s == pytest.approx(150e-6)


def shifted(events, by):
    return [e | {"ts": e["ts"] + by} for e in events]


def test_means_are_per_step_and_the_middle_step_is_shown():
    measured = profile(
        [*STEP_ON_CPU, *shifted(STEP_ON_CPU, 1000), *shifted(STEP_ON_CPU, 2000)]
    )
    assert measured.steps == 3
    assert measured.step_s == pytest.approx((1e-3,) * 3)
    assert microseconds(measured)["forward"] == 240
    assert min(span.start_s for span in measured.spans) == 0
    assert max(span.end_s for span in measured.spans) == pytest.approx(1e-3)
    assert measured.notes == ()


def test_steps_that_do_not_do_the_same_work_are_noted():
    more = [event("aten::mm", 3000 + i, 0.5) for i in range(20)]
    measured = profile([*STEP_ON_CPU, *shifted(STEP_ON_CPU, 3000), *more])
    assert "did not do the same work" in measured.notes[0]


@pytest.mark.parametrize(
    "events",
    [[], [named(STEP, 0, 10)], [event("aten::mm", 0, 10)]],
    ids=["none", "step", "mm"],
)
def test_a_profiler_that_saw_nothing_says_so(events):
    with pytest.raises(TooLittleSeen, match="returned no operators"):
        profile(events)


def test_without_the_gpus_events_the_hosts_profile_is_left_and_a_note_says_why():
    measured = profile(STEP_ON_CPU, gpu=True)
    assert "NVreg_RestrictProfilingToAdminUsers" in measured.notes[0]
    assert (measured.parts, measured.spans) == (
        profile(STEP_ON_CPU).parts,
        profile(STEP_ON_CPU).spans,
    )
    assert not profile(STEP_ON_CPU).notes


@pytest.fixture
def training():
    model = lenet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()

    return step, (torch.randn(32, 3, 32, 32), labels(32))


@pytest.mark.slow
def test_a_real_step_has_its_parts_and_a_trace_that_perfetto_can_open(
    training, tmp_path
):
    step, batch = training
    measured = profiling.profile_step(
        step, batch, steps=3, path=tmp_path / "trace.json"
    )
    assert {"input", "forward", "backward", "optimizer", "other"} <= {
        k for k, s in measured.parts.items() if s > 0
    }
    assert sum(measured.parts.values()) == pytest.approx(measured.mean_s)
    assert json.loads(measured.trace_path.read_text())["traceEvents"]
    assert any("convolution" in operator.name for operator in measured.operators)
    # the costliest: which one it is depends on the moment
    assert measured.operators[0].name in str(measured)
    assert "<table" in measured._repr_html_()


@pytest.mark.slow
def test_what_a_source_or_a_loader_takes_is_input_also_inside_a_step(training):
    step, batch = training
    assert (
        profiling.profile_step(step, lambda: batch, steps=2, warmup=1).parts["input"]
        > 0
    )
    assert (
        profiling.profile_step(lambda: step(batch), steps=2, warmup=1).parts["input"]
        == 0
    )
    loader = iter(
        torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*batch), batch_size=4
        )
    )
    assert (
        profiling.profile_step(lambda: step(next(loader)), steps=2, warmup=0).parts[
            "input"
        ]
        > 0
    )


@pytest.mark.slow
def test_item_is_counted_as_a_wait(training):
    step, batch = training
    measured = profiling.profile_step(
        lambda: (step(batch), torch.ones(1).item()), steps=2
    )
    assert measured.waits["aten::_local_scalar_dense"] == 1


@pytest.mark.slow
def test_named_parts_reach_the_profile_and_other_names_are_refused():
    def step():
        with profiling.part("optimizer"):
            torch.ones(256, 256) @ torch.ones(256, 256)

    assert profiling.profile_step(step, steps=2).parts["optimizer"] > 0
    with (
        pytest.raises(ValueError, match="one of input, copies"),
        profiling.part("lunch"),
    ):
        pass


@pytest.mark.slow
def test_an_error_of_the_step_is_its_own_and_the_next_profile_works(training):
    step, batch = training

    def fails(batch):
        step(batch)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        profiling.profile_step(fails, batch, warmup=0)
    assert profiling.profile_step(step, batch, steps=1).mean_s > 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"step": "step"}, TypeError, "Expected step to be a function"),
        ({"steps": 0}, ValueError, "steps to be a whole number from 1 to 10,000"),
        ({"steps": 2.5}, TypeError, "steps to be a whole number from 1 to 10,000"),
        ({"batches": 5}, TypeError, "Expected batches to be an iterable"),
        ({"batches": [], "warmup": 1}, ValueError, "at least one batch, got none"),
        ({"device": "cudda"}, ValueError, "The nearest is 'cuda'"),
    ],
)
def test_bad_input_says_what_to_do(training, arguments, error, words):
    with pytest.raises(error, match=words):
        profiling.profile_step(
            **{"step": training[0], "batches": training[1], **arguments}
        )


@pytest.mark.slow
def test_batches_that_end_for_good_are_refused(training):
    step, batch = training
    with pytest.raises(ValueError, match="more than once, got none"):
        profiling.profile_step(step, iter([batch]))


def test_batches_are_taken_in_turn_and_from_the_start_again(training):
    long = training[1]
    short = tuple(part[:8] for part in long)
    next_batch = Supply([long, short])
    assert [len(next_batch()[1]) for _ in range(5)] == [32, 8, 32, 8, 32]
    assert Supply(long)() is long
    assert Supply({"x": 1})() == {"x": 1}
