"""Launching: results, reports and timelines of real ranks on gloo."""

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ranks import Span, launch, now_s, report, span
from ranks.inside import rank_context
from ranks.inside.gpu_clock import GpuClock
from ranks.spans import RankTrace, spans_of


def rank_and_sum(more):
    dist.init_process_group("gloo")
    x = torch.ones(3) * dist.get_rank()
    dist.all_reduce(x)
    return dist.get_rank(), x.tolist(), more


def test_each_rank_returns_its_value():
    results = launch(rank_and_sum, 3, "more")
    assert results == [(rank, [3.0, 3.0, 3.0], "more") for rank in range(3)]
    assert (len(results), results[1][0], results[-1][0], len(results[:2])) == (
        3,
        1,
        2,
        2,
    )
    assert results != [1, 2, 3]
    assert str(results).startswith("3 ranks returned after ")
    assert results.origin == "measured"


SCRIPT = """
import os, sys
from ranks import launch, preload
preload("wave")
factor = 3
class Own:
    def __init__(self, x): self.x = x
def twice(x): return 2 * x
def f(): return Own(twice(factor)), os.environ.get("PLANTED"), "wave" in sys.modules
if __name__ != "__main__": raise SystemExit("a rank ran the script")
os.environ["PLANTED"] = "before the server"
results = launch(f, 2)
print([(type(own) is Own, own.x) for own, _, _ in results])
print(results[0][1])
print("wave" in sys.modules, results[0][2])
del os.environ["PLANTED"]
print(launch(f, 1)[0][1])
"""


@pytest.mark.complete
def test_a_function_of_the_main_module_travels_with_what_it_uses_and_the_environment_of_now():
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "[(True, 6), (True, 6)]",
        "before the server",
        "False True",
        "None",
    ]


def environment():
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "OMP_NUM_THREADS",
        "PLANTED",
    )
    return {name: os.environ.get(name) for name in names}, torch.get_num_threads()


def test_ranks_have_torchruns_environment_and_the_notebooks(monkeypatch):
    launch(environment, 1)
    monkeypatch.setenv("PLANTED", "later than the server")
    for rank, (variables, threads) in enumerate(launch(environment, 2, threads=2)):
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
        }
        shared = {
            "GROUP_RANK": "0",
            "OMP_NUM_THREADS": "2",
            "PLANTED": "later than the server",
        }
        assert variables == {**own, **shared}
        assert threads == 2


def test_numpys_numbers_are_taken():
    n = np.int64(1)
    (own,) = launch(environment, n, threads=n, timeout_s=np.float32(60))
    assert own[0]["WORLD_SIZE"] == own[0]["OMP_NUM_THREADS"] == "1"


def different_numbers():
    return random.random(), np.random.random()


def test_forked_ranks_do_not_share_a_seed():
    assert len(set(np.ravel(list(launch(different_numbers, 2))))) == 4


def various():
    x = torch.arange(6.0).reshape(2, 3)
    return {
        "transposed": x.T,
        "bfloat16": x.to(torch.bfloat16),
        "empty": torch.empty(0),
        "scalar": torch.tensor(3),
        "learning": torch.zeros(2).requires_grad_(),
        "layer": torch.nn.Linear(2, 2),
        "nested": [{"x": x}],
        "64 MB": torch.arange(16_000_000, dtype=torch.float32),
    }


def test_tensors_arrive_as_they_were():
    (results,) = launch(various, 1)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(results["transposed"], x.T)
    assert torch.equal(results["bfloat16"], x.to(torch.bfloat16))
    assert results["empty"].shape == (0,)
    assert results["scalar"].item() == 3
    assert results["learning"].requires_grad
    assert isinstance(results["layer"], torch.nn.Linear)
    assert torch.equal(results["64 MB"], torch.arange(16_000_000, dtype=torch.float32))
    results["nested"][0]["x"] += 1  # it can be written to


def prints():
    print("first", os.environ["RANK"])
    sys.stderr.write("second\n")
    os.write(1, b"third, without an end")


@pytest.mark.skipif(sys.platform == "win32", reason="there ranks print to the console")
def test_what_ranks_print_comes_line_by_line(capsys):
    launch(prints, 2)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [
        f"rank {r}: {t}"
        for r in (0, 1)
        for t in (f"first {r}", "second", "third, without an end")
    ]


def reports_twice(both_seen):
    report(step=0, rank=torch.tensor(int(os.environ["RANK"])))
    while not both_seen.exists():  # for ever, if reports were kept back until the end
        time.sleep(0.01)
    report(step=1)


