"""find_bottleneck: how its experiments divide a loop's time, what it says of it, and
what it refuses.
"""

import contextlib
import dataclasses
import io
import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch

import steptime as profiling
from steptime.errors import TooLittleSeen
from steptime.judge import experiments, operator_limits, tried_changes
from steptime.judge.tried_changes import cores, doubled_batch
from steptime.limits import Gain, Limit
from steptime.loop import turns
from steptime.loop.turn_patterns import seen
from steptime.loop.turns import TurnWatch
from steptime.measure import budget, clock, machine
from steptime.measure.machine import no_sync
from steptime.measure.operator_hooks import EachOperator
from steptime.measure.stack_samples import Lines, StackSamples, no_collection
from test_steptime.loop_parts import small_batch, small_step
from test_steptime.loops_input import slow_source
from test_steptime.loops_launches import many_small_layers
from test_steptime.loops_occasional_work import validated_now_and_then
from test_steptime.virtual_time import CEILINGS, LAUNCH_S

pytestmark = pytest.mark.slow  # runs whole training loops


def test_waits_for_a_core_are_told_from_a_slow_machine(monkeypatch):
    readings = [(10**9, 10**6), (2 * 10**9, 2 * 10**6), (2 * 10**9, 10**9 + 10**6)]
    monkeypatch.setattr(machine, "_ran_and_waited", lambda: readings.pop(0))
    busy = machine.core_waits()
    assert [busy(), busy()] == ["", "this process waited for a core 50% of its time"]


def test_launches_that_become_dearer_meanwhile_are_no_work_of_the_host(time):
    launches = []

    def dearer(func, args, kwargs):
        launches.append(func)
        # twice as dear after 2,000 operators, and so on
        time.wait(LAUNCH_S * len(launches) / 2_000)
        return func(*args, **kwargs)

    with EachOperator(dearer):
        limit = profiling.find_bottleneck(
            *many_small_layers(time), budget_s=0.1, ceilings=CEILINGS
        )
    assert limit.dominant == "launch overhead", limit


def test_what_sampling_the_stack_costs_counts_nowhere(time, monkeypatch):
    sampling = []

    @contextlib.contextmanager
    def taken(self):
        sampling.append(True)
        yield
        sampling.clear()

    monkeypatch.setattr(StackSamples, "taken", taken)
    step, batch = many_small_layers(time)

    def sampled_step(batch):
        time.wait(1.0 if sampling else 0.0)
        step(batch)

    limit = profiling.find_bottleneck(
        sampled_step, batch, budget_s=0.1, ceilings=CEILINGS
    )
    assert time.now_s > 1, "samples were taken"
    assert limit.dominant == "launch overhead", limit


class BusyCore:
    """A clock, and the system's file of a thread's waits for its core, which others
    have for 6 of every 8 s.
    """

    def __init__(self, path):
        self.path = path
        self.now_s = 8.0
        self.waited_s = 0.0
        self.write()

    def write(self):
        self.path.write_text(f"0 {round(1e9 * self.waited_s)} 0")

    def work(self):
        self.now_s += 8.0
        self.waited_s += 6.0
        self.write()

    def operator(self, func, args, kwargs):
        self.work()
        return func(*args, **kwargs)

    def look(self):
        return self.now_s


@pytest.fixture
def busy_core(monkeypatch, tmp_path):
    busy = BusyCore(tmp_path / "schedstat")
    monkeypatch.setattr(clock, "_CORE_WAITS", str(busy.path))
    monkeypatch.setattr(clock, "perf_counter", busy.look)
    return busy


def test_time_in_which_others_have_the_core_does_not_count(busy_core):
    assert clock.mean_s(busy_core.work, no_sync) == 2.0
    assert clock.mean_s(busy_core.work, lambda: None) == 8.0, (
        "a device works on meanwhile"
    )


