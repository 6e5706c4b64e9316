"""Files of lines to which several processes append at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from labkit.core.own_folder import make_private, open_own

T = TypeVar("T")
# a line is written in milliseconds: a longer wait means that a process hangs
_LOCK_S = 2
_MOST_REASONS = 5
_TAIL = 64  # bytes before the end that tell whether a file was written over
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
        text = f"\n{line}\n" if torn else f"{line}\n"
        content = memoryview(text.encode(errors="backslashreplace"))
        written = 0
        try:
            while written < len(content):
                written += file.write(content[written:])
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


class _State(NamedTuple):
    """What shows that a file has changed; `file` is its device and inode."""

    file: tuple[int, int]
    size: int
    modified_ns: int


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
        self._state: _State | None = None
        self._at = 0
        self._number = 0  # of the last line that was read
        self._tail = b""
        self._entries: dict[Hashable, T] = {}
        # reason -> the numbers of the lines
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
                state = _State(
                    (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns
                )
                if state != self._state:
                    self._catch_up(file, state)
        except OSError:
            self._restart()
        sentences = [self._sentence(reason) for reason in self._refused]
        return list(self._entries.values()), sentences

    def _catch_up(self, file: BinaryIO, state: _State) -> None:
        """Parse what was appended; everything, where the file was replaced, cut, or
        changed before its end.
        """
        file.seek(max(self._at - _TAIL, 0))
        tail = file.read(min(_TAIL, self._at))
        following = file.read(1)
        half_line = tail != b"" and not tail.endswith(b"\n")
        # An editor puts another file there, a script may write over this one.
        if (
            self._state is None
            or state.file != self._state.file
            or state.size <= self._at
            or tail != self._tail
            or (half_line and following != b"\n")
        ):
            self._restart()
        file.seek(self._at)
        while raw := file.readline():
            self._number += 1
            self._parse_line(raw)
            # what another process writes at this moment continues it
            if not raw.endswith(b"\n"):
                break
        self._at = file.tell()
        file.seek(max(self._at - _TAIL, 0))
        self._tail = file.read(_TAIL)
        self._state = state

    def _parse_line(self, raw: bytes) -> None:
        if not raw.strip():
            return
        try:
            entry = self._parse(raw.removesuffix(b"\n").decode())
        except ValueError as error:  # also BadMeasurement, and bytes that are no UTF-8
            reason = str(error)
            if reason not in self._refused and len(self._refused) >= _MOST_REASONS:
                reason = "other reasons."
            self._refused.setdefault(reason, []).append(self._number)
            return
        key = self._number if self._same is None else self._same(entry)
        self._entries.pop(key, None)  # so that it is the last again
        self._entries[key] = entry

    def _sentence(self, reason: str) -> str:
        numbers = self._refused[reason]
        first = f"line {numbers[0]}"
        if len(numbers) == 1:
            return f"{self.path.name}, {first} is skipped: {reason}"
        skipped = f"{len(numbers):,} lines are skipped, the first is {first}"
        return f"{self.path.name}, {skipped}: {reason}"
