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
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastjsonschema

from labkit.core import results
from labkit.core.display import cut
from labkit.core.own_folder import AT_ONCE
from labkit.core.parameters import checked
from labkit.core.paths import NOTEBOOKS, RECORDED
from labkit.core.results import Entry, Measurement, Prediction, Verdict
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
    for each file not taken whole.

    A file that holds all of another's lines counts alone where both have one name and
    one owner, as an older copy has.
    """
    files = itertools.chain(
        *(sorted(path.rglob("*.jsonl")) or [path] for path in paths)
    )
    lines: dict[Path, list[bytes]] = {}
    owners: dict[Path, tuple[str, int]] = {}
    readers: list[Reader] = []
    aside: list[str] = []
    spent = 0
    for number, file in enumerate(
        sorted(
            dict.fromkeys(files), key=lambda file: file.exists() and file.stat().st_size
        )
    ):
        try:
            if number >= _MOST_FILES or spent > _ALL:
                raise OSError(
                    f"at most {_MOST_FILES:,} files, of {_ALL // 2**20} MiB in all, are"
                    " read"
                )
            lines[file], owners[file] = _lines(file)
            spent += sum(map(len, lines[file])) + 1000 * len(lines[file])
        except OSError as error:
            aside.append(f"{shown(file)} is skipped: {error.strerror or error}.")
    held = {file: frozenset(map(hash, own)) for file, own in lines.items()}
    for file in sorted(
        lines, key=lambda file: hashlib.sha256(b"\n".join(sorted(lines[file]))).digest()
    ):
        entries, why = _entries(lines[file])
        inside = [
            o
            for o in held
            if held[file] < held[o] or (held[file] == held[o] and o < file)
        ]
        larger = next((o for o in inside if owners[o] == owners[file]), None)
        if entries and larger:
            entries = []
            why = f" is skipped: all of it is in {shown(larger)} too"
        elif entries and inside:
            aside.append(
                f"{shown(file)} counts, though all of it is in {shown(inside[0])} too."
            )
        if why:
            aside.append(f"{shown(file)}{why}.")
        if entries:
            alone = sum(other.stem == file.stem for other in lines) == 1
            name = shown(file.stem if alone else f"{file.parent.name}/{file.stem}")[:60]
            readers.append(
                Reader(name if names else f"p{len(readers) + 1}", file, tuple(entries))
            )
    return readers, aside


def shown(text: object) -> str:
    """Text as any terminal and page can show it: no escapes, and nothing that turns
    other characters around.
    """
    return "".join(c if c.isprintable() else f"<{ord(c):x}>" for c in str(text))


def _lines(file: Path) -> tuple[list[bytes], tuple[str, int]]:
    """A file's lines, its name and owner; OSError for what is no file, for a link, and
    for a file that is too large.
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
    return [line for line in map(bytes.strip, text.split(b"\n")) if line], (
        file.stem,
        status.st_uid,
    )


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
                why = cut(shown(error).removeprefix("data."), 200).rstrip(".")
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
    kinds["section"]["pattern"] = rf"^({'|'.join(outline.outlines())})\.[0-9]$"
    return fastjsonschema.compile(schema)


@functools.cache
def _keys() -> set[str]:
    """What notebooks ask a guess of, "00.3 all threads": in their text, or with a name
    that only recorded runs hold.
    """
    texts = [path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")]
    recorded = [e for path in RECORDED.glob("*.jsonl") for e in results.read(path)[0]]
    written = {
        key for text in texts for key in re.findall(r'\\"(\d\d\.\d [^"\\]+)\\"', text)
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