def test_a_wait_within_a_look_at_the_clock_counts_in_no_reading(busy_core, monkeypatch):
    waits = [False, True, False]  # one right after a look

    def look_and_wait():
        now_s = busy_core.look()
        if waits and waits.pop(0):
            busy_core.now_s += 6.0
            busy_core.waited_s += 6.0
            busy_core.write()
        return now_s

    monkeypatch.setattr(clock, "perf_counter", look_and_wait)
    assert clock.mean_s(busy_core.work, no_sync) == 2.0
    assert waits == []


def test_ceilings_are_measured_by_the_clock_that_times_operators(busy_core):
    with EachOperator(busy_core.operator):
        limit = profiling.measure_ceilings("cpu")
    assert limit.copy_bytes_per_s == 2 * 2**27 / 2
    assert limit.matmul_flop_per_s == {"float32": 2 * 1024**3 / 2}


def test_the_evidence_names_each_experiment(time):
    step, fetch = slow_source(time)
    evidence = " ".join(
        profiling.find_bottleneck(step, fetch, budget_s=0.5, ceilings=CEILINGS).evidence
    )
    for words in (
        "a batch is waited for",
        "Input alone",
        "Batch doubled",
        "By the ceilings",
        "a tiny training step",
    ):
        assert words in evidence


def test_a_step_that_refuses_twice_the_batch_is_judged_without(time):
    step, batch = many_small_layers(time)

    def strict(batch):
        if len(batch[0]) > 4:
            raise RuntimeError("out of memory")
        step(batch)

    limit = profiling.diagnose(strict, batch, budget_s=0.2, ceilings=CEILINGS)
    assert limit.dominant == "launch overhead"
    assert "it was refused (RuntimeError: out of memory)" in str(limit)
    assert not any("twice the batch" in gain.change for gain in limit.gains)
    # the batch was in memory
    assert limit.shares["input"] == 0
    assert "a batch is waited for" not in str(limit)


@pytest.mark.parametrize(
    "batch",
    [None, 7, torch.ones(()), SimpleNamespace(x=torch.ones(4, 8))],
    ids=["none", "number", "scalar", "object"],
)
def test_a_batch_without_rows_that_are_seen_is_not_doubled(batch):
    with pytest.raises(TypeError, match="no tensor with rows was found in it"):
        doubled_batch(batch)


def test_a_change_that_takes_away_what_the_step_relies_on_is_left_out(time):
    train = small_step()

    def packed(batch):
        time.work(0.02)
        buffer = io.BytesIO()
        torch.save(batch, buffer)
        # EOFError where torch.save writes nothing
        train(torch.load(io.BytesIO(buffer.getvalue())))

    limit = profiling.diagnose(packed, small_batch(), budget_s=0.5, ceilings=CEILINGS)
    assert limit.dominant == "other host work"
    assert limit.gains == ()


def test_steps_that_differ_are_told_from_usual_ones(time):
    limit = profiling.find_bottleneck(
        *validated_now_and_then(time), budget_s=8, ceilings=CEILINGS
    )
    assert "The steps differ, with" in str(limit)
    assert limit.dominant == "occasional work"


class Bursts:
    """A loader whose four workers deliver side by side: four batches at once, then none
    for 0.4 s.
    """

    num_workers = 4
    prefetch_factor = 2

    def __init__(self, time, taken=0):
        self.time = time
        self.taken = taken

    def __iter__(self):
        for _ in range(10**6):
            self.time.wait(0.0 if self.taken % 4 else 0.4)
            self.taken += 1
            yield small_batch()


@pytest.mark.parametrize("taken", range(4))
def test_batches_that_come_in_bursts_count_by_their_mean(time, taken):
    limit = profiling.find_bottleneck(
        small_step(), Bursts(time, taken), budget_s=8, ceilings=CEILINGS
    )
    assert limit.input_s == pytest.approx(0.1, rel=0.01)
    assert limit.loop_s == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("trying", [False, True], ids=["found", "tried"])
