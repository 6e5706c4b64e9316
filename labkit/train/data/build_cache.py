"""Build a folder of files once, whole or not at all, and read it from the disk again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from labkit.core.errors import DataError


def built_once(home: Path, what: str, build: Callable[[Path], None], whole: Callable[[Path], bool]) -> None:
    """Let `build` fill a folder that becomes `home`, unless `whole(home)` says that it is there already.

    Another kernel that asks meanwhile waits, and what was interrupted is built again. Raises DataError where the folder
    can't be written; `what` names in its sentence what was to be written.
    """
    import filelock

    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{home}.lock"):
            if whole(home):
                return
            building = home.with_name(f"{home.name}.building")
            for leftover in (building, home):
                shutil.rmtree(leftover, ignore_errors=True)
            building.mkdir()
            build(building)
            building.replace(home)
    except OSError as error:
        raise DataError(
            f"The {what} can't be written to {home} ({error.strerror or error}). "
            "Pass folder= or set LABKIT_HOME to a folder with space that you can write to."
        ) from error


def forget_cached(paths: Iterable[Path]) -> bool:
    """Ask the system to drop these files from its page cache, so that the next reading comes from the disk.

    False where the system offers no such thing (it is Linux's posix_fadvise). A disk or a host below may keep copies of
    its own. Raises DataError for a file that can't be opened.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in paths:
        try:
            with open(path, "rb") as file:
                os.fsync(file.fileno())  # pages that still have to be written are not dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise DataError(f"{path} can't be read ({error.strerror or error}).") from error
    return True
