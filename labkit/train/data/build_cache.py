"""Build a folder of files once, completely or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from labkit.core.errors import DataError
from labkit.core.own_folder import make_private, of_this_user
from labkit.core.results import state_folder

_MANIFEST = "files.json"  # path in the folder -> bytes, in the order of building


def cache_folder() -> Path:
    """Return where labkit keeps built files: LABKIT_HOME/cache, or the user's cache
    folder. It may not exist yet.
    """
    if os.environ.get("LABKIT_HOME"):
        return of_this_user(state_folder() / "cache")
    import platformdirs  # loaded when first needed: `import labkit` stays light

    return of_this_user(platformdirs.user_cache_path("labkit", appauthor=False))


def build_once(
    folder: Path | None, name: str, build: Callable[[Path], Iterable[Path]]
) -> list[Path]:
    """Return the files of folder/name in order, which `build(folder)` writes and yields
    where they are not there yet.

    `folder` is by default the cache folder. Files are built again after an
    interruption, and when one is missing or has another size than it was written with.
    A second kernel that asks meanwhile waits. Raises DataError where the folder can't
    be written.
    """
    import filelock

    home = Path(folder or cache_folder()) / name
    try:
        if folder is None:
            make_private(state_folder(), home.parent)
        home.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{home}.lock"):
            if not _complete(home):
                building = home.with_name(f"{home.name}.building")
                for leftover in (building, home):
                    shutil.rmtree(leftover, ignore_errors=True)
                building.mkdir()
                sizes = {
                    path.relative_to(building).as_posix(): path.stat().st_size
                    for path in build(building)
                }
                (building / _MANIFEST).write_text(json.dumps(sizes))
                building.replace(home)  # atomic: another process sees all files or none
            return [home / path for path in json.loads((home / _MANIFEST).read_text())]
    except OSError as error:
        raise DataError(
            f"Files can't be written to {home} ({error.strerror or error}). Pass"
            " folder= or set LABKIT_HOME to a folder with space that you can write to."
        ) from error


def _complete(home: Path) -> bool:
    """Tell whether every file of a finished folder is there with its size; false where
    the folder isn't finished.
    """
    try:
        sizes = json.loads((home / _MANIFEST).read_text())
        return all(
            (home / path).stat().st_size == n_bytes for path, n_bytes in sizes.items()
        )
    except (OSError, ValueError):
        return False
