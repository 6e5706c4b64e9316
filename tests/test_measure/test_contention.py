"""What a measurement loses to other programs, from planted counters and from real loops
on one core.
"""

import itertools
import os
import subprocess
import sys
import time

import pytest

import labkit
from labkit.measure import bench, contention
from labkit.measure.contention import (
    BUSY,
    CellMeter,
    Contention,
    Reading,
    Watch,
    between,
)

REAL_READ = contention.read
# threads of a process
ONE = (1, 1)
TWO = (1, 2)


def reading(at_s=0.0, threads=None, cores=2, own_s=0.0, all_s=0.0, **more):
    return Reading(at_s, cores, threads, own_s, all_s, **more)


def after(seconds, threads, **more):
    """What was lost in so many seconds, with threads that began at their counters'
    zero.
    """
    return between(reading(threads={}), reading(seconds, threads, **more))


def test_a_calm_measurement_lost_nothing():
    assert after(
        1.0, {ONE: (1.0, 0.0), TWO: (0.9, 0.002)}, own_s=1.9, all_s=1.95
    ) == Contention(0.0)
    found = after(1.0, {ONE: (1.0, 0.0), TWO: (0.9, 0.03)}, own_s=1.9, all_s=1.95)
    assert found.lost == pytest.approx(0.03 / 1.93)
    assert found.reason == ""
    two_ticks = after(0.2, {ONE: (0.2, 0.0), TWO: (0.1, 0.1)}, own_s=0.3, all_s=0.31)
    assert two_ticks == Contention(0.0), "CPU times are off by a tick at either end"
    assert after(2e-3, {ONE: (1e-3, 1e-3)}, own_s=0.0, all_s=0.02) == Contention(0.0), (
        "a cell that does nothing"
    )


def test_what_another_program_took_is_named_with_its_share():
    found = after(1.0, {ONE: (0.62, 0.38)}, cores=1, own_s=0.62, all_s=1.0)
    assert found == Contention(
        pytest.approx(0.38),
        "this machine was busy: 38 % of the time waiting for a core",
    )


def test_threads_that_wait_for_each_other_make_no_busy_machine():
    eight = {(1, i): (0.25, 0.75) for i in range(8)}
    assert after(1.0, eight, own_s=2.0, all_s=2.0) == Contention(0.0)
    # In turns of eight and of one, they wait for each other as much as for anybody:
    # nobody else ran.
    burst = {(1, i): (0.1875, 0.3125) for i in range(8)}
    assert after(1.0, burst, own_s=1.5, all_s=1.5).reason == ""


def test_of_a_crowd_of_its_own_only_what_others_took_counts():
    crowd = {(1, i): (0.2, 0.8) for i in range(8)}
    assert after(1.0, crowd, own_s=1.6, all_s=2.0).lost == pytest.approx(0.4 / 2.0)


def test_a_moment_of_waiting_in_a_long_sleep_is_no_busy_machine():
    assert after(1.0, {ONE: (0.02, 0.03)}, own_s=0.02, all_s=2.0).lost == pytest.approx(
        0.03
    )


def test_a_ranks_time_counts_after_its_process_has_ended(monkeypatch):
    monkeypatch.setattr(contention, "_ended", (0.0, 0.0))
    before = REAL_READ()
    contention.add_ended([(3.0, 1.0), (2.0, 1.0)])
    assert contention._spent(
        {k: before.threads[k] for k in [(0, 0)]}, {(0, 0): contention._ended}
    ) == (5.0, 2.0)


def test_what_the_host_of_a_virtual_machine_took_has_its_own_sentence():
    found = after(1.0, {ONE: (0.8, 0.0)}, own_s=0.8, all_s=0.8, stolen_s=0.21)
    assert found == Contention(
        pytest.approx(0.2),
        "this virtual machine was busy: its host gave 20 % of the time to others",
    )
    assert (
        after(0.1, {ONE: (0.1, 0.0)}, own_s=0.1, all_s=0.1, stolen_s=0.01).reason == ""
    ), "one step of the counter"


