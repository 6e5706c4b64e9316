"""Planted faults: who is to blame is named, and nothing of a launch stays behind."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

import labkit as lab
from labkit.core.paths import ROOT
from ranks import BadArgument, RankFailed, system
from tests.test_ranks.ranks_faults import (
    FAULTS,
    LEAVE,
    MARK,
    huge_result,
    launch_fault,
    prints_letters_in_pieces,
    reports_forever,
    waits_for_nobody,
    works,
    works_for,
)
from tests.test_ranks.ranks_left import left, marked, processes_of, running, strays, used_by_others

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module", autouse=True)
def _warm():
    lab.launch(works, 2)


@linux_only
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_explained_and_leaves_nothing(fault):
    before, words = left(), FAULTS[fault]
    if words is None:
        assert len(launch_fault(fault)) == 2
    else:
        with pytest.raises(RankFailed) as caught:
            launch_fault(fault)
        for expected in words:
            assert expected in str(caught.value)
        assert "comm_trace.py" not in str(caught.value)  # nor any other frame of labkit's
    assert strays(before) == []
    assert not marked(MARK)


@linux_only
@pytest.mark.parametrize("leaves", LEAVE, ids=lambda f: f.__name__)
def test_what_a_rank_leaves_ends_with_the_launch(leaves):
    before = left()
    results = list(lab.launch(leaves, 2))
    assert [rank for rank, *_ in results] == [0, 1]
    assert not any(running(pid) for _, *pids in results for pid in pids)
    assert strays(before) == []


def test_the_innermost_of_the_readers_lines_is_named():
    with pytest.raises(
        RankFailed, match=r'rank 0 waits in recv from 1 .*ranks_faults.py", line \d+, in waits_for_nobody: '
    ):
        launch_fault(waits_for_nobody)


@pytest.fixture
def interruptible():
    """Python's own handler: a shell that starts the tests in the background has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@linux_only
@pytest.mark.usefixtures("interruptible")
def test_a_stop_ends_all_ranks():
    pids, before = set(), processes_of(os.getpid())

    def stop_after_both(report):
        pids.add(report.metrics["pid"])
        if len(pids) == 2:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            pids.add(0)

    with pytest.raises(KeyboardInterrupt):
        lab.launch(reports_forever, 2, timeout_s=200, on_report=stop_after_both)
    while processes_of(os.getpid()) - before:
        time.sleep(0.05)
    assert lab.launch(works, 2) == [[1.0, 1.0], [1.0, 1.0]]


def test_an_error_in_on_report_ends_the_launch():
    def fails(report):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        lab.launch(reports_forever, 2, on_report=fails)


KERNEL = """
import sys
import labkit as lab
from tests.test_ranks import ranks_faults
from tests.test_ranks.ranks_faults import works
if sys.argv[1] == "works":
    print(list(lab.launch(works, 2)) == [[1.0, 1.0]] * 2)
else:
    pids = lambda r: [int(pid) for name, pid in r.metrics.items() if name != "rank"]
    lab.launch(getattr(ranks_faults, sys.argv[1]), 2, on_report=lambda r: print(*pids(r), flush=True))
"""


def kernel(mode, **environment):
    command = [sys.executable, "-c", KERNEL, mode]
    more = {"env": {**os.environ, **environment}, "start_new_session": True}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)


@pytest.fixture
def short_path():
    """A folder whose path leaves room for the name of a socket: 108 characters in all; tmp_path may not."""
    with tempfile.TemporaryDirectory(prefix="lab") as folder:
        yield Path(folder)


@pytest.mark.complete
@linux_only
def test_killing_a_kernel_or_its_group_kills_its_ranks_and_leaves_no_file(short_path):
    kernels = {}
    for kill in (os.kill, os.killpg):
        (short_path / kill.__name__).mkdir()
        kernels[kill] = kernel("reports_forever", TMPDIR=str(short_path / kill.__name__))
    for kill, process in kernels.items():
        files = (short_path / kill.__name__).glob
        seen = set()
        while len(seen) < 2:
            seen.add(int(process.stdout.readline()))
        family = processes_of(process.pid)
        assert seen <= family
        assert list(files("pymp-*")) != []
        kill(process.pid, signal.SIGKILL)
        process.communicate()
        while any(running(pid) for pid in seen | family) or list(files("pymp-*")):
            time.sleep(0.05)  # the server takes its time to unload torch


