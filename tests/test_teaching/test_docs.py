"""docs/teaching: tables that are up to date, times that add up, and nothing named that
isn't there.
"""

import re

import pytest

from labkit.core.errors import LabError
from labkit.lesson import exercise_files, notebook_files
from teaching import __main__ as command, docs, path as paths
from tests.helpers import notebook_paths

# of a week of the semester
CLASS_MINUTES = {"homework discussed": 10, "lecture": 30, "lab": 50}
PAGES = sorted(docs.FOLDER.glob("*.md"))
NUMBERS = [path.name[:2] for path in notebook_paths()]
COURSES = docs.rows_of("courses.csv")
WEEKS = docs.rows_of("semester.csv")


def minutes_of(course):
    return sum(int(row["minutes"]) for row in COURSES if row["course"] == course)


def test_each_course_takes_the_time_that_it_is_called_by():
    assert {row["course"] for row in COURSES} == set(docs.STARTS)
    assert minutes_of("workshop") == 120
    days = {(row["course"], row["day"]) for row in COURSES} - {("workshop", "1")}
    assert days == {("one day", "1"), ("two days", "1"), ("two days", "2")}
    for course, day in days:
        parts = [
            int(row["minutes"])
            for row in COURSES
            if (row["course"], row["day"]) == (course, day)
        ]
        assert 6 * 60 <= sum(parts) <= 8 * 60


def test_every_lab_fits_into_its_slot_and_nobody_sits_for_more_than_90_minutes():
    for row in COURSES:
        if row["notebook"]:
            assert paths.minutes(row["notebook"], int(row["minutes"])) <= int(
                row["minutes"]
            )
    sitting = 0
    today = None
    for row in COURSES:
        rested = row["what"] in ("Break", "Lunch")
        sitting = 0 if rested or (row["course"], row["day"]) != today else sitting
        sitting = sitting + (not rested) * int(row["minutes"])
        today = (row["course"], row["day"])
        assert sitting <= 90, row


def test_the_semester_has_all_notebooks_its_time_and_exercises_that_exist():
    assert [int(row["week"]) for row in WEEKS] == list(range(1, 17))
    exams = [row for row in WEEKS if not row["notebook"]]
    assert [row["week"] for row in exams] == ["8", "16"]
    assert all(
        "Exam" in row["class"] and docs.homework_minutes(row) == 0 for row in exams
    )
    assert sum(CLASS_MINUTES.values()) == 90
    given = [
        number
        for row in WEEKS
        for number in (row["notebook"], row["homework"])
        if number
    ]
    assert sorted(given) == sorted(set(NUMBERS) - notebook_files.PUZZLES)
    assert all(
        paths.minutes(row["notebook"], 50) <= CLASS_MINUTES["lab"] - 10
        for row in WEEKS
        if row["notebook"]
    )
    assert all(docs.homework_minutes(row) <= 150 for row in WEEKS)
    for row in WEEKS:
        assessed = set(re.findall(r"\b\d\d\.\d\d?[a-z]?\b", row["assessment"]))
        assert assessed <= set(exercise_files.numbers())
        assert {number[:2] for number in assessed} <= {row["notebook"], row["homework"]}


def test_every_notebook_has_its_page_for_teachers():
    text = (docs.FOLDER / "labs.md").read_text(encoding="utf-8")
    for number in NUMBERS:
        (page,) = re.findall(rf"(?ms)^## {number} .*?(?=^## |\Z)", text)
        (path,) = paths.chosen([number])
        title = "".join(notebook_files.read(path)["cells"][0]["source"]).splitlines()[0]
        assert page.startswith(f"#{title}\n")
        for part in (
            "Before",
            "The picture",
            "Demonstrate",
            "Afterwards",
            "Without a GPU",
        ):
            assert f"\n**{part}.** " in page, number
        before = re.search(r"\*\*Before\.\*\*(.*?)\n\n", page, re.DOTALL)[1]
        assert 3 <= len(re.findall(r"[.?](?:\s|$)", before)) <= 5, number
        assert f"<!-- path {number} -->" in page
        assert f"<!-- stuck {number} -->" in page
        assert len(re.findall(r"(?m)^- \*", page)) >= 3, number


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_tables_of_today_and_names_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    assert docs.filled(text) == text, (
        "make fix, or python -m teaching docs, brings them up to date"
    )
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).resolve().exists(), target
    assert set(re.findall(r"python -m teaching (\w+)", text)) <= set(
        command.SUBCOMMANDS
    )


def test_an_unknown_mark_and_an_old_table_are_told(tmp_path, monkeypatch, capsys):
    with pytest.raises(
        LabError,
        match=(
            "Expected one of the marks path, stuck, course, semester, memory,"
            " rehearsal, got 'weather'"
        ),
    ):
        docs.filled("<!-- weather 04 -->\n<!-- /weather 04 -->")
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- path 00 -->\nold\n<!-- /path 00 -->\n", encoding="utf-8")
    assert command.main(["docs", "--check"]) == 1
    assert "page.md" in capsys.readouterr().out
    assert "old" in page.read_text(encoding="utf-8")
    assert command.main(["docs"]) == 0
    assert "The 50-minute path takes" in page.read_text(encoding="utf-8")
    assert command.main(["docs", "--check"]) == 0


def test_another_python_is_told_which_one_the_commands_need(monkeypatch, capsys):
    def without_psutil(name):
        raise ModuleNotFoundError("No module named 'psutil'", name="psutil")

    monkeypatch.setattr(command.importlib, "import_module", without_psutil)
    assert command.main(["docs"]) == 1
    said = capsys.readouterr().err
    assert "has no psutil" in said
    assert "source .venv/bin/activate" in said
