import subprocess
import sys

import pytest

from labkit import __main__ as commands


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main([])
    assert stop.value.code == 2
    assert "progress" in capsys.readouterr().err


def test_an_unknown_command_lists_the_known_ones():
    done = subprocess.run([sys.executable, "-m", "labkit", "operate"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "progress" in done.stderr
