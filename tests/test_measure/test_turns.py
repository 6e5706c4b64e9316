"""Notebooks take turns, and nobody who holds or plants the lock file breaks or delays a
measurement for long.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from labkit.core.paths import ROOT
from labkit.measure import bench, turns

fcntl = pytest.importorskip("fcntl")  # where files can't be locked, nobody takes turns


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock file of this test's own, in the profile that takes turns."""
    monkeypatch.setenv("LABKIT_PROFILE", "full")
    monkeypatch.setattr(turns, "lock_path", lambda: tmp_path / "turn")
    monkeypatch.setattr(turns, "_patience_s", turns.PATIENCE_S)
    monkeypatch.setattr(turns, "_quiet_s", turns.QUIET_S)
    return tmp_path / "turn"


class VirtualTime:
    """A clock that only sleeping moves, by a millisecond at least.

    `at` says what happens at which second.
    """

    def __init__(self):
        self.now_s = 0.0
        self.at = {}

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += max(seconds, 1e-3)
        for moment_s in [moment_s for moment_s in self.at if moment_s <= self.now_s]:
            self.at.pop(moment_s)()


@pytest.fixture
def clock(monkeypatch):
    virtual = VirtualTime()
    monkeypatch.setattr(turns, "time", virtual)
    return virtual


@pytest.fixture
def holder(lock):
    """Somebody else who holds the turn until `release`: another open file is enough."""
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield SimpleNamespace(release=lambda: fcntl.flock(file, fcntl.LOCK_UN))


def is_free(lock):
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_one_waits_for_the_other_and_says_so(lock, holder, clock):
    said = []
    clock.at[7.0] = holder.release
    with turns.turn(said.append):
        assert not is_free(lock)
        assert turns._holding
    assert 7.0 <= clock.now_s < 7.3
    assert said == [
        "Waiting for another notebook on this machine, which is measuring, for"
        f" {turns.PATIENCE_S:.0f} s at most."
    ]
    assert is_free(lock)


def test_a_turn_that_never_comes_is_not_waited_for_longer_than_the_limit(holder, clock):
    with turns.turn(lambda words: None):
        assert not turns._holding
    assert clock.now_s == pytest.approx(turns.PATIENCE_S, abs=0.01)
    with turns.turn(lambda words: None):
        assert not turns._holding
    # The next is not waited for as long.
    assert clock.now_s == pytest.approx(1.1 * turns.PATIENCE_S, abs=0.01)
    holder.release()
    with turns.turn():
        assert turns._holding
    assert turns._patience_s == turns.PATIENCE_S


@pytest.mark.parametrize("released_s", [None, 7.0], ids=["never", "late"])
def test_all_waits_of_a_call_together_take_10_s_at_most(
    holder, clock, monkeypatch, released_s
):
    """Ceilings alone are a dozen timings: each has its turn within theirs."""
    monkeypatch.setattr(turns, "quiet", lambda: False)
    if released_s is not None:
        clock.at[released_s] = holder.release
    with turns.turn(lambda words: None):
        for _ in range(30):
            with turns.turn(lambda words: pytest.fail("waits again")):
                assert turns._holding == (released_s is not None)
    assert clock.now_s == pytest.approx(10.0, abs=0.01)


def test_a_race_holds_the_turn_and_gives_it_back_whatever_happens(lock):
    seen = []
    bench.time_call(lambda: seen.append(is_free(lock)), label="x", budget_s=0.0)
    bench.compare(
        {"a": lambda: seen.append(is_free(lock)), "b": lambda: None}, budget_s=0.0
    )
    assert set(seen) == {False}
    assert is_free(lock)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            bench.time_call(lambda error=error: (_ for _ in ()).throw(error), label="x")
        assert is_free(lock)
        assert not turns._holding


def test_a_child_that_has_the_file_too_does_not_keep_the_turn(lock):
    """A data worker, forked during a race, has its files."""
    with turns.turn():
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    try:
        assert is_free(lock)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