@pytest.mark.parametrize(
    ("step_s", "fetch_s", "every", "work_s", "is_iterable"),
    [
        (0.39, 0.0, 1, 0.0, False),
        (0.0, 0.39, 1, 0.0, False),
        (0.2, 0.19, 1, 0.0, False),
        (0.0, 0.39, 1, 0.0, True),
        (0.19, 0.2, 1, 0.0, True),
        (0.01, 0.0, 1, 0.0, False),
        (0.02, 0.0, 10, 0.37, False),
        (0.02, 0.0, 50, 0.37, False),
    ],
)
def test_the_whole_call_keeps_to_its_budget_within_a_quarter(
    time, step_s, fetch_s, every, work_s, is_iterable, trying
):
    train = small_step()
    batch = small_batch()
    numbers = itertools.count(1)

    def step(batch):
        time.wait(step_s)
        train(batch)
        if next(numbers) % every == 0:
            time.wait(work_s)

    def fetch():
        time.wait(fetch_s)
        return batch

    batches = (fetch() for _ in range(10**6)) if is_iterable else fetch
    page = profiling.find_bottleneck(
        step, batches, budget_s=8, ceilings=CEILINGS, try_changes=trying
    )
    if trying and not step_s:
        assert page.gain("input").low > 1
    assert page.loop_s < 8 / 20
    assert time.now_s < 1.25 * 8


@pytest.mark.parametrize("every", [1, 2, 5])
def test_no_reading_of_0_s_is_divided_by(time, monkeypatch, every):
    """The clock leaves out what others take: of each so many readings, all of one."""
    readings = itertools.count(1)

    def mean_s(work, sync, runs=1):
        seconds = clock.mean_s(work, sync, runs)
        return 0.0 if next(readings) % every == 0 else seconds

    for module in (budget, experiments, operator_limits, tried_changes):
        monkeypatch.setattr(module, "mean_s", mean_s)
    torch.set_num_threads(2 * cores())  # `time` puts them back
    _, fetch = slow_source(time)

    def step(batch):
        batch[0].add(1)

    if every == 1:
        with pytest.raises(TooLittleSeen, match="to take time, measured 0 s"):
            profiling.find_bottleneck(step, fetch, budget_s=0.5, ceilings=CEILINGS)
        return
    page = profiling.find_bottleneck(
        step, fetch, budget_s=0.5, ceilings=CEILINGS, try_changes=True
    )
    assert page.dominant == "input"
    for gain in page.gains:
        assert gain.high < 1e4
    assert not re.search(r"\binf\b", str(page))


def test_a_loaders_iterator_is_let_go_at_the_end_and_its_workers_with_it(time):
    """A thread of theirs that is inside torch when the program ends would abort it."""
    ended = []

    class Batches:
        def __iter__(self):
            try:
                while True:
                    time.wait(0.02)
                    yield small_batch()
            finally:
                ended.append(True)

    with no_collection():
        profiling.find_bottleneck(
            small_step(), Batches(), budget_s=0.2, ceilings=CEILINGS
        )
        assert ended == [True]


def test_a_loop_of_0_s_is_refused():
    with pytest.raises(TooLittleSeen, match="the loop's steps"):
        seen([turns.Turn() for _ in range(40)], Lines())
    with pytest.raises(ValueError, match="loop_s to be a finite number above 0"):
        Limit({"input": 1.0}, (), 0.0)


@pytest.mark.parametrize(("step_s", "fetch_s"), [(2.0, 0.5), (0.0, 1.5)])
def test_slow_loops_are_judged_within_20_s(time, step_s, fetch_s):
    train = small_step()
    batch = small_batch()

    def step(batch):
        time.wait(step_s)
        train(batch)

    def fetch():
        time.wait(fetch_s)
        return batch

    limit = profiling.find_bottleneck(step, fetch, ceilings=CEILINGS)
    assert limit.dominant == ("input" if fetch_s > step_s else "other host work")
    assert time.now_s < 20


