"""Samples of a thread's stack name the function and the line that it spends its time
in.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep

import pytest
import torch

from steptime.measure.stack_samples import (
    Lines,
    StackSamples,
    longest,
    place_of,
    stack_of,
)


def names_in(samples):
    return {name for _, (name, *_), _ in list(samples.seen)}


@pytest.mark.slow
def test_a_threads_stack_is_sampled_while_it_works_and_while_it_waits():
    samples = StackSamples()

    def working():
        while "working" not in names_in(samples):
            pass

    def waiting():
        while "waiting" not in names_in(samples):
            sleep(1e-3)

    with samples.taken():  # a sampler that saw neither would keep them here
        working()
        samples.now = 5
        waiting()
    assert {file for _, (_, file, _), _ in samples.seen} == {"test_stack_samples.py"}
    assert all(lasted_s > 0 for _, _, lasted_s in samples.seen)
    assert {now for now, place, _ in samples.seen if place[0] == "working"} <= {0, 5}
    assert {now for now, place, _ in samples.seen if place[0] == "waiting"} == {5}


# Collections let the loop's thread go on, and its functions leave frames of other sizes
# in each other's place.
_COLLECTING_LOOP = """
import contextlib, gc, random, threading, time
from steptime.measure import stack_samples

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


@pytest.mark.complete
def test_the_frames_that_are_sampled_outlive_the_garbage_collector():
    ran = subprocess.run(
        [sys.executable, "-c", _COLLECTING_LOOP],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_python_lets_the_sampler_run_at_once_unless_the_loop_has_threads_of_its_own():
    usual_s = sys.getswitchinterval()
    begun = threading.Event()
    stop = threading.Event()

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
        assert sys.getswitchinterval() == usual_s, (
            "its threads take turns as they do without a watch"
        )
    stop.set()
    other.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets waits end late")
def test_the_samplers_waits_end_in_time():
    """Each operator lets it wait anew: a wait that ends late never asks for the
    interpreter.

    Python between short operators would get no samples.
    """
    slack_ns = []

    class Noting(StackSamples):
        def take(self, stack, lasted_s):
            # PR_GET_TIMERSLACK
            slack_ns.append(ctypes.CDLL(None).prctl(30, 0, 0, 0, 0))

    with Noting().taken():
        while not slack_ns:
            pass
    assert set(slack_ns) == {1}


@pytest.mark.slow
def test_work_in_c_counts_for_its_caller_where_it_lets_others_run_only_in_what_it_calls_back():
    """json.dumps in C holds the interpreter until it calls a function of Python: there
    all samples are taken.

    At once, the thread asks for its turn again. A sampler that gave it up before it had
    read the stack would find the function at its end.
    """
    samples = StackSamples()

    def called_back(value):
        return None

    def dumps():
        numbers = [0.1 * i for i in range(2_000)] + [object()]
        for _ in range(200):
            json.dumps(numbers, default=called_back)

    with samples.taken():
        while len(samples.seen) < 20:
            dumps()
    names = names_in(samples)
    assert "dumps" in names
    assert "called_back" not in names


def test_a_function_that_waits_in_a_collective_is_named_so():
    path = f"{torch.distributed.__path__[0]}/collectives.py"
    names = {"place_of": place_of, "stack_of": stack_of, "sys": sys}
    exec(
        compile(
            "def all_reduce(): return place_of(stack_of(sys._getframe()))", path, "exec"
        ),
        names,
    )

    def step():
        return names["all_reduce"]()

    assert step()[0] == "step, in a collective"


@pytest.mark.parametrize(
    "folder",
    [
        str(Path(torch.__file__).parent / "nn"),
        "/home/ann/.local/lib/python3.11/site-packages/torchvision",
        "/usr/lib/python3/dist-packages/numpy",
    ],
)
def test_what_an_installed_package_does_counts_for_the_line_that_calls_it(folder):
    folder = folder.replace("/", os.sep)
    names = {"place_of": place_of, "stack_of": stack_of, "sys": sys}
    source = "def dropout(): return place_of(stack_of(sys._getframe()))"
    exec(compile(source, f"{folder}{os.sep}functional.py", "exec"), names)

    def step():
        return names["dropout"]()

    assert step()[0] == "step"


def test_the_function_with_the_most_seconds_is_named_with_its_longest_line():
    lines = Lines(
        {("often", "a.py", 1): 0.2, ("often", "a.py", 2): 0.3, ("once", "a.py", 9): 0.4}
    )
    assert longest(lines) == "often (a.py, line 2)"
    assert not longest(Lines())
