"""Run the notebooks and the tests with other versions than those of constraints.txt.

usage: python -m scripts.versions ROW [--python PYTHON] [ARGUMENTS]

newest   the newest version of everything; torch is built for CUDA, several GB
colab    Google Colab's versions, as scripts/colab.txt has them
oldest   the lowest version that pyproject.toml allows of everything that it names

Each row has an environment of its own, build/versions/ROW, which is made once; remove
it to have it made anew. ARGUMENTS go to pytest, in place of all solved notebooks and
tests: `packages/ranks -m "not slow"`, say, or `build/solved/04_*.ipynb`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path

from scripts.constraints import uv

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
NBVAL = ("--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=200")
# What linters and type checkers say depends on their versions, which are pinned, and
# requirements.lock has those of another environment.
NOT_HERE = ("--ignore=tests/test_linters.py", "--ignore=tests/test_versions.py")


@dataclass(frozen=True)
class Row:
    """One set of versions."""

    pythons: tuple[str, ...]
    """What to look for, best first."""
    requirements: tuple[str, ...]
    """Options of `uv pip install` that name what is installed."""
    for_pytest: tuple[str, ...] = ()
    """What its old packages warn of themselves, and tests of what it lacks."""


# numba 0.61, of functions that a test makes from text
_NO_SOURCE = "-Wignore:Could not find source for function"
# ipywidgets 7.7
_OLD_TRAITLETS = "-Wignore:Deprecated in traitlets 4.1:DeprecationWarning"
# JupyterLite's cells run without what a browser lacks, which old Jupyters import
_NO_LITE = "--ignore=tests/test_lite.py"
ROWS = {
    "newest": Row(
        ("3.14", "3.13", "3.12"),
        ("--upgrade", "-e", ".[lab,cpu,appendix,teaching,test]"),
    ),
    "colab": Row(
        ("3.13",),
        ("-r", "scripts/colab.txt", "-e", ".[test]"),
        (
            # jupyter_client 7.4
            "-Wignore:datetime.datetime.utcnow:DeprecationWarning",
            "-Wignore:There is no current event loop:DeprecationWarning",
            # torch, of Python 3.13.0 alone
            "-Wignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
            _OLD_TRAITLETS,
            _NO_SOURCE,
            _NO_LITE,
        ),
    ),
    "oldest": Row(
        ("3.11",),
        # numba-cuda 0.22 takes any NVVM, and torch 2.11's nvJitLink none that is newer
        (
            *("--resolution", "lowest-direct"),
            *("-e", ".[lab,cpu,appendix,test]", "nvidia-nvvm==13.0.*"),
        ),
        (_OLD_TRAITLETS, _NO_SOURCE, _NO_LITE),
    ),
}


def find_python(pythons: tuple[str, ...]) -> str:
    """The path of the first of these Pythons that this machine has."""
    for version in pythons:
        command = [uv(), "python", "find", "--no-python-downloads", version]
        completed = subprocess.run(command, cwd=ROOT, capture_output=True)
        if completed.returncode == 0:
            return completed.stdout.decode().strip()
    sys.exit(
        f"Python {' or '.join(pythons)} is needed for this row, and none was found."
        " Install one, or name it with --python (make versions PYTHON=...)."
    )


def environment(name: str, python: str | None) -> Path:
    """The Python of a row's environment, which is made where it isn't complete."""
    row = ROWS[name]
    folder = ROOT / "build" / "versions" / name
    complete = folder / "complete"
    if not complete.exists():
        chosen = python or find_python(row.pythons)
        make = [uv(), "venv", "-q", "--clear", "--seed", "--python", chosen]
        subprocess.run([*make, str(folder)], cwd=ROOT, check=True)
        install = [uv(), "--system-certs", "pip", "install", "--python", str(folder)]
        subprocess.run([*install, *row.requirements], cwd=ROOT, check=True)
        complete.touch()
    return folder / "bin" / "python"


def main() -> int:
    """Make the row's environment, and run pytest in it; its exit status."""
    parser = ArgumentParser(
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--python")
    arguments, for_pytest = parser.parse_known_args()
    python = environment(arguments.row, arguments.python)
    if not for_pytest:
        subprocess.run([python, "scripts/notebooks.py", "solved"], cwd=ROOT, check=True)
        solved = sorted(map(str, (ROOT / "build" / "solved").glob("*.ipynb")))
        for_pytest = [*PYTEST, *NOT_HERE, *solved, "tests", "packages"]
    options = [*NBVAL, *ROWS[arguments.row].for_pytest]
    command = [str(python), "-m", "pytest", *options, *for_pytest]
    home = ROOT / "build" / "versions" / "home"
    surroundings = {**os.environ, "LABKIT_HOME": str(home)}
    return subprocess.run(command, cwd=ROOT, env=surroundings).returncode


if __name__ == "__main__":
    sys.exit(main())