def test_a_step_without_operators_is_refused():
    with pytest.raises(TooLittleSeen, match="called no operator of torch"):
        profiling.find_bottleneck(
            lambda batch: None, (torch.ones(4),), budget_s=0.1, ceilings=CEILINGS
        )


@pytest.mark.parametrize(
    ("step", "options", "error", "words"),
    [
        ("step", {}, TypeError, "Expected step to be a function of 1 argument"),
        (
            torch.nn.Linear(4, 4),
            {},
            TypeError,
            "a function that trains on a batch, got Linear.*In it, call the model",
        ),
        (print, {"budget_s": 0}, ValueError, "budget_s to be a finite number above 0"),
        (print, {"budget_s": "8"}, TypeError, "a finite number above 0, got '8'"),
        (print, {"batches": 3}, TypeError, "Expected batches to be an iterable"),
    ],
)
def test_bad_input_says_what_to_do(step, options, error, words):
    with pytest.raises(error, match=words):
        profiling.find_bottleneck(step, **{"batches": (torch.ones(4),), **options})


def test_no_gain_goes_beyond_what_a_loader_behind_the_step_delivers():
    shares = {"input": 0.0, "arithmetic": 0.9, "launch overhead": 0.1}
    behind = Limit(shares, (), loop_s=0.125, input_s=0.113)
    assert behind.bound("arithmetic") == pytest.approx(125 / 113)
    assert behind.words("launch overhead") == "at most 1.11x"
    assert behind.words("arithmetic") == "-", "operations that are needed are no gain"
    assert Limit(shares, (), loop_s=0.125, input_s=0.2).bound("arithmetic") == 1


def test_a_bound_holds_for_an_edit_that_shortens_what_shares_its_cause():
    shares = {
        "input": 0.3,
        "garbage collection": 0.2,
        "launch overhead": 0.1,
        "occasional work": 0.1,
        "memory bandwidth": 0.1,
        "arithmetic": 0.2,
    }
    lines = {
        "input": "load (a.py, line 3)",
        "occasional work": "load (a.py, line 9)",
        "launch overhead": "train (a.py, line 20)",
    }
    limit = Limit(shares, (), 1.0, lines=lines)
    assert limit.bound("input") == pytest.approx(1 / 0.4)  # its garbage, its line
    assert limit.bound("occasional work") == pytest.approx(1 / 0.6)
    assert limit.bound("garbage collection") == pytest.approx(1 / 0.7)
    # one operator in place of many moves fewer bytes
    assert limit.bound("launch overhead") == pytest.approx(1 / 0.6)
    assert limit.bound("arithmetic") == pytest.approx(1 / 0.8)
    beyond = '"At most" counts what an edit against the limit may shorten besides'
    assert str(limit).count(beyond) == 1
    assert beyond not in str(Limit({"input": 0.3, "arithmetic": 0.7}, (), 1.0))


def test_what_was_tried_stands_in_place_of_a_bound_and_first_on_the_page():
    gains = (
        Gain("input", "a batch already in memory", 2.0, 1.8, 2.2, 6),
        Gain("garbage collection", "without garbage collection", 1.0, 0.9, 1.1, 6),
        Gain("input", "num_workers=2", 2.4, 2.1, 2.5, 6),
    )
    shares = {"input": 0.5, "garbage collection": 0.1, "arithmetic": 0.4}
    limit = Limit(shares, (), 1.0, gains=gains, of_ceiling=0.9)
    assert limit.words("input") == "2.40x, tried"
    assert limit.words("garbage collection") == "no sure gain, tried"
    assert limit.words("arithmetic") == "-"
    assert str(limit).startswith(
        "Change first, num_workers=2: 2.40x as fast (2.10 to 2.50), measured here."
    )
    assert "at most" not in str(limit)


