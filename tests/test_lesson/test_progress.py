"""The table of what is done, and the closing lines of a notebook."""

import subprocess
import sys

import pytest

from labkit import __main__ as commands
from labkit.core import results
from labkit.core.results import Measurement, Prediction
from labkit.lesson import journal, outcomes
from labkit.lesson.outline import outlines
from labkit.lesson.progress import progress
from labkit.measure.machine import machine
from teaching.report import write_page

pytestmark = pytest.mark.usefixtures("home")


def row(number):
    (found,) = [cells for cells in progress().rows if cells[0].startswith(number)]
    return found[2:]


def test_at_first_nothing_is_done_and_the_first_exercise_comes_next():
    assert [cells[0][:2] for cells in progress().rows] == list(outlines())
    assert row("04") == ("0 of 4", "0", "", "04.2, 04.3")
    assert "Next: exercise 00.1, in section 1 of notebook 00." in progress().notes
    minutes = sum(one.minutes for one in outlines().values() if "Kernels" in one.tracks)
    assert (
        f"Kernels: 0 of 8 notebooks are done, {minutes} minutes are left."
        in progress().notes
    )


def test_exercises_notebooks_and_tracks_are_counted():
    outcomes.note("04.2", "hint", step=1)
    for number in ("04.1", "04.2"):
        outcomes.note(number, "passed")
    assert row("04") == ("2 of 4", "1", "", "04.2, 04.3")
    for number in outlines()["03"].skip:
        outcomes.note(number, "passed")
    assert row("03") == ("2 of 5", "2", "done", "")
    assert any(
        note.startswith("Kernels: 1 of 8 notebooks are done, ")
        for note in progress().notes
    )
    assert any(
        "track Kernels" in note or "exercise 04.3" in note for note in progress().notes
    )


def test_the_track_that_one_is_on_is_named_and_its_notebooks_come_first():
    def told():
        return [
            note.split(":")[0]
            for note in progress().notes
            if note.endswith("You are on this track.")
        ]

    outcomes.note("00.1", "passed")
    assert told() == []  # all tracks begin there
    assert [cells[0][:2] for cells in progress().rows] == list(outlines())
    outcomes.note("03.1", "not yet")
    assert told() == ["Kernels"]
    mine = [number for number, one in outlines().items() if "Kernels" in one.tracks]
    others = [
        number for number, one in outlines().items() if "Kernels" not in one.tracks
    ]
    assert [cells[0][:2] for cells in progress().rows] == mine + others


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
    assert "04.2, 04.3" in (tmp_path / "page.html").read_text(encoding="utf-8")


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
    assert "1 of 4" in out
    assert "Next: exercise 00.3" in out
