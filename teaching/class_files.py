"""What others wrote: a class's results files, by one strict schema. What doesn't fit is
set aside in a sentence.

Whatever the files hold, reading them takes bounded time and memory, and no file keeps
the others from being read.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import fastjsonschema

from labkit.core import results
from labkit.core.own_folder import AT_ONCE
from labkit.core.parameters import checked
from labkit.core.paths import NOTEBOOKS, RECORDED
from labkit.core.results import Entry, Measurement, Prediction, Verdict
from labkit.core.text import cut, printable
from labkit.lesson import exercise_files, outline
from labkit.lesson.claims import claims

# of a class, of a file; the whole course makes half a megabyte
_MOST_FILES = 2_000
_MOST_BYTES = 2**22
_ALL = 2**28  # bytes of a class, a line counting as 1,000 more: each costs some 0.2 ms
# of a file
_MOST_ENTRIES = 3_000
_MOST_MACHINES = 8
_MOST_REFUSED = 100  # lines of a file, unless more fit
# of what a figure can show, and of a guess over a measurement
LEAST = 1e-30
MOST = 1e30


@dataclass(frozen=True)
class Reader:
    """Somebody's results: what the page calls them, their file, and what is in it."""

    name: str
    path: Path
    entries: tuple[Entry, ...]

    def last(self, kind: type[Any]) -> dict[tuple[str, str, str], Any]:
        """The last guess or measurement of each quantity and unit; no late guess, and
        nothing of a busy machine.
        """
        entries = (
            e
            for e in self.entries
            if isinstance(e, kind) and (e.value == 0 or LEAST < abs(e.value) < MOST)
        )
        last = {(e.section, e.what, e.unit): e for e in entries}
        return {
            k: e
            for k, e in last.items()
            if getattr(e, "blind", True) and not getattr(e, "busy", "")
        }


@checked
def read_class(
    paths: Sequence[Path], *, names: bool = False
) -> tuple[list[Reader], list[str]]:
    """The readers of these files and of all .jsonl files in these folders; a sentence
    for each file not taken whole, or whose name may not be its reader's.

    A file that holds all of another's lines counts alone where it is a newer copy: both
    have one name and one owner, and so do no files of anybody else. Where names tell
    nobody apart, as in a folder of uploads that are all called results.jsonl, both
    count.
    """
    lines, aside = _read_all(paths)
    newer = _newer_copies(lines)
    stems = Counter(file.stem for file in lines)
    readers: list[Reader] = []
    for file, read in sorted(lines.items(), key=lambda item: _mixed(item[1].lines)):
        entries, why = _entries(read.lines)
        larger, is_copy = newer.get(file, (None, False))
        if entries and larger and is_copy:
            entries = []
            why = f" is skipped: all of it is in {_named(larger)} too"
        elif entries and larger:
            aside.append(
                f"{_named(file)} counts, though all of it is in {_named(larger)} too."
            )
        if why:
            aside.append(f"{_named(file)}{why}.")
        if not entries:
            continue
        alone = stems[file.stem] == 1
        name = _named(file.stem if alone else f"{file.parent.name}/{file.stem}")[:60]
        if stranger := _owned_by_another(file, read.owner):
            name = f"{name}, {stranger}"
            aside.append(f"{_named(file)} counts, {stranger}.")
        readers.append(
            Reader(name if names else f"p{len(readers) + 1}", file, tuple(entries))
        )
    return readers, aside


@dataclass(frozen=True)
class _Read:
    """A file's lines, and the number of the user who owns it."""

    lines: list[bytes]
    owner: int


def _read_all(paths: Sequence[Path]) -> tuple[dict[Path, _Read], list[str]]:
    """The files of a class, the smallest first, as far as its limits go; a sentence for
    each that can't be read.
    """
    listed = itertools.chain(
        *(sorted(path.rglob("*.jsonl")) or [path] for path in paths)
    )
    files = sorted(dict.fromkeys(listed), key=_size)
    lines: dict[Path, _Read] = {}
    aside: list[str] = []
    spent = 0
    for number, file in enumerate(files):
        try:
            if number >= _MOST_FILES or spent > _ALL:
                raise OSError(
                    f"at most {_MOST_FILES:,} files, of {_ALL // 2**20} MiB in all, are"
                    " read"
                )
            read = _lines(file)
        except OSError as error:
            aside.append(f"{_named(file)} is skipped: {error.strerror or error}.")
            continue
        lines[file] = read
        spent += sum(map(len, read.lines)) + 1000 * len(read.lines)
    return lines, aside


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _mixed(lines: Sequence[bytes]) -> bytes:
    """What sorts files in an order that says nothing of their readers."""
    return hashlib.sha256(b"\n".join(sorted(lines))).digest()


def _newer_copies(lines: Mapping[Path, _Read]) -> dict[Path, tuple[Path, bool]]:
    """File -> a file that holds all of its lines, and whether that is a newer copy of
    it, not somebody else's.
    """
    held = {file: frozenset(map(hash, read.lines)) for file, read in lines.items()}
    groups: dict[tuple[str, int], list[Path]] = defaultdict(list)
    for file, read in lines.items():
        groups[file.stem, read.owner].append(file)
    newer = {}
    for file in lines:
        inside = [
            other
            for other in held
            if held[file] < held[other] or (held[file] == held[other] and other < file)
        ]
        if not inside:
            continue
        group = groups[file.stem, lines[file].owner]
        own = [other for other in inside if other in group]
        # all of a reader's copies hold one another; files of several readers don't
        told_apart = len(groups) > 1 and all(
            held[a] <= held[b] or held[b] <= held[a]
            for a, b in itertools.combinations(group, 2)
        )
        newer[file] = (own or inside)[0], bool(own) and told_apart
    return newer


