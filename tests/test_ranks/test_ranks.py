"""Launching: results, reports and timelines of real ranks on gloo, and stand-in devices."""

import itertools
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit as lab
from labkit.core.errors import BadArgument as LabsBadArgument
from labkit.measure import standin
from ranks import BadArgument, Span
from ranks.inside import rank_context
from ranks.inside.gpu_clock import GpuClock
from ranks.spans import RankTrace, spans_of


def rank_and_sum(more):
    dist.init_process_group(lab.dist.backend())
    x = torch.ones(3) * dist.get_rank()
    dist.all_reduce(x)
    return dist.get_rank(), x.tolist(), more


def test_each_rank_returns_its_value():
    results = lab.launch(rank_and_sum, 3, "more")
    assert results == [(rank, [3.0, 3.0, 3.0], "more") for rank in range(3)]
    assert (len(results), results[1][0], results[-1][0], len(results[:2])) == (3, 1, 2, 2)
    assert results != [1, 2, 3]
    assert str(results).startswith("3 ranks returned after ")
    assert results.origin == "measured"


SCRIPT = """
import os
import labkit as lab
factor = 3
class Own:
    def __init__(self, x): self.x = x
def twice(x): return 2 * x
def f(): return Own(twice(factor)), os.environ.get("PLANTED")
if __name__ != "__main__": raise SystemExit("a rank ran the script")
os.environ["PLANTED"] = "before the server"
results = lab.launch(f, 2)
print([(type(own) is Own, own.x) for own, _ in results])
print(results[0][1])
del os.environ["PLANTED"]
print(lab.launch(f, 1)[0][1])
"""


