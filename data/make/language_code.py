"""Compile notebook 18's matmul in seven languages, and write which instructions came
out into data/language_code.csv.

usage: python -m data.make.language_code [LANGUAGE ...]

It makes an environment for each language below build/languages, once, and asks the
package index for the compilers (up to 1 GB each). Needs Linux; no GPU.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import venv
from pathlib import Path

from exercises.nb18 import languages
from exercises.nb18.matmuls.compiling import LANGUAGES, Language
from labkit.core.paths import ROOT

BELOW = ROOT / "build" / "languages"


def python_of(language: Language) -> Path:
    """The Python of a language's own environment, which need not be there yet."""
    module = Path(language.file).stem.removeprefix("in_")
    return BELOW / module / "bin" / "python"


def installed(language: Language) -> Path:
    """The Python of a language's own environment, made where it isn't there."""
    python = python_of(language)
    if not python.exists():
        venv.create(python.parent.parent, with_pip=True)
        packages = (*language.packages, *language.beside)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def rows(language: Language, python: Path) -> list[list[str]]:
    """What a language's kernel became in that Python: language, capability,
    instructions, output, compiler.
    """
    run = subprocess.run(
        [python, "-m", "exercises.nb18.matmuls.compiling", language.name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    return [[language.name, *line] for line in lines if len(line) == len(_HEADER) - 1]


_HEADER = ("language", "capability", "instructions", "output", "compiler")


def main(names: list[str]) -> None:
    """Write the table; rows of languages that aren't named stay."""
    made = [
        [*row.values()] for row in languages.recorded() if row["language"] not in names
    ]
    for name in names:
        made += rows(LANGUAGES[name], installed(LANGUAGES[name]))
    order = list(LANGUAGES)
    made.sort(key=lambda row: (order.index(row[0]), int(row[1])))
    with languages.RECORDED.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_HEADER)
        table.writerows(made)


if __name__ == "__main__":
    main(sys.argv[1:] or list(LANGUAGES))
