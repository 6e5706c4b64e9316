"""The recipes of the packages: run their code, and write what it prints below it.

Usage: python -m scripts.recipes [PACKAGE ...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from labkit.core.paths import INSTRUMENTS, PROJECTS

# What these print holds times of the machine that ran them.
TIMED = ("ranks", "steptime")
_COLUMNS = 96
_RECIPE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<prose>(?:(?!^## ).)*?)"
    r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<shown>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Recipe:
    """What a reader searches for, the code that answers, and what stands below it."""

    package: str
    title: str
    code: str
    shown: str


def page(package: str) -> Path:
    """The file of a package's recipes."""
    return PROJECTS / package / "docs" / "recipes.md"


def recipes(package: str) -> list[Recipe]:
    """The recipes of a package, in their order."""
    text = page(package).read_text(encoding="utf-8")
    return [
        Recipe(package, match["title"], match["code"], match["shown"])
        for match in _RECIPE.finditer(text)
    ]


def example(package: str) -> str:
    """The code of the example in a package's README."""
    text = (PROJECTS / package / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## On your own code\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    return str(code)


def printed(
    recipe: Recipe, python: str = sys.executable, *, alone: bool = False
) -> str:
    """What a recipe's code prints, run by `python` in an empty folder.

    Long lines are wrapped. `alone` keeps PYTHONPATH and the user's own packages out.
    Raises RuntimeError, with what was printed, if the code fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "recipe.py"
        script.write_text(recipe.code, encoding="utf-8")
        words = [python, *(["-I"] if alone else []), script.name]
        ended = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=False
        )
    if ended.returncode:
        raise RuntimeError(
            f"The recipe of {recipe.package} {recipe.title!r} fails:\n"
            f"{ended.stdout}{ended.stderr}"
        )
    text = ended.stdout
    for path in (script.parent.resolve(), sysconfig.get_path("purelib")):
        text = text.replace(f"{path}{os.sep}", "")
    lines = [part for line in text.splitlines() for part in _wrapped(line)]
    return "\n".join(lines).strip() + "\n"


def _wrapped(line: str) -> list[str]:
    """A line as parts that a page shows without scrolling."""
    if len(line) <= _COLUMNS:
        return [line.rstrip()]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line,
        _COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _write(package: str) -> None:
    """Write what each recipe of a package prints into its page."""
    text = page(package).read_text(encoding="utf-8")
    for recipe in recipes(package):
        before, begin, rest = text.partition(f"{recipe.code}```\n\n```text\n")
        text = before + begin + printed(recipe) + rest.removeprefix(recipe.shown)
    page(package).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or INSTRUMENTS:
        _write(name)
        print(f"{page(name).relative_to(PROJECTS.parent)}: written.")
