"""Exercises are found beside labkit, one notebook's at a time, and a missing one is
explained in one sentence.
"""

import subprocess
import sys

import pytest

import labkit as lab
from labkit.core.errors import DataError
from labkit.lesson import exercise_files

pytestmark = pytest.mark.slow  # reads every exercise


def run(code, cwd):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_listing_numbers_loads_no_check_and_a_check_only_its_own_notebook(tmp_path):
    code = (
        "import sys, labkit as lab; from labkit.lesson import exercise_files\n"
        "print(len(exercise_files.numbers()), 'exercises' in sys.modules)\n"
        "lab.check('04.2', 0); print(*sys.modules)"
    )
    listed, modules = run(code, tmp_path).split("\n", 1)
    assert listed == f"{len(exercise_files.numbers())} False"
    loaded = [name for name in modules.split() if name.startswith("exercises.nb")]
    assert "exercises.nb04.check" in loaded
    assert all(name.startswith("exercises.nb04") for name in loaded)


def test_missing_exercises_are_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(exercise_files, "EXERCISES", tmp_path / "gone")
    with pytest.raises(DataError, match=r"Expected the workbook's exercises in .*gone"):
        lab.solution("03.2")


def test_another_module_called_exercises_is_named(tmp_path):
    (tmp_path / "exercises.py").write_text("", encoding="utf-8")
    code = (
        "import sys; sys.path.insert(0, '.'); import labkit as lab\ntry:\n   "
        " lab.check('03.2', 0)\nexcept lab.errors.DataError as error:\n    print(error)"
    )
    said = run(code, tmp_path)
    assert said.startswith(
        "A module of the same name hides the workbook's exercises: rename "
    )
    assert str(tmp_path / "exercises.py") in said
