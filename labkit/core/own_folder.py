"""Folders and files that belong to this user alone, on a machine that others use too."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labkit.core.errors import DataError

_LONGEST_TEMP = 60  # bytes: the address of a Unix socket has at most 104 to 108, and its name is added to the folder


def of_this_user(folder: Path) -> Path:
    """`folder` itself, or a folder of this user's inside it where another user owns it or everybody may write to it.

    So a class that shares one LABKIT_HOME has its results apart, and what `sudo` leaves behind is nobody else's.
    Nothing is made.
    """
    with contextlib.suppress(OSError):  # what doesn't exist yet is nobody's
        if _foreign(status := folder.stat()) or status.st_mode & stat.S_IWOTH:
            return folder / f"user-{os.geteuid()}"
    return folder


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter; OSError where it can't be made, or is another user's already."""
    # mkdir leaves a folder that exists as it is, hence the look at it afterwards.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(folder.stat(), folder)


def check_own(status: os.stat_result, path: Path) -> None:
    """PermissionError unless this user owns what `status` describes, and it isn't one to which everybody may write."""
    if _foreign(status) or (os.name == "posix" and status.st_mode & stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "another user owns it or may write to it", str(path))


def _foreign(status: os.stat_result) -> bool:
    return os.name == "posix" and status.st_uid != os.geteuid()


def plain_temp_folder() -> str:
    """The folder for temporary files, or /tmp where its path has a space or is longer than 60 bytes."""
    usual = tempfile.gettempdir()
    fits = not has_space(usual) and len(os.fsencode(usual)) <= _LONGEST_TEMP
    return usual if fits or os.name != "posix" else "/tmp"


def has_space(path: str | Path) -> bool:
    """Whether a path would fall apart in a command line that doesn't quote it."""
    return any(map(str.isspace, str(path)))


def use_short_socket_paths() -> None:
    """Let multiprocessing make its Unix sockets in /tmp where the usual folder's path is too long for their addresses.

    It makes its folder once, private to the user, where `tempfile.tempdir` says at that moment.
    """
    from multiprocessing import util

    before, tempfile.tempdir = tempfile.tempdir, plain_temp_folder()
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def writing(path: Path, advice: str = "Choose a folder that you can write to.") -> Iterator[None]:
    """DataError, with what to do, where the block can't write to `path`: no permission, no space, read-only."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} can't be written ({error.strerror or error}). {advice}") from error
