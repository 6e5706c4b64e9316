"""Folders and files that belong to this user alone, on a machine that
others use too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labkit.core.errors import DataError

# Neither a link nor a pipe that nobody writes to is opened in a file's place. Windows
# lacks these flags.
AT_ONCE = sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)


def of_this_user(folder: Path) -> Path:
    """`folder` itself, or a folder of this user's inside it where another user owns it
    or others may write to it.

    So a class that shares one LABKIT_HOME has its results apart, and what `sudo` leaves
    behind is nobody else's. Nothing is made.
    """
    with contextlib.suppress(OSError):  # what doesn't exist yet is nobody's
        if _open_to_others(folder.stat()):
            return folder / f"user-{os.geteuid()}"
    return folder


def make_private(*folders: Path) -> None:
    """Make folders that only this user can enter; OSError where one can't be made, or
    is another user's already.
    """
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except PermissionError as error:
            advice = (
                f"a folder for several users is made with chmod 1777 {folder.parent}"
            )
            raise PermissionError(
                error.errno, f"{error.strerror}; {advice}", str(folder)
            ) from error
        if os.name == "posix":  # mkdir leaves a folder that exists as it is
            os.close(_own_folder(folder))


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that is this user's alone, in a folder that is; OSError, without
    waiting, for all else.
    """
    if os.name != "posix":
        return os.open(path, flags | AT_ONCE, 0o600)
    folder = _own_folder(path.parent)
    try:
        return _own(path.name, flags, folder)
    finally:
        os.close(folder)


def _own_folder(folder: Path) -> int:
    # A link in its place has to be this user's or the administrator's.
    linked = folder.is_symlink() and folder.lstat().st_uid in (0, os.geteuid())
    return _own(os.path.realpath(folder) if linked else str(folder), os.O_DIRECTORY)


def _own(path: str, flags: int, folder: int | None = None) -> int:
    """The descriptor of a file or folder that is this user's alone."""
    file = os.open(path, flags | AT_ONCE, 0o600, dir_fd=folder)
    status = os.fstat(file)
    is_regular = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if is_regular and not _open_to_others(status):
        return file
    os.close(file)
    raise PermissionError(
        errno.EPERM,
        "another user owns it or may write to it, or it is no regular file",
        path,
    )


def _open_to_others(status: os.stat_result) -> bool:
    """Whether another user owns a file or folder, or may write to it: a hub puts all
    users into one group.
    """
    if os.name != "posix":
        return False
    writable_by_others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid != os.geteuid() or bool(status.st_mode & writable_by_others)


def write_whole(path: Path, text: str) -> None:
    """Write a text file that nobody sees half-written, for others to read; OSError
    where that can't be.

    It is made under a name that nobody knows and then renamed, so that a link which
    another user put there, in a folder that he may write to, is replaced, not followed.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        made.chmod(0o644)
        made.replace(path)
    except BaseException:
        made.unlink()
        raise


def has_space(path: str | Path) -> bool:
    """Whether a path would fall apart in a command line that doesn't quote it."""
    return any(map(str.isspace, str(path)))


@contextlib.contextmanager
def writing(
    path: Path, advice: str = "Choose a folder that you can write to."
) -> Iterator[None]:
    """DataError, with what to do, where the block can't write to `path`: no permission,
    no space, read-only.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} can't be written ({error.strerror or error}). {advice}"
        ) from error
