"""What limits a loop: planted limits are named, balanced loops have none, bad loops are told so."""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import subprocess
import sys
import threading
from time import perf_counter, sleep
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.utils import counters

import steptime as profiling
from steptime import gains, machine, operator_timing, pace, stopwatch, watched_steps
from steptime.errors import BadArgument, BadMeasurement
from steptime.limits import Limit
from steptime.machine import no_sync, one_thread
from steptime.operator_timing import OperatorCall
from steptime.pace import Pace, split_by_limit
from steptime.stack_samples import Lines, StackSamples, longest, place_of
from steptime.torch_calls import EachOperator
from steptime.watched_steps import StepWatch
from tests.selection import sampled
from tests.test_steptime import causes, mixed_loops, planted_loops
from tests.test_steptime.planted_loops import CEILINGS, VirtualTime

pytestmark = pytest.mark.slow  # runs whole training loops


@pytest.fixture(autouse=True)
def on_one_thread():
    with one_thread():
        yield


@pytest.fixture
def time(monkeypatch):
    """Virtual time, on which everything is measured that the test does."""
    found = VirtualTime()
    planted_loops.run_on(found, monkeypatch.setattr)
    monkeypatch.setitem(counters["stats"], "unique_graphs", 0)
    with EachOperator(found.operator):
        yield found


