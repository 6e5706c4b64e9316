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

import psutil
import pytest

from ranks import RankFailed, hide_frames, launch, system
from ranks.inside.worker import RankActivity
from ranks.launcher import rank_failures
from ranks.launcher.coordinator import RankState
from test_ranks.ranks_faults import (
    FAULTS,
    MARK,
    both_send_first,
    killed,
    launch_fault,
    leaves_all,
    leaves_and_is_killed,
    loops_forever,
    mismatched_collectives,
    passes_3_and_4_numbers,
    passes_two_types,
    prints_letters_in_pieces,
    raises_after_init,
    raises_and_closes_first,
    reports_forever,
    returns_early,
    waits_for_nobody,
    works,
    works_for,
)
from test_ranks.ranks_left import (
    left,
    marked,
    processes_of,
    running,
    strays,
    used_by_others,
)

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TELLING = {
    both_send_first,
    killed,
    leaves_and_is_killed,
    loops_forever,
    mismatched_collectives,
    passes_3_and_4_numbers,
    passes_two_types,
    raises_after_init,
    raises_and_closes_first,
    returns_early,
}
FAULT_PARAMS = [
    pytest.param(
        fault, id=fault.__name__, marks=() if fault in TELLING else pytest.mark.complete
    )
    for fault in FAULTS
]


@pytest.fixture(scope="module", autouse=True)
def _warm():
    launch(works, 2)


@linux_only
@pytest.mark.parametrize("fault", FAULT_PARAMS)
def test_a_fault_is_explained_and_leaves_nothing(fault):
    before = left()
    with pytest.raises(RankFailed) as caught:
        launch_fault(fault)
    for words in FAULTS[fault]:
        assert words in str(caught.value)
    assert "comm_trace.py" not in str(caught.value)  # nor any other frame of ours
    assert strays(before) == []
    assert not marked(MARK)


@linux_only
def test_what_a_rank_leaves_ends_with_the_launch():
    before = left()
    results = list(launch(leaves_all, 2))
    assert [rank for rank, *_ in results] == [0, 1]
    pids = [pid for _, *of_rank in results for pid in of_rank]
    assert len(pids) == 2 * 8
    assert not any(map(running, pids))
    assert strays(before) == []


def test_the_innermost_of_the_readers_lines_is_named():
    words = (
        r'rank 0 waits in recv from 1 .*ranks_faults.py", line \d+, in'
        r" waits_for_nobody: "
    )
    with pytest.raises(RankFailed, match=words):
        launch_fault(waits_for_nobody)


def test_frames_of_a_hidden_folder_are_not_the_readers(monkeypatch):
    frames = [
        ("/mine/train.py", 3, "train", "average(x)"),
        ("/library/average.py", 9, "average", "dist.all_reduce(x)"),
    ]
    waits = RankActivity(frames, "all_reduce")
    states = [RankState(0, None, activity=waits)]
    hidden = list(rank_failures._not_the_readers)
    monkeypatch.setattr(rank_failures, "_not_the_readers", hidden)
    assert 'at File "/library/average.py"' in rank_failures.explain(states, 60.0, "")
    hide_frames("/library")
    assert 'at File "/mine/train.py"' in rank_failures.explain(states, 60.0, "")


def test_who_has_left_a_collective_is_told_from_who_has_not_entered_it():
    series = ("world", 0)
    call = {"call": "broadcast", "name": "broadcast", "key": (*series, 2)}
    inside = RankActivity([], **call, members=(0, 1, 2))
    states = [
        RankState(0, None, activity=inside),
        RankState(1, None, activity=RankActivity([], collectives={series: 1})),
        RankState(2, None, activity=RankActivity([], collectives={series: 2})),
    ]
    words = "call 2 of its group: rank 0 entered, rank 1 not yet, rank 2 left."
    assert words in rank_failures.explain(states, 60.0, "")


def test_letters_that_arrive_in_two_pieces_are_printed_whole(capfd):
    launch(prints_letters_in_pieces, 1)
    assert capfd.readouterr().out == "rank 0: µµ\n"


@pytest.fixture
def interruptible():
    """Python's own handler: a shell that starts the tests in the background has SIGINT
    ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@linux_only
@pytest.mark.usefixtures("interruptible")
def test_a_stop_ends_all_ranks():
    before = processes_of(os.getpid())
    pids = set()

    def stop_after_both(report):
        pids.add(report.metrics["pid"])
        if len(pids) == 2:
            pids.add(0)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launch(reports_forever, 2, timeout_s=200, on_report=stop_after_both)
    while processes_of(os.getpid()) - before:
        time.sleep(0.05)
    assert launch(works, 2) == [[1.0, 1.0], [1.0, 1.0]]


def test_an_error_in_on_report_ends_the_launch():
    def fails(report):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        launch(reports_forever, 2, on_report=fails)


@linux_only
def test_launches_of_two_threads_leave_each_other_alone():
    results = []

    def launch_for(seconds):
        results.append(list(launch(works_for, 2, seconds)))

    threads = [
        threading.Thread(target=launch_for, args=(seconds,)) for seconds in (0.5, 1.5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0.5, 0.5], [1.5, 1.5]]


# ---- other kernels: each loads torch anew ----

KERNEL = """
import sys
from ranks import launch
from test_ranks import ranks_faults

