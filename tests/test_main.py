import pytest

from labkit import __main__ as commands
from labkit.core import results
from labkit.core.errors import LabError
from labkit.lesson import journal, record_runs


def test_the_report_shows_predictions_beside_measurements(home, capsys):
    journal.predict("00.3 all threads", 4000, "images/s")
    journal.record("00.3 all threads", 3200.0, "images/s")
    with results.results().path.open("a") as file:
        file.write("damaged\n")
    assert commands.main(["report"]) == 0
    out = capsys.readouterr().out
    assert "00_start_here" in out
    assert "0.80x" in out
    assert "line 3 is skipped" in out


def test_record_says_what_failed_in_one_sentence(monkeypatch, capsys):
    def fail(tell, *, only):
        raise LabError(f"{only} failed")

    monkeypatch.setattr(record_runs, "record", fail)
    assert commands.main(["record", "--only", "01"]) == 1
    assert capsys.readouterr().err == "01 failed\n"


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([])
    assert stop.value.code == 2
    assert "doctor" in capsys.readouterr().err
