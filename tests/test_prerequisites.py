"""What each notebook builds on, from the words and skills that it teaches and needs."""

import collections
import csv
import re

import pytest

from labkit.core.paths import DATA, ROOT
from labkit.lesson import outline
from scripts import prerequisites
from scripts.glossary import glossary
from tests.helpers import cells, notebook_paths

NUMBERS = [path.name[:2] for path in notebook_paths()]
WORDS = {word.term for word in glossary()}
with (DATA / "prerequisites.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def semester():
    """The semester's notebooks in their order, homework after the week's notebook."""
    with (ROOT / "docs" / "teaching" / "semester.csv").open(encoding="utf-8") as file:
        return [
            number
            for row in csv.DictReader(file)
            for number in (row["notebook"], row["homework"])
            if number
        ]


def ways():
    """Name -> the notebooks in the order in which a reader goes through them: tracks,
    the semester, all of them.
    """
    tracks = {
        name: [one.number for one in way] for name, way in outline.tracks().items()
    }
    return tracks | {"all": NUMBERS, "semester": semester()}


@pytest.mark.parametrize("name", list(ways()))
def test_nothing_is_used_before_it_is_taught(name):
    known = set()
    early = {}
    for number in ways()[name]:
        if lacking := prerequisites.needed(number) - known:
            early[number] = sorted(lacking)
        known |= set(prerequisites.taught().get(number, {}))
    assert early == {}, (
        "explain it where it stands, or bring it forward; then say so in"
        " data/prerequisites.csv"
    )


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.name[:2])
def test_a_section_uses_the_words_that_it_teaches(path):
    texts = collections.defaultdict(str)  # of each section
    section = "0"
    for kind, text, _, _ in cells(path):
        if heading := re.search(r"^## (\d+)", text, re.MULTILINE):
            section = heading[1]
        if kind == "markdown":
            texts[f"{path.name[:2]}.{section}"] += f"{text}\n"
    own = [row for row in ROWS if row["section"].startswith(path.name[:2])]
    for row in own:
        assert row["section"] in texts
        for word in glossary():
            if word.term in row["teaches"].split("; "):
                pattern = prerequisites._pattern(word)
                assert pattern.search(texts[row["section"]]), word.term


def test_what_is_needed_is_taught_and_what_is_taught_is_a_word_or_needed():
    taught = {name for names in prerequisites.taught().values() for name in names}
    skills = {name for row in ROWS for name in filter(None, row["needs"].split("; "))}
    assert skills <= taught
    assert {name for name in taught - WORDS if name not in skills} <= {"underflow"}


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.name[:2])
def test_the_first_cell_says_what_the_notebook_builds_on(path):
    assert prerequisites.sentence(path.name[:2]) in cells(path)[0][1]


def test_tracks_hold_what_their_notebooks_build_on():
    for name, numbers in prerequisites.tracks().items():
        assert sorted(numbers) == [one.number for one in outline.tracks()[name]]
        assert all(
            set(prerequisites.builds_on(number)) <= numbers for number in numbers
        )


def test_a_word_that_nothing_earlier_explains_is_named(monkeypatch):
    without = {
        n: {k: v for k, v in names.items() if k != "warp"}
        for n, names in prerequisites.taught().items()
    }
    monkeypatch.setattr(prerequisites, "taught", lambda: without)
    prerequisites.needed.cache_clear(), prerequisites.builds_on.cache_clear()
    with pytest.raises(
        ValueError,
        match=r"Notebook 18 needs .*warp.*, which no earlier notebook explains",
    ):
        prerequisites.builds_on("18")
    monkeypatch.undo()
    prerequisites.needed.cache_clear(), prerequisites.builds_on.cache_clear()
