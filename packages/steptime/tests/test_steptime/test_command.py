"""What `python -m steptime` runs, and what it leaves to the script."""

import sys
from pathlib import Path

import pytest

from steptime.__main__ import main

# a real training, since launching it is what is tested
pytestmark = pytest.mark.slow

SCRIPT = """
import sys

import torch

from beside import STEPS

weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight])
if __name__ == "__main__":
    for _ in range(STEPS):
        (weight * 2).sum().backward()
        optimizer.step()
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    def written(steps):
        (tmp_path / "beside.py").write_text(f"STEPS = {steps}\n")
        path = tmp_path / "train.py"
        path.write_text(SCRIPT)
        return str(path)

    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield written
    sys.modules.pop("beside", None)


def test_a_script_runs_with_its_arguments_and_its_loop_is_judged(script, capsys):
    with pytest.raises(SystemExit) as left:
        main([script(40), "3"])
    assert left.value.code == 3
    assert "Watched: " in capsys.readouterr().out


def test_a_loop_that_is_too_short_is_said(script, capsys):
    with pytest.raises(SystemExit) as left:
        main([script(5), "0"])
    assert left.value.code == 0
    assert "steptime: The loop ended after " in capsys.readouterr().err


def test_a_script_that_refuses_its_arguments_says_so_alone(script, capsys):
    path = Path(script(5))
    path.write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    with pytest.raises(SystemExit) as left:
        main([str(path), "--unknown"])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "unrecognized arguments: --unknown" in told
    assert "steptime" not in told


def test_a_script_without_an_optimizer_says_what_ends_a_step(script, capsys):
    path = Path(script(5))
    path.write_text("print('done')\n")
    assert main([str(path)]) == 0
    told = capsys.readouterr().err
    assert "steptime: No step was seen, and 31 are needed. A step ends when" in told


def test_an_error_of_the_script_s_own_is_raised(script):
    with pytest.raises(IndexError):
        main([script(5)])


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 2, "Expected the file of a script, got none."),
        (["absent.py"], 2, "Expected the file of a script, got 'absent.py'."),
        (["--help"], 0, "usage: python -m steptime SCRIPT"),
    ],
)
def test_without_a_script_it_says_what_it_takes(words, status, told, capsys):
    assert main(words) == status
    printed = capsys.readouterr()
    assert told in (printed.err if status else printed.out)