def test_only_what_takes_a_limit_away_as_a_whole_bounds_what_edits_gain():
    away = Gain("input", "a batch already in memory", 9.0, 8.8, 9.2, 6, is_bound=True)
    quiet = Gain("other host work", "without print", 1.0, 0.9, 1.1, 6)
    twice = Gain("launch overhead", "twice the batch", 1.5, 1.4, 1.6, 6)
    shares = {"input": 0.7, "other host work": 0.2, "launch overhead": 0.1}
    limit = Limit(shares, (), 1.0, gains=(away, quiet, twice))
    assert limit.words("input") == "up to 9.00x, tried"
    assert limit.words("other host work") == "at most 1.43x", "other edits may gain"
    assert limit.words("launch overhead") == "1.50x, tried"
    assert limit.best is twice
    assert str(dataclasses.replace(limit, gains=(away, quiet))).startswith(
        "Input limits this loop: without it up to 9.00x, tried."
    )
    only = Limit({"launch overhead": 1.0}, (), 1.0, gains=(twice,))
    assert only.words("launch overhead") == "1.50x or more, tried"
    mixed = {"launch overhead": 0.8, "arithmetic": 0.2}
    most = Limit(mixed, (), 1.0, gains=(twice,)).words("launch overhead")
    assert most == "1.50x, tried; up to 5.00x"


def test_what_a_gpu_does_beside_the_host_bounds_what_less_work_of_the_host_gains():
    shares = {"other host work": 0.9, "arithmetic": 0.1}
    assert Limit(shares, (), 1.0, gpu_s=0.5).bound("other host work") == 2.0


def test_what_rounds_to_no_gain_is_none():
    assert Gain("input", "x", 1.0, 1.0001, 1.0002, 6).gained == "no sure gain"
    assert Gain("input", "x", 1.0, 0.9998, 0.9999, 6).gained == "no sure gain"


@pytest.mark.parametrize(("step_s", "fetch_s"), [(0.39, 0.0), (0.0, 0.39), (0.2, 0.19)])
@pytest.mark.parametrize("trying", [False, True], ids=["found", "tried"])
def test_a_loader_of_many_workers_keeps_to_the_budget(time, step_s, fetch_s, trying):
    class Loader:
        num_workers = 16
        prefetch_factor = 4

        def __iter__(self):
            for _ in range(10**6):
                time.wait(fetch_s)
                yield small_batch()

    train = small_step()

    def step(batch):
        time.wait(step_s)
        train(batch)

    page = profiling.find_bottleneck(
        step, Loader(), budget_s=8, ceilings=CEILINGS, try_changes=trying
    )
    assert time.now_s < 1.25 * 8
    assert page.dominant == ("other host work" if step_s > fetch_s else "input")
    # what the workers have prepared may be among the batches
    assert ("too few for 16 workers" in page.doubt) == (fetch_s > 0)


def test_more_threads_than_cores_keep_to_the_budget(time):
    torch.set_num_threads(2 * cores())  # `time` puts them back
    train = small_step()

    def step(batch):
        time.wait(0.39)
        train(batch)

    profiling.find_bottleneck(
        step, small_batch(), budget_s=8, ceilings=CEILINGS, try_changes=True
    )
    assert time.now_s < 1.25 * 8


def test_changes_that_were_left_out_are_named(time):
    step, fetch = slow_source(time)

    def rare(batch):
        time.wait(0.2)
        step(batch)

    options = {"ceilings": CEILINGS, "device": "cpu", "try_changes": True}
    page = profiling.find_bottleneck(rare, fetch, budget_s=4, **options)
    (sentence,) = (words for words in page.evidence if words.startswith("Not tried"))
    assert "budget_s is too small for it: a batch already in memory" in sentence
    assert len(page.gains) == 1
    page = profiling.find_bottleneck(rare, fetch, budget_s=40, **options)
    assert "Not tried" not in str(page)


def test_one_event_is_no_sure_finding():
    usual = [turns.Turn(step_s=1e-3) for _ in range(40)]
    long = turns.Turn(step_s=1.0, lines=Lines({("save", "a.py", 3): 1.0}))
    shown = seen([*usual, long, *usual], Lines())
    assert shown.doubt == (
        "occasional work was seen in one step only: pass a larger budget_s"
    )
    short = dataclasses.replace(long, step_s=0.01)
    assert not seen([*usual, short, *usual], Lines()).doubt, "it takes a tenth"