@pytest.fixture(scope="module")
def script_lines():
    """What a script prints: it takes seconds to load torch anew."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.complete
def test_a_function_of_the_main_module_travels_with_what_it_uses(script_lines):
    assert script_lines[0] == "[(True, 6), (True, 6)]"


@pytest.mark.complete
def test_ranks_have_no_variable_that_the_notebook_has_no_more(script_lines):
    assert script_lines[1:] == ["before the server", "None"]


def environment():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS", "PLANTED")
    return {name: os.environ.get(name) for name in names}, torch.get_num_threads(), lab.dist.backend()


def test_ranks_have_torchruns_environment_and_the_notebooks(monkeypatch):
    lab.launch(environment, 1)
    monkeypatch.setenv("PLANTED", "later than the server")
    for rank, (found, threads, backend) in enumerate(lab.launch(environment, 2, threads=2)):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        assert found == {**own, "GROUP_RANK": "0", "OMP_NUM_THREADS": "2", "PLANTED": "later than the server"}
        assert threads == 2
        assert backend == ("nccl" if torch.cuda.device_count() >= 2 else "gloo")


def different_numbers():
    return random.random(), np.random.random()


def test_forked_ranks_do_not_share_a_seed():
    assert len(set(np.ravel(list(lab.launch(different_numbers, 2))))) == 4


def various():
    x = torch.arange(6.0).reshape(2, 3)
    layer = torch.nn.Linear(2, 2)
    return [
        x.T,
        x.to(torch.bfloat16),
        torch.empty(0),
        torch.tensor(3),
        torch.zeros(2).requires_grad_(),
        layer,
        {"a": x},
    ]


def test_tensors_arrive_as_they_were():
    (result,) = lab.launch(various, 1)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(result[0], x.T)
    assert torch.equal(result[1], x.to(torch.bfloat16))
    assert result[2].shape == (0,)
    assert result[3].item() == 3
    assert result[4].requires_grad
    assert isinstance(result[5], torch.nn.Linear)
    result[6]["a"] += 1  # it can be written to


def prints():
    print("first", os.environ["RANK"])
    sys.stderr.write("second\n")
    os.write(1, b"third, without an end")


@pytest.mark.skipif(sys.platform == "win32", reason="there ranks print to the console")
def test_what_ranks_print_comes_line_by_line(capsys):
    lab.launch(prints, 2)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [f"rank {r}: {t}" for r in (0, 1) for t in (f"first {r}", "second", "third, without an end")]


def reports_twice(both_seen):
    lab.report(step=0, rank=torch.tensor(int(os.environ["RANK"])))
    while not both_seen.exists():  # for ever, if reports were kept back until the end
        time.sleep(0.01)
    lab.report(step=1)


def test_reports_arrive_in_the_main_thread_while_ranks_run(tmp_path):
    seen, both_seen = [], tmp_path / "both seen"

    def see(report):
        assert threading.current_thread() is threading.main_thread()
        seen.append(report)
        if len(seen) == 2:
            both_seen.touch()

    results = lab.launch(reports_twice, 2, both_seen, on_report=see)
    assert [r.metrics["step"] for r in results.reports] == [0, 0, 1, 1]
    assert sorted((r.rank, r.metrics["step"]) for r in results.reports) == [(0, 0.0), (0, 1.0), (1, 0.0), (1, 1.0)]
    assert tuple(seen) == results.reports
    for rank in (0, 1):
        first_s, second_s = (r.at_s for r in results.reports if r.rank == rank)
        assert 0 < first_s < second_s < results.seconds


def test_a_report_outside_a_launch_is_a_line(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    lab.report(loss=0.5, step=np.int64(2))
    assert capsys.readouterr().out == 'rank 3: {"loss": 0.5, "step": 2.0}\n'
    with pytest.raises(BadArgument, match="Expected loss to be a number, got 'low'"):
        lab.report(loss="low")


def late_rank_1():
    """Rank 1 comes 0.2, 0.1 and 0.2 s after rank 0, by stamps that are planned: the last of them stays."""
    dist.init_process_group("gloo")
    rank, stamps_s = dist.get_rank(), [-0.1, 0.0]
    rank_context.current().stamp = lambda: stamps_s.pop(0) if len(stamps_s) > 1 else stamps_s[0]
    dist.barrier()
    stamps_s[:] = [0.0, [0.05, 0.25][rank]]
    with lab.dist.span("compute", "own"):
        pass
    x = torch.ones(10)
    stamps_s[:] = [[0.05, 0.05, 0.3], [0.25, 0.25, 0.3]][rank]  # called, waited for, done
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    stamps_s[:] = [[0.3, 0.45], [0.4, 0.45]][rank]
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    stamps_s[:] = [[0.45, 0.45, 0.7], [0.65, 0.65, 0.7]][rank]
    ops = [dist.P2POp(dist.isend, x, 0) if rank else dist.P2POp(dist.irecv, x, 1)]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    stamps_s[:] = [0.7, 0.8]
    objects = [None, None]
    dist.all_gather_object(objects, rank)
    return objects


def test_waiting_for_the_last_rank_is_told_apart_from_communication():
    results = lab.launch(late_rank_1, 2)
    assert results == [[0, 1], [0, 1]]
    total = {}
    for span in results.spans:
        total[span.rank, span.kind, span.label] = total.get((span.rank, span.kind, span.label), 0.0) + span.seconds
    waited_s = [total.get((0, "idle", label), 0.0) for label in ("all_reduce", "send to 1", "irecv from 1")]
    assert waited_s == pytest.approx([0.2, 0.1, 0.2])
    assert (1, "idle", "all_reduce") not in total
    assert total[1, "compute", "own"] == pytest.approx(0.25)
    assert {label for rank, kind, label in total if kind == "communication"} >= {
        "barrier",
        "all_reduce",
        "all_gather_object",
    }
    for rank in (0, 1):
        own = sorted(span for span in results.spans if span.rank == rank)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(own))


def test_a_span_inside_another_is_cut_out_of_it():
    trace = RankTrace(
        [(0.0, 10.0, "F", "0", None), (2.0, 6.0, "communication", "recv", None), (3.0, 4.0, "compute", "", None)]
    )
    found = [(s.start_s, s.end_s, s.kind) for s in spans_of([trace])]
    expected = ["F", "communication", "compute", "communication", "F"]
    assert found == [
        (*ends, kind) for ends, kind in zip([(0, 2), (2, 3), (3, 4), (4, 6), (6, 10)], expected, strict=True)
    ]


def test_idle_ends_when_the_last_rank_arrives():
    key = ("group", 0, 1)
    early = RankTrace([(1.0, 5.0, "communication", "all_reduce", key)], [(key, 1.0)])
    late = RankTrace([(4.0, 5.1, "communication", "all_reduce", key)], [(key, 4.0)])
    assert spans_of([early, late]) == (
        Span(0, 1.0, 4.0, "idle", "all_reduce"),
        Span(0, 4.0, 5.0, "communication", "all_reduce"),
        Span(1, 4.0, 5.1, "communication", "all_reduce"),
    )


def test_spans_of_no_kind_are_refused():
    with (
        pytest.raises(BadArgument, match=r"Expected kind to be one of 'F', 'B', .* got 'thinking'"),
        lab.dist.span("thinking"),
    ):
        pass
    with lab.dist.span("compute"):  # outside a launch: nothing
        pass


class FakeEvent:
    """A CUDA event on a GPU that runs half a second behind the processor's calls."""

    now_s = 100.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        FakeEvent.now_s += 0.25
        self.at_s = FakeEvent.now_s

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return 1e3 * (later.at_s - self.at_s)


