"""The table of what is done, and the closing lines of a notebook."""

import subprocess
import sys

import pytest

from labkit import __main__ as commands
from labkit.core import results
from labkit.core.results import Measurement, Prediction
from labkit.lesson import journal, outcomes
from labkit.lesson.outline import milestones, outlines, tracks
from labkit.lesson.progress import hours, progress
from labkit.measure.machine import machine
from teaching.report import write_page

pytestmark = pytest.mark.usefixtures("home")


def row(milestone):
    """What is done, what is to do, the exercises passed, and the time left."""
    (cells,) = [cells for cells in progress().rows if cells[0] == milestone]
    return cells[2:]


def minutes_of(name):
    return sum(notebook.minutes for notebook in tracks()[name])


def test_at_first_nothing_is_done_and_the_first_exercise_comes_next():
    named = [part.name for part in milestones()]
    assert [cells[0] for cells in progress().rows] == [*named, "Appendix"]
    done, to_do, passed, left = row("Many GPUs")
    assert (done, to_do) == ("", "12 13 14 15")
    assert passed.startswith("0 of ")
    assert left == hours(sum(outlines()[n].minutes for n in to_do.split()))
    notes = progress().notes
    assert "Next: exercise 00.1, in section 1 of notebook 00." in notes
    left = hours(minutes_of("Kernels"))
    many = len(tracks()["Kernels"])
    assert f"Kernels: 0 of {many} notebooks are done, {left} are left." in notes
    assert any(note.startswith("You are here: 00 How fast") for note in notes)


def test_exercises_notebooks_and_tracks_are_counted():
    outcomes.note("04.2", "hint", step=1)
    for number in ("04.1", "04.2"):
        outcomes.note(number, "passed")
    assert row("Kernels")[2].startswith("2 of ")
    before = row("Kernels")[3]
    for number in outlines()["03"].skip:
        outcomes.note(number, "passed")
    done, to_do, passed, left = row("Kernels")
    assert done == "03"
    assert to_do.startswith("04 05")
    assert passed.startswith("4 of ")
    assert left != before
    notes = progress().notes
    many = len(tracks()["Kernels"])
    left = hours(minutes_of("Kernels") - outlines()["03"].minutes)
    assert any(
        note.startswith(f"Kernels: 1 of {many} notebooks are done, {left} are left.")
        for note in notes
    )
    assert any("track Kernels" in note or "exercise 04.3" in note for note in notes)


def test_minutes_are_told_as_hours():
    assert [hours(n) for n in (0, 45, 60, 195)] == [
        "0 min",
        "45 min",
        "1 h",
        "3 h 15 min",
    ]


def test_the_track_that_one_is_on_is_named():
    def named():
        return [
            note.split(":")[0]
            for note in progress().notes
            if note.endswith("You are on this track.")
        ]

    outcomes.note("00.1", "passed")
    assert named() == []  # all tracks begin there
    outcomes.note("03.1", "not yet")
    assert named() == ["Kernels"]
    assert any(note.startswith("You are here: 03 ") for note in progress().notes)


def test_calibration_is_told():
    log = results.results()
    here = machine().name
    for i in range(6):
        log.append(Prediction("02.1", f"r{i}", 1.0, "x", "2026-01-01T00:00:00+00:00"))
        log.append(
            Measurement(
                "02.1", f"r{i}", 5.0, "x", "measured", here, "2026-01-01T00:00:00+00:00"
            )
        )
    text = str(progress())
    assert (
        "Guesses made before measuring: 6; within a factor of 2: 0 (0%); you guess: too"
        " low." in text
    )


@pytest.mark.slow
def test_the_closing_table_ends_with_what_is_done_and_what_comes_next(tmp_path):
    outcomes.note("00.1", "passed")
    shown = str(journal.summary("00"))
    assert shown.splitlines()[-2:] == [
        "Exercises passed: 1 of 4, 1 of them without help.",
        "Next: exercise 00.3, in section 3 of notebook 00.",
    ]
    assert "Exercises passed: 1 of 4" in journal.summary("00")._repr_html_()
    write_page(tmp_path / "page.html")
    assert "12 13 14 15" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_another_kernel_sees_it_and_the_terminal_too(home, capsys):
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from labkit.lesson import outcomes; outcomes.note('00.1', 'passed')",
        ],
        check=True,
    )
    assert commands.main(["progress"]) == 0
    out = capsys.readouterr().out
    assert "1 of " in out
    assert "Next: exercise 00.3" in out
