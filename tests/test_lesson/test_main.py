import pytest

from labkit import __main__ as commands


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([])
    assert stop.value.code == 2
    assert "progress" in capsys.readouterr().err
