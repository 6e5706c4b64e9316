import pytest

from labkit import __main__ as commands


def test_the_claims_are_printed_with_verdicts_evidence_and_what_is_missing(home, capsys):
    assert commands.main(["claims"]) == 0
    out = capsys.readouterr().out
    assert all(f"\nC{number:02d} " in out for number in range(1, 33))
    assert "published, yes:" in out
    assert "a verdict here needs" in out


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([])
    assert stop.value.code == 2
    assert "doctor" in capsys.readouterr().err
