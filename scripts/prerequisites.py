"""What each notebook teaches and needs: which notebooks it builds on, and which make up
each track.

data/prerequisites.csv says in which section a word or a skill is explained, and which
skills a notebook needs. Those of its words that a notebook uses, by the glossary's
meaning, before it explains them are needed too.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable

from labkit.core.data_table import TableRow, read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.lesson import notebook_files
from scripts.glossary import Word, of_page

FIRST = "00"
GOALS = {  # of each track
    "One GPU": ("07", "08", "09", "10", "11", "16", "19"),
    "Kernels": ("01", "03", "04", "05", "06", "18", "23"),
    "Many GPUs": ("12", "13", "14", "15", "17"),
}
# code, formulas and addresses use no words
_SILENT = re.compile(r"`[^`]*`|\$[^$]*\$|(?<=\])\([^)]*\)")
_CLOSING = 99  # the section of what stands after the numbered ones


@functools.cache
def taught() -> dict[str, dict[str, int]]:
    """Number of a notebook -> word or skill -> the first section that explains it."""
    first_sections: dict[str, dict[str, int]] = defaultdict(dict)
    for section, names, _ in _rows():
        for name in names:
            first_sections[section[:2]].setdefault(name, int(section[3:]))
    return first_sections


@functools.cache
def needed(number: str) -> frozenset[str]:
    """The words that a notebook uses before it explains them, and the skills that it
    needs.
    """
    skills = {
        name for section, _, names in _rows() if section[:2] == number for name in names
    }
    own = taught().get(number, {})
    return frozenset(
        skills
        | {
            word
            for word, section in used(number).items()
            if own.get(word, _CLOSING) > section
        }
    )


@functools.cache
def used(number: str) -> dict[str, int]:
    """The table's words in a notebook's prose outside of title and optional parts, each
    with its first section.
    """
    (path,) = (path for path in notebook_files.paths() if path.name[:2] == number)
    listed = set().union(*taught().values())
    words = [word for word in of_page(number) if word.term in listed]
    first_sections = dict[str, int]()
    section = 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"][1:]:
        text = _SILENT.sub("", "".join(cell["source"]))
        if cell["cell_type"] != "markdown" or "more" in cell["metadata"].get(
            "tags", []
        ):
            continue
        if heading := re.search(r"^## (\d*)", text, re.MULTILINE):
            section = int(heading[1] or _CLOSING)
        for word in words:
            if word.term not in first_sections and _pattern(word).search(text):
                first_sections[word.term] = section
    return first_sections


@functools.cache
def _pattern(word: Word) -> re.Pattern[str]:
    forms = [
        form
        for each in (word.term, *word.also)
        for form in (each, each[0].upper() + each[1:])
    ]
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, forms))})(?![\w-])")


@functools.cache
def builds_on(number: str) -> tuple[str, ...]:
    """The earlier notebooks that explain what a notebook needs, without those that they
    build on themselves.

    Raises ValueError for a word or a skill that no earlier notebook explains.
    """
    chosen = set[str]()
    before = sorted(other for other in taught() if other < number)
    ways = {
        name: [other for other in before if name in taught()[other]]
        for name in needed(number)
    }
    if lacking := sorted(name for name, others in ways.items() if not others):
        raise ValueError(
            f"Notebook {number} needs {', '.join(lacking)}, which no earlier notebook"
            " explains."
        )
    for _, others in sorted(ways.items(), key=lambda way: (len(way[1]), way[0])):
        if not closure(chosen).intersection(others):
            chosen.add(
                min(
                    others,
                    key=lambda other: (len(closure(chosen | {other})), -int(other)),
                )
            )
    direct = [n for n in chosen if n not in closure(chosen - {n})]
    return tuple(sorted(direct))


def closure(numbers: Iterable[str]) -> set[str]:
    """These notebooks, all that they build on, and the first."""
    numbers = set(numbers)
    return (
        {FIRST}
        | numbers
        | {
            notebook
            for number in numbers
            for notebook in closure(builds_on(number))
            if number != FIRST
        }
    )


def sentence(number: str) -> str:
    """What a notebook's first cell says of those that it builds on."""
    if number == FIRST:
        return "Builds on nothing: this is the first notebook."
    *others, last = builds_on(number) or (FIRST,)
    return (
        f"Builds on notebook{'s ' + ', '.join(others) + ' and' if others else ''}"
        f" {last}."
    )


def tracks() -> dict[str, set[str]]:
    """Track -> its goals, and the notebooks that these build on."""
    return {track: closure(goals) for track, goals in GOALS.items()}


def _rows() -> list[tuple[str, list[str], list[str]]]:
    """Each section, what it teaches, and what its notebook needs. Raises DataError for
    a damaged table.
    """
    return read_table(DATA / "prerequisites.csv", _row, DataError)


def _row(row: TableRow) -> tuple[str, list[str], list[str]]:
    if not re.fullmatch(r"\d\d\.\d\d?", row["section"]):
        raise ValueError(f"expected a section such as 04.2, got {row['section']!r}")
    return row["section"], _listed(row["teaches"]), _listed(row["needs"])


def _listed(text: str) -> list[str]:
    return [name for name in text.split("; ") if name]
