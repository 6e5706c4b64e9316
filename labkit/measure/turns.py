"""Notebooks on one machine take turns: while one measures, the others wait a moment
instead of disturbing it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.core import results
from labkit.measure.host import usable_cores

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # there nobody takes turns, and what was disturbed is marked

# for all waits of a call together: what others disturb all the same is marked
PATIENCE_S = 10.0
# as long as half a dozen notebooks that are opened together need to load their packages
QUIET_S = 10.0
_patience_s = PATIENCE_S
_quiet_s = QUIET_S
_SPARES = 3
_READABLE = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_said_closed = False
_holding = False
_within = False  # a turn's block, whether the turn came or not


@contextlib.contextmanager
def turn(
    on_wait: Callable[[str], object] | None = None, *, patience_s: float | None = None
) -> Iterator[None]:
    """Wait for this machine's turn, at most `patience_s` seconds (10), and hold it
    within the block.

    After that time the block runs without: what it measures is marked if the others
    disturbed it. After a turn that never came, the next are waited for a tenth as long.
    Programs that take no turns, and what notebooks do between theirs, are waited for
    too, in what is left of these seconds, and a tenth as long after each time that they
    didn't pause. `on_wait` gets a sentence when others are waited for; by default it is
    printed. A turn inside a turn is the same one, and waits no more if that didn't
    come. None is taken by ranks and data workers, whose notebook has it, or where the
    system can't lock files.
    """
    global _holding, _within, _patience_s, _quiet_s
    is_notebook = multiprocessing.parent_process() is None and "RANK" not in os.environ
    file = None
    tell = on_wait or print
    if not _within and fcntl is not None and is_notebook:
        file = _open_any(lock_path(), tell)
    if file is None:
        yield
        return
    _within = True
    limit_s = _patience_s if patience_s is None else patience_s
    until_s = time.monotonic() + limit_s
    try:
        with contextlib.suppress(OSError):  # this file system has no locks
            _holding = _wait(
                lambda: _lock(file),
                limit_s,
                tell,
                "another notebook on this machine, which is measuring",
            )
        _patience_s = PATIENCE_S if _holding else PATIENCE_S / 10
        if _holding and results.profile() != "smoke":
            left_s = max(until_s - time.monotonic(), 0.0)
            paused = _wait(
                quiet,
                min(_quiet_s, left_s),
                tell,
                "other programs on this machine to pause",
            )
            _quiet_s = QUIET_S if paused else _quiet_s / 10
        yield
    finally:
        _holding = _within = False
        with contextlib.suppress(OSError):
            # closing is not enough: a data worker may have a copy of the file
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def lock_path() -> Path:
    """The file that is locked: in LABKIT_TURNS, which containers may share, else in
    /dev/shm: /tmp may be private.
    """
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    return Path(os.environ.get("LABKIT_TURNS") or shared) / "labkit-turn.lock"


def _open_any(path: Path, tell: Callable[[str], object]) -> int | None:
    """The lock file, open, or the first of its spare names that can be opened: a user
    may have put something unreadable in its place. None, in words, where none can.
    """
    global _said_closed
    names = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, _SPARES + 1))]
    for name in names:
        if (file := _open(name)) is not None:
            return file
    if path.parent.is_dir() and not _said_closed:
        _said_closed = True
        tell(
            f"Notebooks on this machine can't take turns, since {path} and its"
            f" {_SPARES} spare names can't be read. What others disturb is marked. An"
            " administrator can make the file anew; `ls -l` shows whose it is."
        )
    return None


def _open(path: Path) -> int | None:
    """The lock file, open; None where that can't be. It may be another user's, and is
    only read.
    """
    # Anyone may have put a link or a pipe in its place.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | flags, 0o444)
            # whatever the umask is: others must be able to open it
            os.fchmod(descriptor, 0o444)
            return descriptor
        file = os.open(path, flags)
    except OSError:
        return None
    status = os.fstat(file)
    # root can open what other users can't, and would take turns with nobody
    readable_by_all = status.st_mode & _READABLE == _READABLE
    if stat.S_ISREG(status.st_mode) and readable_by_all:
        return file
    os.close(file)
    return None


def _lock(file: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def quiet() -> bool:
    """Whether for 50 ms no other program needed one of this process's cores; True where
    the system doesn't say.

    Source: proc_loadavg(5): how many threads could run now, on all cores.
    """
    other_cores = (os.cpu_count() or 1) - usable_cores()
    with contextlib.suppress(OSError):
        for _ in range(5):
            threads = Path("/proc/loadavg").read_text().split()[3]  # runnable/all
            runnable = int(threads.partition("/")[0])
            if runnable > 1 + other_cores:
                return False
            time.sleep(0.01)
    return True


def _wait(
    ready: Callable[[], bool],
    limit_s: float,
    on_wait: Callable[[str], object],
    what: str,
) -> bool:
    """Whether it is ready within `limit_s` seconds."""
    start_s = time.monotonic()
    shown = False
    while not ready():
        waited_s = time.monotonic() - start_s
        if waited_s >= limit_s:
            return False
        if not shown and waited_s > 0.5:  # a shorter wait needs no words
            shown = True
            on_wait(f"Waiting for {what}, for {limit_s:.0f} s at most.")
        # Who has waited twice as long asks four times as often, and so is more likely
        # to be next.
        time.sleep(min(0.2, 20 / (1 + waited_s) ** 2, limit_s - waited_s))
    return True
