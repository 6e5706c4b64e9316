"""The report of one reader: one file, and a sentence where it can't be written."""

import pytest

from labkit.core import results
from labkit.lesson import guesses, journal
from labkit.measure.bench import Timing
from teaching import __main__ as commands

pytestmark = pytest.mark.slow  # loads what draws boards


def test_the_report_is_one_file_with_predictions_beside_measurements(
    home, capsys, tmp_path
):
    guesses.predict("00.3 all threads", 4000, "images/s")
    journal.record("00.3 all threads", 3200.0, "images/s")
    with results.results().path.open("a") as file:
        file.write("damaged\n")
    timing = Timing("one thread", 0.010, (0.010, 0.011, 0.012))
    journal.record(
        "00.3 one thread", timing, "images/s", items=8, size="batch 8", dtype="float32"
    )
    assert commands.main(["report", str(tmp_path / "mine.html")]) == 0
    assert "mine.html is written" in capsys.readouterr().out
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert "00 How fast is this machine at training?" in page
    assert "0.80x" in page
    assert "line 3 is skipped" in page
    board = page.index("<figure")
    assert (
        page.index("Guesses made before measuring: 1")
        < page.index("Next: exercise 00.1")
        < board
    )
    assert (
        board
        < page.index("0.80x")
        < page.index("Progress</h2>")
        < page.index("Claims</h2>")
    )


def test_a_report_that_cannot_be_written_is_one_sentence(home, capsys, tmp_path):
    assert commands.main(["report", str(tmp_path / "nowhere" / "mine.html")]) == 1
    assert (
        "mine.html can't be written (No such file or directory)."
        in capsys.readouterr().err
    )
