import pytest

from labkit import __main__ as commands
from labkit import journal, recorder, records
from labkit.errors import LabError


def test_the_report_shows_predictions_beside_measurements(home, capsys):
    journal.predict("00.3 all threads", 4000, "images/s")
    journal.record("00.3 all threads", 3200.0, "images/s")
    with records.results().path.open("a") as file:
        file.write("damaged\n")
    assert commands.main(["report"]) == 0
    out = capsys.readouterr().out
    assert "00_start_here" in out
    assert "0.80x" in out
    assert "line 3 is skipped" in out


def test_record_says_what_failed_in_one_sentence(monkeypatch, capsys):
    def fail(tell, *, only):
        raise LabError(f"{only} failed")

    monkeypatch.setattr(recorder, "record", fail)
    assert commands.main(["record", "--only", "01"]) == 1
    assert capsys.readouterr().err == "01 failed\n"


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([])
    assert stop.value.code == 2
    assert "doctor" in capsys.readouterr().err
