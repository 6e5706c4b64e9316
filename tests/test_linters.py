"""Ruff and mypy see every file: a fault planted in each folder that has Python is found
by both.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.paths import ROOT

PLANTED = 'import os\n\nwrong: int = "text"\n'


def output(*words, cwd, text=""):
    """What a linter prints, of a text where it is told to read one; a crash, or a
    complaint about its own settings, is an error.
    """
    run = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.stdout


def folders():
    """The folders with Python, without what setup and make build."""
    tops = [
        path
        for path in ROOT.iterdir()
        if path.is_dir() and path.name != "build" and path.name[0] != "."
    ]
    return sorted({path.parent for top in tops for path in top.rglob("*.py")})


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A copy of the folders in which every module is a planted fault, and the names of
    these modules.
    """
    copy = tmp_path_factory.mktemp("copy")
    (copy / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    modules = [
        Path("conftest.py"),
        *(folder.relative_to(ROOT) / "planted_fault.py" for folder in folders()),
    ]
    for module in modules:
        (copy / module).parent.mkdir(parents=True, exist_ok=True)
        (copy / module).write_text(PLANTED)
        if (ROOT / module.parent / "__init__.py").exists():
            (copy / module.parent / "__init__.py").touch()
    return copy, {module.as_posix() for module in modules}


def test_ruff_finds_an_unused_import_in_every_folder(planted):
    copy, modules = planted
    said = output("ruff", "check", "--no-cache", "--output-format=concise", cwd=copy)
    assert set(re.findall(r"(?m)^(\S+?):\d+:\d+: F401 ", said)) == modules


@pytest.mark.slow
def test_mypy_finds_a_wrong_type_in_every_folder(planted):
    copy, modules = planted
    said = output("mypy", cwd=copy)
    assert (
        set(re.findall(r"(?m)^(\S+?):\d+: error: .*\[assignment\]$", said)) == modules
    )


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="without git there is no list of the files"
)
def test_ruff_sees_the_files_that_git_has_and_no_others():
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.py",
        "*.ipynb",
    ]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    seen = (
        Path(line)
        for line in output("ruff", "check", "--show-files", cwd=ROOT).splitlines()
    )
    assert {path for path in seen if path.suffix in (".py", ".ipynb")} == {
        ROOT / name for name in listed if (ROOT / name).exists()
    }


def test_ruff_finds_a_function_of_400_lines_in_exercises():
    lines = "".join(f"    x = {n}\n" for n in range(400))
    source = f'"""One function."""\n\n\ndef f() -> None:\n    """Assign."""\n{lines}'
    name = "--stdin-filename=exercises/nb03/check.py"
    command = ("ruff", "check", "--output-format=concise", name, "-")
    assert "PLR0915" in output(*command, cwd=ROOT, text=source)
