"""Copy the workbook without its solutions, for learners: `lab.check` and `lab.hint`
work in the copy as they do here.

Left out too are the tests, which hold right answers of other kinds, and what is for
teachers and contributors. A check has to know what is right, so its file
(exercises/nbNN/check.py) is in the copy, compressed: nobody reads it by chance.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import zlib
from pathlib import Path

from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from labkit.core.paths import ROOT
from labkit.lesson import notebook_files
from scripts.notebooks import canonical

# a list of what is copied: what is new in the repository is left out until it is named
# here
KEPT = (
    ".gitignore",
    ".jupyter",
    "CITATION.cff",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.in",
    "constraints.txt",
    "data",
    "docker",
    "docs",
    "environment.yml",
    "exercises",
    "labkit",
    "notebooks",
    "packages",
    "pyproject.toml",
    "requirements.lock",
    "scripts",
    "start",
)
LEFT_OUT = shutil.ignore_patterns(
    "solution.py",
    "wrong_*.py",
    "misconceptions.csv",
    "cards.csv",
    "messages.csv",
    "maintaining.md",
    "teaching",
    "tests",
    "build",
    "__pycache__",
    ".*",
    "*.pyc",
    "*.lock",
)
_TEMPLATES = Path(__file__).with_name("templates")
# of the README, which only a teacher needs: up to the next heading
_FOR_TEACHERS = re.compile(r"(?ms)^## For a class\n.*?(?=^## )")
# of Markdown, to a file
_LINK = re.compile(r"(?<![\w\])])!?\[([^\]]+)\]\((?!\w+:|#)([^)\s#]+)[^)\n]*\)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder to write."""
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="a new folder for the copy"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the copy, and say what to do with it."""
    write(arguments.output)
    print(
        f"{arguments.output} is a copy without solutions. Hand it out as a zip file or"
        " as a repository of its own."
    )
    return 0


def write(target: Path) -> None:
    """Copy what is `KEPT` into a new folder. LabError where it can't be written, or a
    notebook holds an answer.
    """
    check_open()
    if any(target.resolve().is_relative_to(ROOT / name) for name in KEPT):
        raise LabError(
            f"{target} lies within what is copied. Name a folder elsewhere, such as"
            " build/handout."
        )
    with writing(target):
        make_empty(target)
        for source in (ROOT / name for name in KEPT):
            if source.is_dir():
                shutil.copytree(source, target / source.name, ignore=LEFT_OUT)
            else:
                shutil.copy(source, target)
        for path in notebook_files.paths():
            # without a teacher's outputs
            text = canonical(notebook_files.read(path), path.name)
            (target / "notebooks" / path.name).write_text(text, encoding="utf-8")
        note, packed = (
            _TEMPLATES / name for name in ("handout_note.md", "packed_check.py.in")
        )
        title, _, text = (
            (ROOT / "README.md").read_text(encoding="utf-8").partition("\n")
        )
        text = _FOR_TEACHERS.sub("", text)
        (target / "README.md").write_text(
            f"{title}\n{note.read_text(encoding='utf-8')}{text}", encoding="utf-8"
        )
        for check in target.glob("exercises/*/check.py"):
            data = base64.b85encode(zlib.compress(check.read_bytes(), 9))
            check.write_text(
                packed.read_text(encoding="utf-8").format(data=data), encoding="utf-8"
            )
        for file in target.rglob("*.md"):
            text = file.read_text(encoding="utf-8")
            for link in _LINK.finditer(text):
                if not (file.parent / link[2]).exists():
                    text = text.replace(link[0], link[1])  # its words alone
            file.write_text(text, encoding="utf-8")


def make_empty(folder: Path) -> None:
    """Make a folder, or take one that is empty; LabError for one that isn't, so that
    nothing of a teacher's is lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise LabError(
            f"{folder} isn't empty. Name a new folder, or delete this one first."
        )


def check_open() -> None:
    """LabError where an exercise's cell in notebooks/ has no dots left: somebody's
    answer would be handed out.
    """
    for path in notebook_files.paths():
        for cell in notebook_files.read(path)["cells"]:
            number = notebook_files.stub_of(cell)
            if number is not None and "..." not in "".join(cell["source"]):
                raise LabError(
                    f"{path.name} holds an answer to {number}. Keep it under another"
                    " name, and restore the notebook with `git checkout"
                    f" notebooks/{path.name}`."
                )
