"""The course's table, what README.md and the notebooks make of it, and what comes next."""

import json
import re

import pytest

from labkit.core import results
from labkit.core.paths import ROOT
from labkit.core.results import Attempt
from labkit.lesson import exercise_files, outcomes, outline
from scripts import notebooks as script
from tests.helpers import cells, notebook_paths, stub_cells

pytestmark = pytest.mark.usefixtures("home")


def passed(*numbers, state="passed"):
    for number in numbers:
        outcomes.note(number, state)


def test_the_table_is_what_the_notebooks_make_it():
    text = script.COURSE.read_text(encoding="utf-8")
    assert script.course(text) == text, "make fix repairs it"
    assert list(outline.outlines()) == [path.name[:2] for path in notebook_paths()]


def test_a_new_notebook_gets_a_row_and_what_people_wrote_stays():
    text = script.COURSE.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    assert script.course("".join(lines[:1])).count("\n") == len(lines)
    changed = text.replace(",02.5; 02.6\n", ",02.1; 02.6\n")
    assert changed != text
    assert script.course(changed) == changed
    assert script.course(text.replace("55", "5", 1)) == text


def test_readme_shows_the_tracks_with_their_hours():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, way in outline.tracks().items():
        (line,) = [line for line in readme.splitlines() if line.startswith(f"- **{name}** (")]
        shown = [
            int(re.search(r"(?m)^(\d+) minutes\b", cells(path)[0][1])[1])
            for path in notebook_paths()
            if path.name[:2] in re.findall(r"\d\d", line.split("):")[1])
        ]
        assert len(shown) == len(way) >= 5
        assert f"({round(sum(shown) / 60)} hours)" in line
    assert script.readme(readme, script.address()) == readme


def test_every_track_has_the_first_notebooks_and_the_course_is_covered():
    ways = outline.tracks()
    assert len(ways) == 3
    for way in ways.values():
        assert {"00", "02"} <= {one.number for one in way}
    without = {number for number, one in outline.outlines().items() if not one.tracks}
    assert without <= {"17", "20", "21", "22"}


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.name[:2])
def test_two_exercises_of_the_notebook_show_that_it_can_be_skipped(path):
    one = outline.outlines()[path.name[:2]]
    stubs = [script.notebook_files.stub_number(source) for source in stub_cells(path)]
    assert len(set(one.skip)) == 2
    assert set(one.skip) <= set(stubs) <= set(exercise_files.numbers())
    first = cells(path)[0][1]
    assert f"pass {one.skip[0]} and {one.skip[1]} without a hint." in first
    assert first.count("Know this already?") == 1
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert script.skip(path.name) in first
    assert script.canonical(notebook, path.name) == script.canonical(
        json.loads(script.canonical(notebook, path.name)), path.name
    )


def test_a_notebook_is_done_by_all_exercises_or_by_its_two_without_help():
    four = outline.outlines()["04"]
    assert not four.done(outcomes.outcomes())
    passed(*four.exercises, state="hint")
    passed(*four.exercises[:-1])
    assert not four.done(outcomes.outcomes())
    passed(four.exercises[-1])
    assert four.done(outcomes.outcomes())


def test_a_hint_spoils_a_skip_and_passing_both_without_one_is_enough():
    four = outline.outlines()["04"]
    outcomes.note(four.skip[0], "hint", step=1)
    passed(*four.skip)
    assert not four.done(outcomes.outcomes())
    three = outline.outlines()["03"]
    passed(*three.skip)
    assert three.done(outcomes.outcomes())


def test_the_next_step_is_an_open_exercise_and_then_the_next_notebook_of_each_track():
    counts, following = outline.closing("02").splitlines()
    assert counts == "Exercises passed: 0 of 4, 0 of them without help."
    assert following == "Next: exercise 02.1, in section 1 of notebook 02."
    passed("02.1", "02.6")
    outcomes.note("02.5", "hint", step=1)
    passed("02.5", "02.7")
    counts, following = outline.closing("02").splitlines()
    assert counts == "Exercises passed: 4 of 4, 3 of them without help."
    for words in ("07 Where does", "track One GPU", "03 What does", "track Kernels", "08 Is the GPU waiting", "; or "):
        assert words in following
    passed(*outline.outlines()["03"].skip)
    assert "04 Why is" in outline.closing("02").splitlines()[1]


def test_after_the_last_notebook_of_a_track_and_of_the_appendix():
    for number in (outline.tracks()["Kernels"][-1].number, "22"):
        passed(*outline.outlines()[number].exercises)
        assert outline.closing(number).splitlines()[1] == "Next: lab.progress() shows what is left."
    passed(*outline.outlines()["20"].exercises)
    assert "21 Would a TPU be faster? (" in outline.closing("20").splitlines()[1]


def test_an_unknown_notebook_and_unknown_exercises_are_passed_over():
    results.results().append(Attempt("99.1", "99.1", "passed", results.now()))
    assert outline.closing("99") == ""
    assert outline.closing("00").startswith("Exercises passed: 0 of")