def tell(report):
    print(*(int(pid) for name, pid in report.metrics.items() if name != "rank"), flush=True)

launch(getattr(ranks_faults, sys.argv[1]), 2, on_report=tell)
"""


def kernel(function, folder):
    command = [sys.executable, "-c", KERNEL, function]
    path = os.pathsep.join(map(str, (ROOT, TESTS)))
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


@pytest.fixture
def short_path():
    """A folder whose path leaves room for the name of a socket: 108 characters in all;
    tmp_path may not.
    """
    with tempfile.TemporaryDirectory(prefix="lab") as folder:
        yield Path(folder)


@pytest.mark.complete
@linux_only
def test_killing_a_kernel_or_its_group_kills_all_that_its_ranks_started_and_leaves_no_file(
    short_path,
):
    """Two kernels, which launch at once."""
    kernels = {}
    for kill in (os.kill, os.killpg):
        folder = short_path / kill.__name__
        folder.mkdir()
        kernels[kill] = (folder, kernel("leaves_and_reports_forever", folder))
    for kill, (folder, process) in kernels.items():
        pids = [int(pid) for _ in range(2) for pid in process.stdout.readline().split()]
        assert len(pids) == 6
        assert all(map(running, pids))
        assert list(folder.glob("pymp-*")) != []
        family = processes_of(process.pid)
        kill(process.pid, signal.SIGKILL)
        process.communicate()
        while any(map(running, {*pids, *family})) or list(folder.glob("pymp-*")):
            time.sleep(0.05)  # the server takes its time to unload torch


def leads_a_group(pid):
    # it may have ended since it was listed
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


@pytest.mark.nightly
@linux_only
def test_a_kernel_killed_early_leaves_no_process(short_path):
    shared = {path.name for path in Path("/dev/shm").iterdir()}
    process = kernel("works", short_path)
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


SCRIPT = """
import os, shutil, sys, threading
from multiprocessing import util
import ranks

sys.stderr.write("script runs\\n")
before = dict(os.environ)
returned = []
threads = [threading.Thread(target=lambda: returned.append(list(ranks.launch(os.getcwd, 2)))) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
shutil.rmtree(util.get_temp_dir())  # as the system does with what is old in /tmp
returned.append(list(ranks.launch(os.getcwd, 2)))
assert returned == [[os.getcwd()] * 2] * 4, returned
assert dict(os.environ) == before
"""


@pytest.mark.complete
def test_launches_in_threads_do_not_run_a_script_again_and_go_on_where_tmp_was_emptied(
    tmp_path,
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(script)]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "script runs\n")


# ---- what is refused at once ----


NPROC = "Expected nproc to be a whole number from 1 to 120, got "
TIMEOUT_S = "Expected timeout_s to be a finite number above 0, got "
THREADS = "Expected threads to be a whole number of at least 1, got "


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"nproc": 121}, ValueError, f"{NPROC}121"),
        ({"nproc": -1}, ValueError, f"{NPROC}-1"),
        ({"nproc": True}, TypeError, f"{NPROC}True"),
        ({"nproc": 2.5}, TypeError, f"{NPROC}2.5"),
        ({"nproc": "2"}, TypeError, f"{NPROC}'2'"),
        ({"nproc": None}, TypeError, f"{NPROC}None"),
        ({"fn": 5}, TypeError, "Expected fn to be a function, got 5"),
        ({"fn": "train"}, TypeError, "Pass its name without quotes"),
        ({"timeout_s": 0}, ValueError, f"{TIMEOUT_S}0"),
        ({"timeout_s": float("nan")}, ValueError, f"{TIMEOUT_S}nan"),
        ({"timeout_s": float("inf")}, ValueError, f"{TIMEOUT_S}inf"),
        ({"timeout_s": "9" * 99}, TypeError, f"{TIMEOUT_S}'{'9' * 56}..."),
        ({"threads": 0}, ValueError, f"{THREADS}0"),
        ({"on_report": [5]}, TypeError, "Expected on_report to be a function, got [5]"),
    ],
    ids=str,
)
def test_what_cannot_be_launched_is_refused_at_once(
    arguments, error, words, monkeypatch
):
    monkeypatch.setattr(system, "memory_bytes", lambda: 24 << 30)
    with pytest.raises(error) as caught:
        launch(**{"fn": works, "nproc": 2, **arguments})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_lowest_limit_of_memory_counts(tmp_path):
    own = tmp_path / "own"
    all_of_it = psutil.virtual_memory().total
    assert system.memory_bytes(tmp_path, own) == all_of_it
    own.write_text("0::/pod/app\n")
    (tmp_path / "pod" / "app").mkdir(parents=True)
    (tmp_path / "pod" / "app" / "memory.max").write_text("max\n")
    assert system.memory_bytes(tmp_path, own) == all_of_it
    (tmp_path / "pod" / "memory.max").write_text("268435456\n")
    assert system.memory_bytes(tmp_path, own) == 2**28


def test_a_function_that_cannot_travel_is_refused():
    lock = threading.Lock()
    with pytest.raises(
        TypeError,
        match="Expected a function and arguments that can be sent to another process",
    ):
        launch(lambda: lock, 2)


def test_ranks_beyond_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(system, "memory_bytes", lambda: 1 << 30)
    with pytest.raises(ValueError, match="40 ranks need about"):
        launch(works, 40)