def test_times_on_a_gpu_become_seconds_of_the_processors_clock(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    context = rank_context.RankContext(0, None, 0.0)
    context.gpu = GpuClock(lambda: 7.0)
    context.add_span(context.stamp(), context.stamp(), "compute")
    context.add_arrival(("key",), context.stamp())
    context.add_span(1.0, 2.0, "compute")  # a stand-in device has the processor's clock
    context.settle_trace()
    assert context.trace.spans == [(7.25, 7.5, "compute", "", None), (1.0, 2.0, "compute", "", None)]
    assert context.trace.arrivals == [(("key",), 7.75)]


class SleepClock:
    """In place of the module time: a clock that only sleeping moves, 60 µs further than asked."""

    def __init__(self):
        self.now_s, self.asleep_s = 0.0, []

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.asleep_s.append(seconds)
        self.now_s += seconds + 6e-5


@pytest.fixture
def sleeps(monkeypatch):
    clock = SleepClock()
    monkeypatch.setattr(standin, "time", clock)
    standin.oversleep_s.cache_clear()
    yield clock
    standin.oversleep_s.cache_clear()


def sleeping_card(flop):
    card, rank = lab.StandIn(1e12), rank_context.current()
    standin.time = SleepClock()  # type: ignore[assignment]
    standin.oversleep_s.cache_clear()
    rank.start_s, rank.now_s = 0.0, standin.time.monotonic
    card.compute(1e9)
    dist.init_process_group("gloo")
    seconds = []
    for _ in range(5):
        dist.barrier()
        start_s = standin.time.now_s
        card.compute(flop)
        seconds.append(standin.time.now_s - start_s)
    return seconds


def test_eight_stand_in_devices_sleep_as_long_as_they_would_compute():
    results = lab.launch(sleeping_card, 8, 50e9, timeout_s=120)
    assert results.origin == "simulated"
    assert "simulated" in str(results)
    assert np.array(list(results)) == pytest.approx(np.full((8, 5), 0.05))
    assert len([s for s in results.spans if s.kind == "compute"]) == 8 * (1 + 5)


def test_a_stand_in_meets_its_deadline(sleeps):
    card = lab.StandIn(1e9)
    card.compute(1e6)
    start_s = sleeps.now_s
    card.compute(5e6)
    assert sleeps.now_s - start_s == pytest.approx(5e-3)
    assert sleeps.asleep_s[-1] == pytest.approx(5e-3 - 6e-5), "so much late is each sleep"


def test_a_stand_in_layer_takes_time_forward_and_backward(sleeps):
    model = torch.nn.Sequential(lab.StandIn(1e9).layer(10e6), torch.nn.Linear(3, 1), lab.StandIn(1e9).layer(5e6, 0))
    x = torch.randn(2, 3)
    standin.oversleep_s()
    start_s = sleeps.now_s
    out = model(x)
    forward_s = sleeps.now_s
    out.sum().backward()
    assert forward_s - start_s == pytest.approx(0.015)
    assert sleeps.now_s - forward_s == pytest.approx(0.02)
    assert torch.equal(out, model[1](x))
    with torch.no_grad():
        assert not model(x).requires_grad


@pytest.mark.parametrize("flop", [-1, float("nan"), "many"])
def test_a_stand_in_refuses_what_is_no_number_of_operations(flop):
    with pytest.raises(LabsBadArgument, match="Expected flop"):
        lab.StandIn().compute(flop)
    with pytest.raises(LabsBadArgument, match="Expected flop_per_s"):
        lab.StandIn(0)


def test_a_stand_in_refuses_to_sleep_for_hours():
    with pytest.raises(LabsBadArgument, match=r"Expected flop to take at most an hour, got 1e\+13 at 1e\+09 FLOP/s\."):
        lab.StandIn(1e9).compute(10**13)


def test_all_reduce_is_timed_by_size():
    seconds = lab.dist.all_reduce_seconds([4, 40_000_000], 2)
    assert list(seconds) == [4, 40_000_000]
    assert 0 < seconds[4] < seconds[40_000_000] < 5
    assert lab.dist.all_reduce_seconds([4], 2, over="gloo")[4] > 0
    with pytest.raises(LabsBadArgument, match="Expected sizes to be a list of at least 1 item"):
        lab.dist.all_reduce_seconds([], 2)
    with pytest.raises(LabsBadArgument, match="Expected over to be one of 'gloo', 'nccl' or None, got 'mpi'"):
        lab.dist.all_reduce_seconds([4], 2, over="mpi")