LOADAVG = "0.50 0.40 0.30 {}/90 1234\n"


@pytest.fixture
def running(monkeypatch):
    """How many threads could run at each look, this process's own among them; the last
    for ever.
    """
    monkeypatch.undo()  # of conftest's calm machine

    def running(*threads, cores=2, usable=2):
        left = list(threads)
        monkeypatch.setattr(turns.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(turns.os, "cpu_count", lambda: cores)
        monkeypatch.setattr(turns, "usable_cores", lambda: usable)
        read = lambda path: LOADAVG.format(left.pop(0) if len(left) > 1 else left[0])  # noqa: E731
        monkeypatch.setattr(turns.Path, "read_text", read)

    return running


@pytest.mark.parametrize(
    ("threads", "cores", "usable", "quiet"),
    [
        ((1,), 2, 2, True),
        ((2,), 2, 2, False),
        ((1, 1, 1, 1, 2), 2, 2, False),
        ((1, 1, 1, 1, 1, 2), 2, 2, True),
        ((13,), 16, 4, True),
        ((14,), 16, 4, False),
    ],
)
def test_it_is_quiet_where_the_others_leave_this_process_its_cores(
    running, threads, cores, usable, quiet
):
    running(*threads, cores=cores, usable=usable)
    assert turns.quiet() is quiet


def test_who_has_the_turn_waits_until_the_others_pause_and_says_so(
    lock, clock, monkeypatch
):
    looks = iter([False] * 5 + [True])
    said = []
    monkeypatch.setattr(turns, "quiet", lambda: next(looks))
    with turns.turn(said.append):
        assert not is_free(lock), "nobody else begins meanwhile"
    assert next(looks, "all seen") == "all seen"
    assert said == [
        "Waiting for other programs on this machine to pause, for"
        f" {turns.QUIET_S:.0f} s at most."
    ]


def test_others_that_do_not_pause_are_waited_for_less_each_time(
    lock, clock, monkeypatch
):
    monkeypatch.setattr(turns, "quiet", lambda: False)
    for waited_s in (10.0, 11.0, 11.1):
        with turns.turn(lambda words: None):
            assert turns._holding, "what is measured then is marked"
        assert clock.now_s == pytest.approx(waited_s, abs=0.01)
    monkeypatch.setattr(turns, "quiet", lambda: True)
    with turns.turn():
        pass
    assert turns._quiet_s == turns.QUIET_S


def test_smoke_does_not_wait_for_others_to_pause(lock, monkeypatch):
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    monkeypatch.setattr(
        turns, "quiet", lambda: pytest.fail("no clock that matters is read")
    )
    with turns.turn():
        assert turns._holding


def test_no_turns_in_ranks_and_workers(lock, monkeypatch):
    with monkeypatch.context() as only_here:
        only_here.setenv("RANK", "0")
        with turns.turn():
            assert not turns._holding
    monkeypatch.setattr(turns.multiprocessing, "parent_process", lambda: object())
    with turns.turn():
        assert not lock.exists()


def link(path):
    path.symlink_to(path.with_name("victim"))


def loop(path):
    path.symlink_to(path)


@pytest.mark.parametrize(
    "plant", [link, loop, os.mkfifo, os.mkdir], ids=lambda plant: plant.__name__
)
def test_what_is_planted_in_its_place_is_left_alone(lock, plant, monkeypatch):
    """A spare name takes its place; where all are planted, that is said, once."""
    monkeypatch.setattr(
        turns.time, "sleep", lambda seconds: pytest.fail("nobody to wait for")
    )
    monkeypatch.setattr(turns, "_said_closed", False)
    said = []
    plant(lock)
    with turns.turn(said.append):
        assert turns._holding
    for spare in range(1, turns._SPARES + 1):
        path = lock.with_name(f"{lock.name}.{spare}")
        path.unlink(missing_ok=True)
        plant(path)
    for _ in range(2):
        with turns.turn(said.append):
            assert not turns._holding
    (sentence,) = said
    assert "can't take turns" in sentence
    assert not lock.with_name("victim").exists()


def test_a_file_that_its_maker_closed_to_others_ends_no_turns(lock):
    """Also for root, who could open it."""
    lock.touch(mode=0)
    with turns.turn():
        assert turns._holding
    assert lock.with_name(f"{lock.name}.1").exists()


def test_the_file_of_another_user_is_locked_too_and_ours_can_be(lock, monkeypatch):
    before = os.umask(0o077)
    try:
        with turns.turn():
            assert turns._holding
    finally:
        os.umask(before)
    assert lock.stat().st_mode & 0o777 == 0o444
    if os.getuid() == 0:
        os.chown(lock, 12345, 12345)
        lock.parent.chmod(0o1777)
    opened = []
    real_open = os.open

    def noted(*arguments):
        opened.append(arguments)
        return real_open(*arguments)

    monkeypatch.setattr(os, "open", noted)
    with turns.turn():
        assert turns._holding
    assert not opened[-1][1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR), (
        "Linux would refuse to create it again"
    )


def test_the_file_is_in_the_folder_that_the_hub_names_or_in_one_of_all_users(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("LABKIT_TURNS", str(tmp_path))
    assert turns.lock_path() == tmp_path / "labkit-turn.lock"
    monkeypatch.delenv("LABKIT_TURNS")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    of_machine = turns.lock_path().parent
    assert of_machine == (
        Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    )


# Two users of a hub: each in a profile with short readings, in a process that says when
# it has the turn.
AS_USER = """
import os, sys
from labkit.measure import turns
turns.quiet = lambda: True  # whatever runs beside the test
os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
with turns.turn(lambda words: print("waits", flush=True), patience_s=300.0):
    print("holds" if turns._holding else "none", flush=True)
    sys.stdin.readline()
"""


def as_user(uid, folder):
    """A process of this user, with a temporary folder that nobody else sees."""
    hidden = folder / f"tmp of {uid}"
    hidden.mkdir()
    environment = os.environ | {
        "LABKIT_TURNS": str(folder),
        "LABKIT_PROFILE": "ci",
        "PYTHONPATH": str(ROOT),
    }
    environment["TMPDIR"] = str(hidden)
    command = [*PRIVATE_TMP, sys.executable, "-c", AS_USER, str(uid)]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# Over a folder of the test's own: the project itself may lie below /tmp.
MOUNT = 'mount -t tmpfs -o mode=1777 none "$TMPDIR" && exec "$@"'
PRIVATE_TMP = ["unshare", "--mount", "sh", "-c", MOUNT, "sh"]


def can_unshare(folder):
    if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("unshare"):
        return False
    environment = os.environ | {"TMPDIR": str(folder)}
    command = [*PRIVATE_TMP, "true"]
    tried = subprocess.run(command, env=environment, check=False, capture_output=True)
    return tried.returncode == 0


@pytest.mark.slow
def test_two_users_take_turns():
    """As The Littlest JupyterHub starts kernels: each user has a temporary folder
    alone.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        if not can_unshare(folder):
            pytest.skip("only root may become two users and mount a folder for each")
        first = as_user(12345, folder)
        second = None
        try:
            assert first.stdout.readline() == "holds\n"
            second = as_user(12346, folder)
            assert second.stdout.readline() == "waits\n"
            print(file=first.stdin, flush=True)
            assert second.stdout.readline() == "holds\n"
        finally:
            for process in filter(None, (first, second)):
                process.kill()
                process.communicate()


def test_without_file_locks_nobody_waits(lock, monkeypatch):
    monkeypatch.setattr(turns, "fcntl", None)
    with turns.turn():
        assert not turns._holding