@pytest.mark.parametrize(
    ("loop", "limit"),
    sampled([(loop, limit) for limit, loops in planted_loops.PLANTED.items() for loop in loops], 8),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_limit_is_named(time, loop, limit):
    found = profiling.find_bottleneck(*loop(time), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant == limit, found
    assert found.bound(found.largest) > 2
    assert sum(found.shares.values()) == pytest.approx(1)
    title = f"{limit.capitalize()} limits this loop" if limit != "unknown" else "What limits this loop is unknown."
    assert str(found).startswith(title)


@pytest.mark.parametrize(
    ("loop", "limit", "place"),
    sampled(
        [(loop, limit, place) for limit, named in planted_loops.HOST_WORK.items() for loop, place in named.items()], 4
    ),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_work_of_the_host_is_named_with_the_function_that_it_is_in(time, loop, limit, place):
    found = profiling.find_bottleneck(*loop(time), budget_s=0.4, ceilings=CEILINGS)
    assert found.dominant == limit, found
    if place:
        assert found.line.startswith(f"{place} (planted_loops.py, line "), found
        assert f"Most of it: {found.line}." in str(found)


@pytest.mark.parametrize(
    ("make", "limit", "place"), sampled([pytest.param(*loop[1:], id=loop[0]) for loop in causes.LOOPS], 10)
)
def test_the_usual_causes_are_named(time, make, limit, place):
    found = profiling.find_bottleneck(*make(time), budget_s=8, ceilings=CEILINGS)
    assert found.dominant == limit, found
    assert found.line.startswith(place), found


@pytest.mark.complete
@pytest.mark.parametrize("planted", ["all_reduce", "DDP"])
def test_planted_communication_is_named(home, planted):
    meeting, path = str(home / "meeting"), str(home / "limit")
    torch.multiprocessing.spawn(planted_loops.exchange_in_virtual_time, (meeting, path, planted), nprocs=2)
    for rank in range(2):
        found = json.loads((home / f"limit-{rank}").read_text())
        assert found["dominant"] == "communication", found["text"]
        assert "exposed communication takes" in found["text"]
    # Ranks write at the same time, and each has a file of its own.
    assert sorted(p.name for p in (home / "traces").glob("step*")) == ["step-rank0.json", "step-rank1.json"]


def test_waits_for_a_core_are_told_from_a_slow_machine(monkeypatch):
    readings = [(10**9, 10**6), (2 * 10**9, 2 * 10**6), (2 * 10**9, 10**9 + 10**6)]
    monkeypatch.setattr(machine, "_ran_and_waited", lambda: readings.pop(0))
    busy = machine.core_waits()
    assert [busy(), busy()] == ["", "this process waited for a core 50% of its time"]


def test_a_threads_stack_is_sampled_while_it_works_and_while_it_waits():
    samples = StackSamples()

    def seen(function):
        return any(place[:2] == (function, "test_bottleneck.py") for _, place, _ in list(samples.seen))

    def working():
        while not seen("working"):
            pass

    def waiting():
        while not seen("waiting"):
            sleep(1e-3)

    with samples.taken():  # a sampler that saw neither would keep them here
        working()
        samples.now = 5
        waiting()
    assert all(lasted_s > 0 for _, _, lasted_s in samples.seen)
    assert {now for now, place, _ in samples.seen if place[0] == "working"} <= {0, 5}
    assert {now for now, place, _ in samples.seen if place[0] == "waiting"} == {5}


# Collections let the loop's thread go on, and its functions leave frames of other sizes in each other's place.
_COLLECTING_LOOP = """
import contextlib, gc, random, threading, time
from steptime import stack_samples

functions = {}
for n in range(1, 24):
    names = "".join(f"v{i}, " for i in range(n))
    code = f"def f{n}(depth, others):\\n {names} = [{{}} for _ in range({n})]\\n"
    code += " return others[depth % 7](depth - 1, others) if depth else [[], [], []]"
    exec(compile(code, contextlib.__file__, "exec"), functions)  # in a library, whose callers are looked at
functions = [functions[f"f{n}"] for n in range(1, 24)]
gc.callbacks.append(lambda *_: time.sleep(0))
gc.set_threshold(30, 10, 10)
stack_samples._EVERY_S = 1e-5
samples = stack_samples.StackSamples()
with samples.taken():
    while threading.active_count() > 1 and len(samples.seen) < 20_000:
        random.choice(functions)(random.randrange(12), random.sample(functions, 7))
assert gc.isenabled()
"""


def test_the_frames_that_are_sampled_outlive_the_garbage_collector():
    ran = subprocess.run([sys.executable, "-c", _COLLECTING_LOOP], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_python_lets_the_sampler_run_at_once_unless_the_loop_has_threads_of_its_own():
    usual_s, begun, stop = sys.getswitchinterval(), threading.Event(), threading.Event()

    def load_ahead():
        begun.set()
        stop.wait()

    with StackSamples().taken(), StackSamples().taken():
        assert sys.getswitchinterval() < usual_s / 50
    assert sys.getswitchinterval() == usual_s
    other = threading.Thread(target=load_ahead)
    other.start()
    begun.wait()
    with StackSamples().taken():
        assert sys.getswitchinterval() == usual_s, "its threads take turns as they do without a watch"
    stop.set()
    other.join()


@pytest.mark.parametrize("kinds", planted_loops.BALANCED.values(), ids=planted_loops.BALANCED)
def test_in_a_balanced_loop_nothing_dominates(time, kinds):
    found = profiling.find_bottleneck(*planted_loops.mixture(time, *kinds), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant is None, found
    assert "Nothing dominates" in str(found)
    for limit in kinds:
        assert found.shares[limit] == pytest.approx(1 / len(kinds), abs=0.03)


def test_launches_that_become_dearer_meanwhile_are_no_work_of_the_host(time):
    launches = []

    def dearer(func, args, kwargs):
        launches.append(func)
        time.wait(planted_loops.LAUNCH_S * len(launches) / 2_000)  # twice as dear after 2,000 operators, and so on
        return func(*args, **kwargs)

    with EachOperator(dearer):
        found = profiling.find_bottleneck(*planted_loops.many_small_layers(time), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant == "launch overhead", found


def test_what_sampling_the_stack_costs_counts_nowhere(time, monkeypatch):
    sampling = []

    @contextlib.contextmanager
    def taken(self):
        sampling.append(True)
        yield
        sampling.clear()

    monkeypatch.setattr(StackSamples, "taken", taken)
    step, batch = planted_loops.many_small_layers(time)

    def sampled_step(batch):
        time.wait(1.0 if sampling else 0.0)
        step(batch)

    found = profiling.find_bottleneck(sampled_step, batch, budget_s=0.5, ceilings=CEILINGS)
    assert time.now_s > 1, "samples were taken"
    assert found.dominant == "launch overhead", found


@pytest.fixture
def taken_by_others(monkeypatch, tmp_path):
    """A clock of which each look is 8 s later, and of these others have had the core for 6."""
    path, looks = tmp_path / "schedstat", itertools.count(1)

    def look():
        n = next(looks)
        path.write_text(f"0 {6 * n * 10**9} 0")
        return 8.0 * n

    path.write_text("0 0 0")
    monkeypatch.setattr(stopwatch, "_CORE_WAITS", str(path))
    monkeypatch.setattr(stopwatch, "perf_counter", look)


def test_time_in_which_others_have_the_core_does_not_count(taken_by_others):
    assert stopwatch.mean_s(lambda: None, no_sync) == 2.0
    assert stopwatch.mean_s(lambda: None, lambda: None) == 8.0, "a device works on meanwhile"


def test_ceilings_are_measured_by_the_clock_that_times_operators(taken_by_others):
    found = profiling.measure_ceilings("cpu")
    assert found.copy_bytes_per_s == 2 * 2**27 / 2
    assert found.matmul_flop_per_s == {"float32": 2 * 1024**3 / 2}


def test_the_evidence_names_each_experiment(time):
    step, fetch = planted_loops.slow_source(time)
    evidence = " ".join(profiling.find_bottleneck(step, fetch, budget_s=0.5, ceilings=CEILINGS).evidence)
    for words in ("a batch is waited for", "Input alone", "Batch doubled", "By the ceilings", "a tiny training step"):
        assert words in evidence


def test_a_batch_in_memory_has_no_input_to_judge(time):
    step, batch = planted_loops.many_small_layers(time)
    found = profiling.find_bottleneck(step, batch, budget_s=0.5, ceilings=CEILINGS)
    assert found.shares["input"] == 0
    assert "a batch is waited for" not in str(found)


def test_no_gain_goes_beyond_what_a_loader_behind_the_step_delivers():
    shares = {"input": 0.0, "arithmetic": 0.9, "launch overhead": 0.1}
    behind = Limit(shares, (), loop_s=0.125, input_s=0.113)
    assert behind.bound("arithmetic") == pytest.approx(125 / 113)
    assert behind.words("launch overhead") == "about 1.11x"
    assert behind.words("arithmetic") == "-", "operations that are needed are no gain"
    assert Limit(shares, (), loop_s=0.125, input_s=0.2).bound("arithmetic") == 1


def test_only_measured_time_gives_a_bound():
    found = Limit({"launch overhead": 0.6, "unknown": 0.2, "other host work": 0.2}, (), 1.0)
    assert [found.words(name).split()[0] for name in found.shares] == ["about", "about", "at"]


def test_a_step_that_refuses_twice_the_batch_is_judged_without(time):
    step, batch = planted_loops.many_small_layers(time)

    def strict(batch):
        if len(batch[0]) > 4:
            raise RuntimeError("out of memory")
        step(batch)

    found = profiling.find_bottleneck(strict, batch, budget_s=0.5, ceilings=CEILINGS)
    assert "it was refused (RuntimeError: out of memory)" in str(found)
    assert found.dominant == "launch overhead"


def test_a_change_that_takes_away_what_the_step_relies_on_is_left_out(time):
    train = planted_loops.small_step()

    def packed(batch):
        time.work(0.02)
        buffer = io.BytesIO()
        torch.save(batch, buffer)
        train(torch.load(io.BytesIO(buffer.getvalue())))  # EOFError where torch.save writes nothing

    found = profiling.diagnose(packed, planted_loops.small_batch(), budget_s=0.5, ceilings=CEILINGS)
    assert found.dominant == "other host work"
    assert found.gains == ()


@pytest.mark.parametrize(
    "batch", [None, 7, torch.ones(()), SimpleNamespace(x=torch.ones(4, 8))], ids=["none", "number", "scalar", "object"]
)
def test_a_batch_without_rows_that_are_seen_is_not_doubled(batch):
    with pytest.raises(TypeError, match="no tensor with rows was found in it"):
        gains.doubled_batch(batch)


def test_twice_a_batch_that_cannot_be_doubled_is_no_gain(time):
    train, rows = planted_loops.many_small_layers(time)
    step = lambda _: train(rows)  # noqa: E731
    found = profiling.diagnose(step, itertools.repeat(None), budget_s=0.1, ceilings=CEILINGS)
    assert found.dominant == "launch overhead"
    assert "Batch doubled: it was refused (TypeError: no tensor with rows was found in it)" in str(found)
    assert not any("twice the batch" in gain.change for gain in found.gains)


def test_steps_that_differ_are_told_from_usual_ones(time):
    found = profiling.find_bottleneck(*planted_loops.validated_now_and_then(time), budget_s=20, ceilings=CEILINGS)
    assert "The steps differ, with" in str(found)
    assert found.dominant == "occasional work"


class Bursts:
    """A loader whose four workers deliver side by side: four batches at once, then none for 0.4 s."""

    num_workers, prefetch_factor = 4, 2

    def __init__(self, time, taken=0):
        self.time, self.taken = time, taken

    def __iter__(self):
        for _ in range(10**6):
            self.time.wait(0.0 if self.taken % 4 else 0.4)
            self.taken += 1
            yield planted_loops.small_batch()


@pytest.mark.parametrize("taken", sampled(range(4), 1))
def test_batches_that_come_in_bursts_count_by_their_mean(time, taken):
    found = profiling.find_bottleneck(planted_loops.small_step(), Bursts(time, taken), budget_s=8, ceilings=CEILINGS)
    assert found.input_s == pytest.approx(0.1, rel=0.01)
    assert found.loop_s == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(("step_s", "fetch_s"), [(2.0, 0.5), (2.0, 0.0), (0.5, 0.5), (0.0, 1.5)])
def test_slow_loops_are_judged_within_20_s(time, step_s, fetch_s):
    train, batch = planted_loops.small_step(), planted_loops.small_batch()

    def step(batch):
        time.wait(step_s)
        train(batch)

    def fetch():
        time.wait(fetch_s)
        return batch

    found = profiling.find_bottleneck(step, fetch, ceilings=CEILINGS)
    assert found.dominant == ("input" if fetch_s > step_s else "other host work") or step_s == fetch_s
    assert time.now_s < 20


def test_a_step_without_operators_is_refused():
    with pytest.raises(BadMeasurement, match="called no operator of torch"):
        profiling.find_bottleneck(lambda batch: None, (torch.ones(4),), budget_s=0.1, ceilings=CEILINGS)


@pytest.mark.parametrize(
    ("step", "options", "words"),
    [
        ("step", {}, "Expected step to be a function of 1 argument"),
        (torch.nn.Linear(4, 4), {}, "a function that trains on a batch, got Linear.*In it, call the model"),
        (print, {"budget_s": 0}, "budget_s to be a finite number above 0"),
        (print, {"batches": 3}, "Expected batches to be an iterable"),
    ],
)
def test_bad_input_says_what_to_do(step, options, words):
    with pytest.raises(BadArgument, match=words):
        profiling.find_bottleneck(step, **{"batches": (torch.ones(4),), **options})


def test_a_limits_vanishing_is_bounded_by_amdahls_law():
    shares = {"input": 0.75, "arithmetic": 0.25, "launch overhead": 0.0, "memory bandwidth": 0.0, "communication": 0.0}
    found = Limit(shares, (), 1.0)
    assert found.dominant == "input"
    assert found.bound("input") == pytest.approx(4)
    assert found.bound("arithmetic") == pytest.approx(4 / 3)
    assert Limit({**shares, "input": 1.0, "arithmetic": 0.0}, (), 1.0).bound("input") == math.inf
    assert Limit({**shares, "input": 0.5, "arithmetic": 0.5}, (), 1.0).dominant is None


def test_a_loop_beyond_the_ceiling_is_told_that_the_ceiling_is_too_low():
    shares = {"memory bandwidth": 0.9, "input": 0.1}
    assert "at 112% of this machine's ceiling (a ceiling that was" in str(Limit(shares, (), 1.0, of_ceiling=1.12))
    assert "too low" not in str(Limit(shares, (), 1.0, of_ceiling=0.9))


PACE = Pace({"float32": 1e9}, 1e9, empty_s=1e-6, dearest_s=30e-6, gap_s=1e-5, launch_s=5e-6)


def shares_of(call, doubled_s=None, more=1, pace=PACE):
    doubled = None if doubled_s is None else [OperatorCall(call.name, doubled_s, more * call.flop, call.n_bytes)]
    found = split_by_limit([call], doubled, pace)
    return {name: seconds for name, seconds in found.items() if seconds}


@pytest.mark.parametrize(
    ("call", "doubled_s", "expected"),
    [
        (OperatorCall("mm", 101e-6, 1e5, 1e3), 200e-6, {"arithmetic": 100e-6}),  # at its floor
        (OperatorCall("add", 101e-6, 0, 1e5), 200e-6, {"memory bandwidth": 100e-6}),
        (OperatorCall("add", 101e-6, 0, 3e4), 101e-6, {"memory bandwidth": 100e-6}),  # three times a copy's time
        (OperatorCall("mm", 26e-6, 1e3, 1e2), 26e-6, {"arithmetic": 1e-6, "launch overhead": 24e-6}),  # doesn't grow
        (OperatorCall("mm", 26e-6, 1e3, 1e2), None, {"arithmetic": 1e-6, "launch overhead": 24e-6}),
        (OperatorCall("mm", 101e-6, 1.5e4, 1e3), 201e-6, {"arithmetic": 100e-6}),  # a tenth of the ceiling, and grows
        (OperatorCall("mm", 101e-6, 1e3, 1e2), 201e-6, {"unknown": 100e-6}),  # a hundredth
        (OperatorCall("svd", 1001e-6, 0, 1e4), 1001e-6, {"unknown": 970e-6, "launch overhead": 30e-6}),  # capped
        (OperatorCall("erfinv", 1001e-6, 0, 1e4), 2001e-6, {"unknown": 1e-3}),  # a hundred times a copy's time
        (OperatorCall("c10d.allreduce_", 6e-6, 0, 0), None, {"communication": 5e-6}),
        (OperatorCall("between devices: copy_", 6e-6, 0, 0), None, {"input": 5e-6}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_operators_time_is_split_by_what_limits_it(call, doubled_s, expected):
    assert shares_of(call, doubled_s) == pytest.approx(expected, abs=1.1e-6)


def test_what_a_product_prepares_for_any_batch_is_launch_overhead_on_a_cpu():
    call, on_cpu = OperatorCall("convolution", 201e-6, 1e4, 1e3), dataclasses.replace(PACE, on_cpu=True)
    assert shares_of(call, 261e-6, more=2, pace=on_cpu) == pytest.approx(
        {"launch overhead": 140e-6, "arithmetic": 60e-6}, abs=1.1e-6
    )
    # Work on weights alone doesn't grow either, and is no launch. A GPU may have had room for both halves at once.
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
    found = {**split_by_limit(calls, None, PACE), "other host work": 0.0}
    pace.divide_gaps(found, calls, PACE, 0.1 + in_call_s + gap_s, waits_s)
    assert found["other host work"] == pytest.approx(host_s, abs=1e-4)
    assert found["communication"] == pytest.approx(in_call_s + waits_s, abs=1e-4)
    assert sum(found.values()) == pytest.approx(0.1 + in_call_s + gap_s, abs=1e-4)


def test_the_function_with_the_most_seconds_is_named_with_its_longest_line():
    lines = Lines({("often", "a.py", 1): 0.2, ("often", "a.py", 2): 0.3, ("once", "a.py", 9): 0.4})
    assert longest(lines) == "often (a.py, line 2)"
    assert not longest(Lines())


def test_work_in_c_counts_for_its_caller_where_the_thread_lets_others_run_only_in_what_it_calls_back():
    """json.dumps in C holds the interpreter until it calls a function of Python: there all samples are taken."""
    samples = StackSamples()

    def called_back(value):
        return None

    def dumps():
        numbers = [0.1 * i for i in range(2_000)] + [object()]
        for _ in range(200):
            json.dumps(numbers, default=called_back)

    with samples.taken():
        until_s = perf_counter() + 0.5
        while perf_counter() < until_s:
            dumps()
    lines = Lines()
    for _, place, seconds in samples.seen:
        lines[place] += seconds  # type: ignore[assignment]  # a Counter of seconds
    assert longest(lines).startswith("dumps (")
    assert not any(name == "called_back" for name, *_ in lines)


def test_python_between_short_operators_gets_its_samples():
    """Each operator lets the sampling thread wait anew: a wait that ends late never asks for the interpreter."""
    samples, row = StackSamples(), torch.ones(64)

    def in_python():
        return sum(1 for _ in range(3_000))

    def step():
        in_python()
        row + row

    with samples.taken():
        until_s = perf_counter() + 0.5
        while perf_counter() < until_s:
            step()
    lines = Lines()
    for _, (name, *_), seconds in samples.seen:
        lines[name] += seconds  # type: ignore[assignment]  # a Counter of seconds
    assert lines["in_python"] > 2 * (lines["step"] + lines["test_python_between_short_operators_gets_its_samples"])


def test_a_turn_in_which_no_thread_left_a_core_does_not_ask_how_long_it_waited(monkeypatch):
    """Each system call costs a step of 1 ms a hundredth of its time."""
    switches, asked = iter([5, 5, 5, 6, 6]), []
    monkeypatch.setattr(stopwatch, "faults_and_switches", lambda: (0, next(switches)))
    watch = StepWatch("cpu")
    monkeypatch.setattr(watch._clock, "waited_s", lambda: asked.append(1) or 0.0)
    for _ in range(4):
        watch.begin()
    watch.end()
    assert len(asked) == 2
    assert len(watch.turns) == 4


def test_a_wait_for_a_core_is_taken_from_both_parts_of_its_turn(monkeypatch):
    """A turn of 3 s, in which it waits 1 s for its batch, then one of 4 s, in which it has no core for 1 s."""
    seconds, waits, switches = iter([0, 0, 1, 3, 3, 4, 7]), iter([0.0, 0.0, 1.0]), itertools.count()
    monkeypatch.setattr(watched_steps, "perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr(stopwatch, "faults_and_switches", lambda: (0, next(switches)))
    watch = StepWatch("cpu")
    monkeypatch.setattr(watch._clock, "waited_s", lambda: next(waits))
    for _ in range(2):
        watch.begin()
        watch.mark("input_s")
        watch.mark("step_s")
    watch.end()
    assert [(turn.input_s, turn.step_s) for turn in watch.turns] == [(1.0, 2.0), (0.75, 2.25)]


def test_a_function_that_waits_in_a_collective_is_named_so():
    path, names = f"{torch.distributed.__path__[0]}/collectives.py", {"place_of": place_of, "sys": sys}
    exec(compile("def all_reduce(): return place_of(sys._getframe())", path, "exec"), names)

    def step():
        return names["all_reduce"]()

    assert step()[0] == "step, in a collective"


def test_a_float32_convolution_is_held_against_tf32_where_that_was_measured():
    pace = dataclasses.replace(PACE, flop_per_s={"float32": 1e9, "tf32": 8e9})
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


N, ROW = 1024, torch.tensor([3])
a, b, table = torch.rand(N), torch.rand(N), torch.rand(64, 16)
ADAM_READS_AND_WRITES = 1 + 2 + 2 + 2  # the gradient, and both ways the weight and its two averages


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
        (lambda: table.index_add_(0, ROW, table[:1].clone()), 5 * 16 + 2),  # 2 to clone the row; ROW is 8 bytes
    ],
    ids=lambda value: "",
)
def test_bytes_are_what_an_operator_reads_and_writes(work, numbers):
    assert sum(call.n_bytes for call in operator_timing.timed_calls(work, no_sync)) == 4 * numbers


@pytest.mark.parametrize(("options", "least"), [({"foreach": True}, 2), ({"foreach": False}, 2), ({"fused": True}, 1)])
def test_an_optimizers_bytes_are_counted_however_it_is_run(options, least):
    weight = torch.nn.Parameter(torch.rand(N))
    weight.grad = torch.rand(N)
    optimizer = torch.optim.Adam([weight], **options)
    optimizer.step()
    n_bytes = sum(call.n_bytes for call in operator_timing.timed_calls(optimizer.step, no_sync))
    assert least * ADAM_READS_AND_WRITES <= n_bytes / (4 * N) < 3.5 * ADAM_READS_AND_WRITES


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
    runs = [[OperatorCall("a", s, 0, 0, before_s=s / 2), OperatorCall("b", 1.0, 0, 0)] for s in (3.0, 9.0, 2.0)]
    calls = operator_timing.typical_calls(runs)
    assert [(call.name, call.seconds, call.weight) for call in calls] == [("a", 2.0, 1.0), ("b", 1.0, 1.0)]
    assert calls[0].before_s == 1.0
    calls = operator_timing.typical_calls([*runs, [OperatorCall("c", 4.0, 0, 0)]])
    assert [(call.name, call.weight) for call in calls] == [("a", 0.75), ("b", 0.75), ("c", 0.25)]
    found = split_by_limit([calls[-1]], None, PACE)
    assert found["unknown"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("inference", [False, True])
def test_the_flop_of_a_call_are_counted_for_attention_and_lstms_too(inference):
    q, layer = torch.rand(1, 2, 5, 4), torch.nn.LSTM(4, 5)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode(inference):
        assert profiling.counted_flop(lambda: attend(q, q, q)) == 2 * (2 * 2 * 5 * 5 * 4)
        assert profiling.counted_flop(lambda: torch.nn.functional.linear(q, q[0, 0])) == 2 * 10 * 4 * 5
        assert profiling.counted_flop(lambda: layer(torch.rand(3, 2, 4))) == 2 * 3 * 2 * (20 * 4 + 20 * 5)
        assert profiling.counted_flop(lambda: q + 1) == 0


def test_backward_passes_count():
    q, layer = torch.rand(1, 2, 5, 4, requires_grad=True), torch.nn.LSTM(4, 5)
    attend = torch.nn.functional.scaled_dot_product_attention
    forward = profiling.counted_flop(lambda: attend(q, q, q))
    # Of five products, backward makes the scores a second time.
    assert profiling.counted_flop(lambda: attend(q, q, q).sum().backward()) == 3.5 * forward
    x = torch.rand(3, 2, 4)
    assert profiling.counted_flop(lambda: layer(x)[0].sum().backward()) == 3 * profiling.counted_flop(lambda: layer(x))


@pytest.mark.parametrize("name", sampled(mixed_loops.LOOPS, 4))
def test_loops_with_irregular_or_several_causes_are_named_or_in_doubt(time, name):
    limit, place, make = mixed_loops.LOOPS[name]
    found = profiling.find_bottleneck(*make(time), budget_s=8, ceilings=CEILINGS)
    assert (found.dominant == limit and found.line.startswith(place)) or found.doubt, found


@pytest.mark.parametrize("name", mixed_loops.OWN)
def test_loops_of_scripts_with_several_optimizers_or_loaders_are_named(time, name):
    limit, loop, batches = mixed_loops.OWN[name]
    watched = profiling.watch(batches(time), steps=30, ceilings=CEILINGS, device="cpu", say=str)
    loop(watched, time)
    assert watched.limit.dominant == limit, watched.limit