def test_reports_arrive_in_the_main_thread_while_ranks_run(tmp_path):
    seen = []
    both_seen = tmp_path / "both seen"

    def see(report):
        assert threading.current_thread() is threading.main_thread()
        seen.append(report)
        if len(seen) == 2:
            both_seen.touch()

    results = launch(reports_twice, 2, both_seen, on_report=see)
    assert [r.metrics["step"] for r in results.reports] == [0, 0, 1, 1]
    assert sorted((r.rank, r.metrics["step"]) for r in results.reports) == [
        (0, 0.0),
        (0, 1.0),
        (1, 0.0),
        (1, 1.0),
    ]
    assert tuple(seen) == results.reports
    for rank in (0, 1):
        first_s, second_s = (r.at_s for r in results.reports if r.rank == rank)
        assert 0 < first_s < second_s < results.seconds


def test_a_report_outside_a_launch_is_a_line(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    report(loss=0.5, step=np.int64(2))
    assert capsys.readouterr().out == 'rank 3: {"loss": 0.5, "step": 2.0}\n'
    with pytest.raises(TypeError, match="Expected loss to be a number, got 'low'"):
        report(loss="low")


def late_rank_1():
    """Rank 1 comes 0.2, 0.1 and 0.2 s after rank 0, by stamps that are planned: the
    last of them stays.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stamps_s = [-0.1, 0.0]
    rank_context.current().stamp = lambda: (
        stamps_s.pop(0) if len(stamps_s) > 1 else stamps_s[0]
    )
    dist.barrier()
    stamps_s[:] = [0.0, [0.05, 0.25][rank]]
    with span("compute", "own"):
        pass
    x = torch.ones(10)
    # called, waited for, done
    stamps_s[:] = [[0.05, 0.05, 0.3], [0.25, 0.25, 0.3]][rank]
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
    results = launch(late_rank_1, 2)
    assert results == [[0, 1], [0, 1]]
    total_s = defaultdict(float)
    for each in results.spans:
        total_s[each.rank, each.kind, each.label] += each.seconds
    waited_s = [
        total_s[0, "idle", label]
        for label in ("all_reduce", "send to 1", "irecv from 1")
    ]
    assert waited_s == pytest.approx([0.2, 0.1, 0.2])
    assert (1, "idle", "all_reduce") not in total_s
    assert total_s[1, "compute", "own"] == pytest.approx(0.25)
    labels = {label for _, kind, label in total_s if kind == "communication"}
    assert labels >= {"barrier", "all_reduce", "all_gather_object"}
    for rank in (0, 1):
        own = sorted(each for each in results.spans if each.rank == rank)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(own))


def test_a_span_inside_another_is_cut_out_of_it():
    nested = [
        (0.0, 10.0, "F", "0", None),
        (2.0, 6.0, "communication", "recv", None),
        (3.0, 4.0, "compute", "", None),
    ]
    assert [
        (each.start_s, each.end_s, each.kind) for each in spans_of([RankTrace(nested)])
    ] == [
        (0, 2, "F"),
        (2, 3, "communication"),
        (3, 4, "compute"),
        (4, 6, "communication"),
        (6, 10, "F"),
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


def simulates():
    with span("F"), span("compute", "a part of F", simulated=True):
        pass
    before_s = now_s()
    with span("compute", "apart", simulated=True):
        time.sleep(0.001)
    return before_s, now_s()


def test_what_is_simulated_is_told_and_its_spans_are_on_the_clock_of_a_rank():
    launched = launch(simulates, 1)
    assert launched.origin == "simulated"
    assert str(launched).endswith("(simulated devices)")
    inside, apart = launched.spans
    assert (inside.kind, apart.kind, apart.label) == ("F", "compute", "apart")
    ((before_s, after_s),) = launched
    assert inside.end_s <= before_s <= apart.start_s < apart.end_s <= after_s


def test_a_process_that_is_no_rank_has_no_clock():
    with pytest.raises(RuntimeError, match="now_s was called outside of a launch"):
        now_s()


def test_spans_of_no_kind_are_refused():
    with (
        pytest.raises(
            ValueError, match=r"Expected kind to be one of 'F', 'B', .* got 'thinking'"
        ),
        span("thinking"),
    ):
        pass
    with span("compute"):  # outside a launch: nothing
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
    assert context.trace.spans == [
        (7.25, 7.5, "compute", "", None),
        (1.0, 2.0, "compute", "", None),
    ]
    assert context.trace.arrivals == [(("key",), 7.75)]
