"""Files of lines to which several processes append at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from labkit.core.own_folder import make_private, open_own

T = TypeVar("T")
# a line is written in milliseconds: a longer wait means that a process hangs
_LOCK_S = 2
_MOST_REASONS = 5
# files whose lock could not be had: the next line doesn't wait for it again
_stuck: set[Path] = set()


def append_line(path: Path, line: str) -> None:
    """Append a line, whole or not at all; with "" only find out whether the file can be
    written.

    Folder and file are made for this user alone. Raises OSError where they are another
    user's, or can't be written. A power failure may take the last lines: waiting for
    the disk (fsync) would delay the next measurement.
    """
    make_private(path.parent)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    with _locked(path), open(open_own(path, flags), "r+b", buffering=0) as file:
        if not line:
            return
        # A process that was killed while it wrote leaves half a line: the new one must
        # not continue it.
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        torn = size > 0 and file.read(1) != b"\n"
        left = memoryview(("\n" * torn + line + "\n").encode(errors="backslashreplace"))
        written = 0
        try:
            while written < len(left):
                written += file.write(left[written:])
        except OSError:  # the disk is full: take back what there was room for
            with contextlib.suppress(OSError):
                if file.seek(0, os.SEEK_END) == size + written:
                    file.truncate(size)
            raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; go on without it where it isn't free soon, or where the
    file system has none.

    The lock is for what is rare: a short line reaches the end of a local file in one
    piece without it.
    """
    import filelock  # loaded when first needed: `import labkit` stays light

    with contextlib.ExitStack() as stack:
        try:
            lock = filelock.FileLock(
                f"{path}.lock", timeout=0 if path in _stuck else _LOCK_S, mode=0o600
            )
            stack.enter_context(lock)
            _stuck.discard(path)
        except (OSError, NotImplementedError):
            _stuck.add(path)
        yield


class Lines(Generic[T]):
    """What `parse` makes of a file's lines. Each is parsed once; a look at an unchanged
    file costs microseconds.

    Of entries for which `same` gives the same, only the last is kept, so that memory
    follows what differs and not how often it was written. Without it, all are. `own`
    refuses to read another user's file.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], T],
        same: Callable[[T], Hashable] | None = None,
        *,
        own: bool = False,
    ) -> None:
        self.path = path
        self._parse = parse
        self._same = same
        self._own = own
        self._restart()

    def _restart(self) -> None:
        self._state: tuple[int, ...] = ()
        self._at = 0
        self._number = 0
        self._before = b""
        self._kept: dict[Hashable, T] = {}
        # reason -> how many lines, and the number of the first
        self._refused: dict[str, list[int]] = {}

    def read(self) -> tuple[list[T], list[str]]:
        """Entries in the order in which they were last written, and a sentence for each
        reason to skip lines.

        `parse` refuses a line with a ValueError. Empty lines don't count, and a file
        that can't be read has none.
        """
        try:
            with open(open_own(self.path) if self._own else self.path, "rb") as file:
                status = os.fstat(file.fileno())
                state = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                if state != self._state:
                    self._catch_up(file, state)
        except OSError:
            self._restart()
        return list(self._kept.values()), [
            self._sentence(reason) for reason in self._refused
        ]

    def _catch_up(self, file: BinaryIO, state: tuple[int, ...]) -> None:
        """Parse what was appended; everything, where the file was replaced, cut, or
        changed before its end.
        """
        file.seek(max(self._at - 64, 0))
        before = file.read(min(64, self._at))
        following = file.read(1)
        # the last line was half there
        continued = before[-1:] not in (b"", b"\n") and following != b"\n"
        # An editor puts another file there (device and inode), a script may write over
        # this one (the 64 bytes before).
        if (
            state[:2] != self._state[:2]
            or state[2] <= self._at
            or before != self._before
            or continued
        ):
            self._restart()
        file.seek(self._at)
        while raw := file.readline():
            self._number += 1
            self._take(raw)
            # what another process writes at this moment continues it
            if not raw.endswith(b"\n"):
                break
        self._at = file.tell()
        file.seek(max(self._at - 64, 0))
        self._before = file.read(64)
        self._state = state

    def _take(self, raw: bytes) -> None:
        if not raw.strip():
            return
        try:
            entry = self._parse(raw.removesuffix(b"\n").decode())
        except ValueError as error:  # also BadMeasurement, and bytes that are no UTF-8
            reason = str(error)
            if reason not in self._refused and len(self._refused) >= _MOST_REASONS:
                reason = "other reasons."
            self._refused.setdefault(reason, [0, self._number])[0] += 1
            return
        key = self._number if self._same is None else self._same(entry)
        self._kept.pop(key, None)
        self._kept[key] = entry

    def _sentence(self, reason: str) -> str:
        count, first = self._refused[reason]
        if count == 1:
            return f"{self.path.name}, line {first} is skipped: {reason}"
        return (
            f"{self.path.name}, {count:,} lines are skipped, the first is line {first}:"
            f" {reason}"
        )