def test_a_containers_limit_has_its_own_sentence_if_others_used_it_up():
    threads = {ONE: (0.7, 0.0)}
    found = after(1.0, threads, own_s=0.7, all_s=1.0, stopped_s=0.3, group_s=1.0)
    assert (
        found.reason
        == "this container was busy: its CPU limit stopped it 30 % of the time"
    )
    assert (
        after(1.0, threads, own_s=0.7, all_s=0.7, stopped_s=0.3, group_s=0.7).reason
        == ""
    ), "its own use alone"


def test_where_the_system_does_not_say_it_is_unknown_and_never_calm():
    assert after(1.0, None, own_s=0.8, all_s=0.8) == Contention(None, "")
    assert (
        after(1.0, None, own_s=0.8, all_s=2.0).reason
        == "this machine was busy: other programs used 1.2 of its cores"
    )
    assert after(1.0, None, own_s=2.0, all_s=2.0) == Contention(None, ""), (
        "its own threads fill the cores"
    )


def test_what_threads_waited_that_have_ended_is_unknown():
    left = {ONE: (0.01, 0.0)}
    assert after(1.0, left, own_s=0.9, all_s=1.0) == Contention(None, "")
    assert after(1.0, left, own_s=0.9, all_s=2.0).reason.startswith(
        "this machine was busy: other programs used 1.1"
    )


def test_a_system_that_counts_only_zeros_does_not_say(tmp_path):
    path = tmp_path / str(os.getpid()) / "task" / "7" / "schedstat"
    path.parent.mkdir(parents=True)
    path.write_text("0 0 0\n")
    assert contention._threads([contention.psutil.Process()], tmp_path) is None
    path.write_text("2000000000 500000000 12\n")
    assert contention._threads([contention.psutil.Process()], tmp_path)[
        os.getpid(), 7
    ] == (2.0, 0.5)


def test_a_race_beside_other_programs_is_marked_and_not_judged(monkeypatch):
    readings = (
        reading(n, {ONE: (0.5 * n, 0.5 * n)}, cores=1, own_s=0.5 * n, all_s=1.0 * n)
        for n in itertools.count()
    )
    monkeypatch.setattr(contention, "read", lambda: next(readings))
    race = bench.compare({"a": list, "b": lambda: [[] for _ in range(9)]}, budget_s=0.0)
    timing = race.timings[0]
    ratio = race.ratio("b")
    assert timing.contention.lost == pytest.approx(0.5)
    assert timing.busy == "this machine was busy: 50 % of the time waiting for a core"
    assert timing.busy in str(timing)
    assert ratio.verdict == "not judged"
    assert f"b against a: not judged, since {timing.busy}" in str(ratio)
    assert (
        bench.speedup(timing, bench.Timing("calm", 1.0, (1.0,) * 5)).verdict
        == "not judged"
    )


