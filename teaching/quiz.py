"""Make a quiz of a notebook's cards: a page that needs no network, or a notebook. Each
option says why it is right or wrong.

Each question shows a wrong answer of the exercises and asks what is wrong with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from exercises import bank
from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from teaching.exam import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook, the file, how many questions and which."""
    parser.add_argument("notebook", help='the number of a notebook, such as "04"')
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="a file that ends in .ipynb or .html",
    )
    parser.add_argument("--questions", type=int, default=12, help="at most so many")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed draws other questions"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the quiz."""
    notebook = arguments.notebook
    target = arguments.output
    asked = bank.cards(notebook, arguments.seed)[: arguments.questions]
    if not asked:
        raise LabError(
            f"Notebook {notebook} has no cards. Its exercises have no short wrong"
            " answers."
        )
    if target.suffix not in (".ipynb", ".html"):
        raise LabError(
            f"Expected a file that ends in .ipynb or .html, got {str(target)!r}."
        )
    with writing(target):
        page = filled(
            f"quiz{target.suffix}",
            title=f"What is wrong here? Notebook {notebook}",
            questions=asked,
        )
        target.write_text(page, encoding="utf-8")
    print(f"{target} asks {len(asked)} questions.")
    return 0