@pytest.mark.complete
@linux_only
def test_a_killed_kernel_takes_along_what_its_ranks_started(short_path):
    process = kernel("leaves_and_reports_forever", TMPDIR=str(short_path))
    pids = [int(pid) for _ in range(2) for pid in process.stdout.readline().split()]
    assert len(pids) == 6
    assert all(map(running, pids))
    process.kill()
    process.communicate()
    while any(map(running, pids)):
        time.sleep(0.05)


def leads_a_group(pid):
    with contextlib.suppress(ProcessLookupError):  # it may have ended since it was listed
        return os.getpgid(pid) == pid
    return False


@pytest.mark.complete
@linux_only
def test_a_kernel_killed_early_leaves_no_process(short_path):
    shared = {path.name for path in Path("/dev/shm").iterdir()}
    process = kernel("works", TMPDIR=str(short_path))
    while not any(map(leads_a_group, processes_of(process.pid) - {process.pid})):
        time.sleep(0.001)
    family = processes_of(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    while any(map(running, family)):
        time.sleep(0.05)
    assert list(short_path.glob("pymp-*")) == []
    more = {path.name for path in Path("/dev/shm").iterdir()} - shared
    assert not {name for name in more if not used_by_others(name)}


@pytest.mark.complete
@linux_only
def test_a_launch_starts_anew_where_the_system_has_emptied_tmp():
    code = """
import shutil, sys, labkit as lab
from multiprocessing import util
from tests.test_ranks.ranks_faults import works
for _ in range(2):
    print(list(lab.launch(works, 2)) == [[1.0, 1.0]] * 2)
    shutil.rmtree(util.get_temp_dir())
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout == "True\nTrue\n"


LAUNCHES_IN_THREADS = """
import os, sys, threading
import ranks

sys.stderr.write("script runs\\n")
before = dict(os.environ)
returned = []
threads = [threading.Thread(target=lambda: returned.append(list(ranks.launch(os.getcwd, 2)))) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert returned == [[os.getcwd()] * 2] * 3, returned
assert dict(os.environ) == before
"""


def test_launches_in_threads_of_a_script_do_not_run_the_script_again(tmp_path):
    (tmp_path / "script.py").write_text(LAUNCHES_IN_THREADS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "script runs\n")


def test_letters_that_arrive_in_two_pieces_are_printed_whole(capfd):
    lab.launch(prints_letters_in_pieces, 1)
    assert capfd.readouterr().out == "rank 0: µµ\n"


@linux_only
def test_launches_of_two_threads_leave_each_other_alone():
    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(list(lab.launch(works_for, 2, n)))) for n in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1, 1], [3, 3]]


@pytest.mark.complete
def test_two_kernels_launch_at_once():
    both = [kernel("works") for _ in range(2)]
    assert [process.communicate(timeout=200)[0] for process in both] == ["True\n", "True\n"]


def test_a_huge_result_arrives_whole():
    results = lab.launch(huge_result, 2)
    assert all(torch.equal(result, torch.arange(16_000_000, dtype=torch.float32)) for result in results)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nproc": 0}, "Expected nproc to be a whole number from 1 to 120, got 0"),
        ({"nproc": 1.5}, "Expected nproc to be a whole number"),
        ({"fn": 5}, "Expected fn to be a function, got 5"),
        ({"timeout_s": 0}, "Expected timeout_s to be a finite number above 0"),
        ({"threads": 0}, "Expected threads to be a whole number of at least 1"),
        ({"nproc": 10**6}, "from 1 to 120, got 1000000. It is the number of ranks on this machine."),
        ({"nproc": 121}, "from 1 to 120"),
        # its own id: a function's repr has an address, which differs from worker to worker
        pytest.param({"on_report": lambda: None}, "Expected on_report to be a function of 1 argument", id="on_report"),
    ],
    ids=str,
)
def test_what_cannot_be_launched_is_refused_at_once(arguments, words, monkeypatch):
    monkeypatch.setattr(system, "memory_bytes", lambda: 24 << 30)
    with pytest.raises(BadArgument) as caught:
        lab.launch(**{"fn": works, "nproc": 2, **arguments})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_that_cannot_travel_is_refused():
    lock = threading.Lock()
    with pytest.raises(BadArgument, match="Expected a function and arguments that can be sent to another process"):
        lab.launch(lambda: lock, 2)


def test_ranks_beyond_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(system, "memory_bytes", lambda: 1 << 30)
    with pytest.raises(BadArgument, match="40 ranks need about"):
        lab.launch(works, 40)