# A process that has used its core for a while says so, and stays for a minute unless it
# is ended.
USED = (
    "import os, time\nwhile time.thread_time() < 0.05: pass\nos.write(1, b'%d\\n' %"
    " os.getpid())\ntime.sleep(60)"
)


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False])
def test_what_a_process_has_started_counts_as_its_own_and_strangers_do_not(ours):
    if contention._threads([contention.psutil.Process()]) is None:
        pytest.skip("this system doesn't count the time that threads wait")
    # A stranger outlives the process that started it.
    starter = (
        USED
        if ours
        else (
            "import subprocess, sys; subprocess.Popen([sys.executable, '-c',"
            f" {USED!r}])"
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True
    ) as process:
        pid = int(process.stdout.readline())
        if not ours:
            process.wait()
        try:
            spent = REAL_READ().threads
        finally:
            os.kill(pid, 9)
    assert [
        ran_s >= 0.05 for (owner, _), (ran_s, _) in spent.items() if owner == pid
    ] == [True] * ours


def busy_for(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


@pytest.mark.complete
@pytest.mark.slow
def test_a_launch_knows_its_ranks_time_after_they_have_ended(monkeypatch):
    monkeypatch.setattr(contention, "_ended", (0.0, 0.0))
    monkeypatch.setattr(contention, "read", REAL_READ)
    launched = labkit.launch(busy_for, 2, 0.3)
    if launched.contention.lost is None:
        pytest.skip("this system doesn't count the time that threads wait")
    assert contention._ended[0] > 0.6
    assert launched.contention.reason in repr(launched)


def test_a_simulated_clock_is_not_disturbed_by_real_programs(monkeypatch):
    monkeypatch.setattr(contention, "read", lambda: pytest.fail("nothing to read"))
    ticks = iter(range(10_000))
    assert (
        bench.time_call(
            lambda: None, label="x", clock=lambda: float(next(ticks)), min_runs=5
        ).contention
        is None
    )


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A planted nvidia-smi; returns what sets the processes that it lists."""
    listed = tmp_path / "listed"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$*" = "--query-compute-apps=pid,gpu_uuid --format=csv,noheader"'
        f" ] && cat {listed}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return lambda *rows: listed.write_text(
        "".join(f"{pid}, {uuid}\n" for pid, uuid in rows)
    )


OURS = (os.getpid(), "GPU-1")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([OURS], ""),
        (
            [OURS, (1, "GPU-1"), (2, "GPU-1")],
            "this GPU was shared: others use it (PID 1, 2)",
        ),
        ([OURS, (1, "GPU-2")], ""),
        # a container numbers its processes by itself: which are ours is unknown
        ([(1, "GPU-1")], ""),
        ([], ""),
    ],
)
def test_other_processes_on_the_gpu_are_named(gpu, rows, reason):
    gpu(*rows)
    assert Watch(gpu=True).so_far().reason == reason
    assert Watch().so_far().reason == ""


@pytest.mark.parametrize(("share", "named"), [("-", False), ("37", True)])
def test_a_process_that_does_nothing_on_the_gpu_disturbs_nobody(
    gpu, tmp_path, share, named
):
    gpu(OURS, (1, "GPU-1"))
    table = (
        f"# gpu   pid  type   sm   mem   command\n    0     1     C   {share}    2  "
        " python\n"
    )
    tool = tmp_path / "nvidia-smi"
    tool.write_text(tool.read_text() + f"[ $1 != pmon ] || echo '{table}'\n")
    assert bool(contention.others_on_gpu()) == named


@pytest.mark.parametrize(
    ("active", "slowed"),
    [
        ("0x0000000000000000", False),
        # the driver keeps to the limits of power and temperature
        ("0x0000000000000024", False),
        ("0x0000000000000008", True),
        ("0x0000000000000080", True),
        ("", False),  # a driver before 535 knows no such field
    ],
)
def test_a_gpu_that_its_hardware_slows_down_gives_no_verdict(
    gpu, tmp_path, active, slowed
):
    gpu(OURS)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"{tool.read_text()}[ $1 != --query-gpu=clocks_event_reasons.active ] || echo"
        f" '{active}'\n"
    )
    reason = Watch(gpu=True).so_far().reason
    assert reason == (
        "this GPU was slowed down by its hardware, for heat or its supply"
        if slowed
        else ""
    )
    assert Watch().so_far().reason == ""


@pytest.fixture
def meter(monkeypatch):
    """A meter, and what sets what the running cell loses."""
    lost = [Contention(0.0)]
    monkeypatch.setattr(Watch, "so_far", lambda self: lost[0])
    return CellMeter(), lambda share: lost.__setitem__(
        0, Contention(share, "busy" if share >= BUSY else "")
    )


def test_a_number_has_the_worst_of_the_cells_since_the_last_that_recorded(meter):
    cells, lose = meter
    for share in (0.01, 0.4, 0.02):  # measured in the second, recorded in the third
        cells.begin()
        lose(share)
        if share != 0.02:
            cells.end()
    assert cells.worst(recording=True).lost == 0.4
    assert cells.worst(recording=True).lost == 0.4, "a second number of the same cell"
    cells.end()
    cells.begin()
    assert cells.worst() == Contention(0.02)
