"""Files of lines to which several processes append at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_LOCK_S = 10  # a line is written in milliseconds: a longer wait means that a process hangs


def append_line(path: Path, line: str) -> None:
    """Append a line under a lock; with "" only find out whether the file can be written.

    Raises OSError where it can't, and after 10 s of waiting for the lock.
    """
    import filelock  # loaded when first needed: `import labkit` stays light

    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{path}.lock", timeout=_LOCK_S), open(path, "a+b") as file:
        if not line:
            return
        # A process that was killed while it wrote leaves half a line: the new one must not continue it.
        size = file.seek(0, 2)
        file.seek(max(size - 1, 0))
        torn = size > 0 and file.read() != b"\n"
        file.write(("\n" * torn + line + "\n").encode())


def read_lines(path: Path, parse: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """What `parse` makes of each line, and a sentence for each that it refuses with a ValueError.

    Empty lines don't count, and a missing file has none.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return [], []
    found, damaged = [], []
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            found.append(parse(raw.decode()))
        except ValueError as error:  # also BadMeasurement, and bytes that are no UTF-8
            damaged.append(f"{path.name}, line {number} is skipped: {error}")
    return found, damaged