def _owned_by_another(file: Path, owner: int) -> str:
    """What to say of a file in a folder that is called by a user's number, as a shared
    LABKIT_HOME has them, and that another user made; "" for any other.
    """
    named = re.fullmatch(r"user-(\d{1,10})", file.parent.name)
    if named is None or int(named[1]) == owner:
        return ""
    return f"made by user {owner}, not {named[1]}"


def _named(text: object) -> str:
    """A file's name, or what an error says, on one line."""
    return printable(text, in_lines=False)


def _lines(file: Path) -> _Read:
    """A file's lines and owner; OSError for what is no file, for a link, and for a file
    that is too large.
    """
    with open(os.open(file, os.O_RDONLY | AT_ONCE), "rb") as opened:
        status = os.fstat(opened.fileno())
        if (
            not stat.S_ISREG(status.st_mode)
            or len(text := opened.read(_MOST_BYTES + 1)) > _MOST_BYTES
        ):
            raise OSError(
                f"expected a file of at most {_MOST_BYTES // 2**20} MiB, or a folder"
                " with .jsonl files"
            )
    stripped = map(bytes.strip, text.split(b"\n"))
    return _Read([line for line in stripped if line], status.st_uid)


def _entries(lines: Sequence[bytes]) -> tuple[list[Entry], str]:
    """Of what fits, the last on the same thing; what doesn't fit, in words. Nothing
    where most of a file doesn't.
    """
    kept: dict[Hashable, Entry] = {}
    machines: set[str] = set()
    refused = 0
    first = ""
    for number, line in enumerate(lines, 1):
        try:
            entry = _fitting(line)
            all_machines = machines | (
                {entry.machine} if isinstance(entry, Measurement | Verdict) else set()
            )
            if len(kept) >= _MOST_ENTRIES or len(all_machines) > _MOST_MACHINES:
                raise ValueError(
                    f"a reader has at most {_MOST_ENTRIES:,} entries, of"
                    f" {_MOST_MACHINES} machines"
                )
            machines = all_machines
        except ValueError as error:
            refused += 1
            if not first:
                why = cut(_named(error).removeprefix("data."), 200).rstrip(".")
                first = f"line {number} is skipped: {why}"
            if refused > max(_MOST_REFUSED, len(kept)):
                return [], f" is skipped: most lines are no results. {first}"
        else:
            kept.pop(same := results.same(entry), None)
            kept[same] = entry
    if not kept:
        return [], f" is skipped: it holds no results of the workbook. {first}"
    more = f"; so are {refused - 1:,} more" if refused > 1 else ""
    return list(kept.values()), f", {first}{more}" if refused else ""


def _fitting(line: bytes) -> Entry:
    """The entry of a line; ValueError says what is wrong with it."""
    entry = results.from_line(line.decode())
    _judge()({"kind": type(entry).__name__.lower(), **vars(entry)})
    if isinstance(entry, Prediction) and f"{entry.section} {entry.what}" not in _keys():
        raise ValueError(f"no notebook asks for {entry.section} {entry.what}")
    try:
        datetime.fromisoformat(entry.when)
    except ValueError as error:
        raise ValueError(f"when is no time: {entry.when} ({error})") from error
    return entry


@functools.cache
def _judge() -> Callable[[Any], Any]:
    """What raises ValueError unless an entry's fields fit the schema, and its claim,
    exercise and notebook exist.
    """
    schema = json.loads(
        Path(__file__).with_name("results.schema.json").read_text(encoding="utf-8")
    )
    kinds = schema["definitions"]
    kinds["claim"] = {"enum": list(claims())}
    kinds["exercise"] = {"enum": exercise_files.numbers()}
    kinds["section"]["pattern"] = rf"^({'|'.join(outline.outlines())})\.[0-9]{{1,2}}$"
    return fastjsonschema.compile(schema)


@functools.cache
def _keys() -> set[str]:
    """What notebooks ask a guess of, "00.3 all threads": in their text, or with a name
    that only recorded runs hold.
    """
    texts = [path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")]
    recorded = [e for path in RECORDED.glob("*.jsonl") for e in results.read(path)[0]]
    written = {
        key
        for text in texts
        for key in re.findall(r'\\"(\d\d\.\d\d? [^"\\]+)\\"', text)
    }
    return written | {
        f"{e.section} {e.what}" for e in recorded if isinstance(e, Measurement)
    }


def within(
    parts: Iterable[tuple[str, str]], most: int = 1_200_000
) -> Iterator[tuple[str, str]]:
    """(notebook, HTML) pairs of at most so many characters in all; for the rest, which
    isn't made, a sentence.
    """
    for notebook, part in parts:
        most -= len(part)
        yield (
            notebook,
            (
                part
                if most >= 0
                else "<p>More would make this page too large: show fewer files.</p>"
            ),
        )
        if most < 0:
            return