def test_what_happens_in_each_nth_step_counts_by_whole_periods():
    long = turns.Turn(step_s=1.0, lines=Lines({("save", "a.py", 3): 1.0}))
    nine = [turns.Turn(step_s=1e-3) for _ in range(9)]
    shown = seen([*nine, long, *nine, long, *nine, long, *nine], Lines())
    assert shown.seconds_of["occasional work"] == pytest.approx(0.0999)
    assert not shown.doubt


def test_nothing_is_left_to_gain_only_where_no_other_type_and_no_edit_is_known():
    shares = {"arithmetic": 0.9, "input": 0.1}
    at_the_ceiling = Limit(shares, (), 1.0, of_ceiling=0.9)
    assert "nothing to gain" in str(at_the_ceiling)
    double = dataclasses.replace(at_the_ceiling, remarks=("It is in float64.",))
    assert "nothing to gain" not in str(double)


def test_a_limits_vanishing_is_bounded_by_amdahls_law():
    shares = {
        "input": 0.75,
        "arithmetic": 0.25,
        "launch overhead": 0.0,
        "memory bandwidth": 0.0,
        "communication": 0.0,
    }
    limit = Limit(shares, (), 1.0)
    assert limit.dominant == "input"
    assert limit.bound("input") == pytest.approx(4)
    assert limit.bound("arithmetic") == pytest.approx(4 / 3)
    assert (
        Limit({**shares, "input": 1.0, "arithmetic": 0.0}, (), 1.0).bound("input")
        == math.inf
    )
    assert Limit({**shares, "input": 0.5, "arithmetic": 0.5}, (), 1.0).dominant is None


def test_a_loop_beyond_the_ceiling_is_told_that_the_ceiling_is_too_low():
    shares = {"memory bandwidth": 0.9, "input": 0.1}
    beyond = str(Limit(shares, (), 1.0, of_ceiling=1.12))
    assert "above this machine's ceiling, which was measured too low" in beyond
    assert "112%" not in beyond
    assert "nothing to gain" not in beyond
    assert "too low" not in str(Limit(shares, (), 1.0, of_ceiling=0.9))


def test_a_turn_in_which_no_thread_left_a_core_does_not_ask_how_long_it_waited(
    monkeypatch,
):
    """Each system call costs a step of 1 ms a hundredth of its time."""
    switches = iter([5, 5, 5, 6, 6])
    asked = []
    monkeypatch.setattr(clock, "faults_and_switches", lambda: (0, next(switches)))
    watch = TurnWatch("cpu")
    monkeypatch.setattr(watch._clock, "waited_s", lambda: asked.append(1) or 0.0)
    for _ in range(4):
        watch.begin()
    watch.end()
    assert len(asked) == 2
    assert len(watch.turns) == 4


def test_a_wait_for_a_core_is_taken_from_both_parts_of_its_turn(monkeypatch):
    """A turn of 3 s, in which it waits 1 s for its batch, then one of 4 s, in which it
    has no core for 1 s.
    """
    seconds = iter([0, 0, 1, 3, 3, 4, 7])
    waits = iter([0.0, 0.0, 1.0])
    switches = itertools.count()
    monkeypatch.setattr(turns, "perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr(clock, "faults_and_switches", lambda: (0, next(switches)))
    watch = TurnWatch("cpu")
    monkeypatch.setattr(watch._clock, "waited_s", lambda: next(waits))
    for _ in range(2):
        watch.begin()
        watch.mark("input_s")
        watch.mark("step_s")
    watch.end()
    assert [(turn.input_s, turn.step_s) for turn in watch.turns] == [
        (1.0, 2.0),
        (0.75, 2.25),
    ]
    told = "without the 500 ms a step in which it waited for a core."
    assert seen(watch.turns, Lines()).evidence[0].endswith(told)
