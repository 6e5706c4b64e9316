"""What each notebook builds on, from the words and skills that it teaches and needs."""

import csv
import json
import re

import pytest

from book.glossary import glossary
from labkit.core.paths import DATA, ROOT
from labkit.lesson import outline
from scripts import prerequisites
from tests.helpers import cells, notebook_paths

NUMBERS = [path.name[:2] for path in notebook_paths()]
WORDS = {word.term for word in glossary()}
with (DATA / "prerequisites.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def semester():
    """The semester's notebooks in their order, homework after the week's notebook."""
    with (ROOT / "docs" / "teaching" / "semester.csv").open(encoding="utf-8") as file:
        return [number for row in csv.DictReader(file) for number in (row["notebook"], row["homework"]) if number]


def ways():
    """Name -> the notebooks in the order in which a reader goes through them: tracks, the semester, all of them."""
    tracks = {name: [one.number for one in way] for name, way in outline.tracks().items()}
    return tracks | {"all": NUMBERS, "semester": semester()}


@pytest.mark.parametrize("name", list(ways()))
def test_nothing_is_used_before_it_is_taught(name):
    known, early = set(), {}
    for number in ways()[name]:
        if lacking := prerequisites.needed(number) - known:
            early[number] = sorted(lacking)
        known |= set(prerequisites.taught().get(number, {}))
    assert early == {}, "explain it where it stands, or bring it forward; then say so in data/prerequisites.csv"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["section"])
def test_a_section_uses_the_words_that_it_teaches(row):
    (path,) = (path for path in notebook_paths() if path.name[:2] == row["section"][:2])
    texts, section = [], "0"
    for kind, text, _, _ in cells(path):
        if heading := re.search(r"^## (\d)", text, re.MULTILINE):
            section = heading[1]
        texts += [text] * (kind == "markdown" and section == row["section"][3:])
    assert texts
    for word in glossary():
        if word.term in row["teaches"].split("; "):
            assert prerequisites._pattern(word).search("\n".join(texts)), word.term


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
        assert all(set(prerequisites.builds_on(number)) <= numbers for number in numbers)


def test_a_word_that_nothing_earlier_explains_is_named(monkeypatch):
    without = {n: {k: v for k, v in names.items() if k != "warp"} for n, names in prerequisites.taught().items()}
    monkeypatch.setattr(prerequisites, "taught", lambda: without)
    prerequisites.needed.cache_clear(), prerequisites.builds_on.cache_clear()
    with pytest.raises(ValueError, match=r"Notebook 18 needs .*warp.*, which no earlier notebook explains"):
        prerequisites.builds_on("18")
    monkeypatch.undo()
    prerequisites.needed.cache_clear(), prerequisites.builds_on.cache_clear()


def test_optional_parts_code_and_titles_use_no_words():
    text = json.loads(notebook_paths()[4].read_text(encoding="utf-8"))
    optional = [cell for cell in text["cells"] if "more" in cell["metadata"].get("tags", [])]
    assert any("tensor core" in "".join(cell["source"]) for cell in optional)
    assert "tensor core" not in prerequisites.used("04")
