"""A notebook's cards as a quiz page, made with jupyterquiz: a notebook, or HTML that needs no network.

Each question shows a wrong answer of the exercises and asks what is wrong with it, or asks which of four is right.
"""

from __future__ import annotations

import argparse
import importlib
import json
import unittest.mock
from html import escape  # jupyterquiz takes all of its texts for HTML
from pathlib import Path
from typing import Any

from exercises import bank
from exercises.bank import Card, Choice
from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from teaching.assignments import require, text_or_code

_MATHJAX = "https://cdn.jsdelivr.net/npm/mathjax@3/es5/tex-svg.js"  # for formulas, of which there are none here
_PAGE = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    "<title>{title}</title><h1>{title}</h1>{body}</html>"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook, the file, how many questions and which."""
    parser.add_argument("notebook", help='the number of a notebook, such as "04"')
    parser.add_argument("-o", "--output", type=Path, required=True, help="a file that ends in .ipynb or .html")
    parser.add_argument("--questions", type=int, default=12, help="at most so many")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other questions")


def run(arguments: argparse.Namespace) -> int:
    """Write the quiz."""
    asked = questions(arguments.notebook, arguments.seed)[: arguments.questions]
    if not asked:
        raise LabError(f"Notebook {arguments.notebook} has no cards. Its exercises have no short wrong answers.")
    with writing(arguments.output):
        write(arguments.output, f"What is wrong here? Notebook {arguments.notebook}", asked)
    print(f"{arguments.output} asks {len(asked)} questions.")
    return 0


def questions(notebook: str, seed: int = 0) -> list[dict[str, Any]]:
    """The cards of a notebook, then those that ask for the right one of four, in jupyterquiz's format."""
    return [_of_card(card) for card in bank.cards(notebook, seed)] + [
        _of_choice(c) for c in bank.choices(notebook, seed)
    ]


def _of_card(card: Card) -> dict[str, Any]:
    true, answers = card.misconception, []
    for option in card.options:
        right = option == true.title
        answers.append({"answer": escape(option), "correct": right, "feedback": escape(true.true) if right else "No."})
    return _question(escape(card.question), answers) | {"code": escape(card.code)}


def _of_choice(choice: Choice) -> dict[str, Any]:
    answers = [
        {"code": escape(code), "correct": not reason, "feedback": escape(reason) or "Right."}
        for code, reason in zip(choice.codes, choice.reasons, strict=True)
    ]
    return _question(escape(choice.question), answers)


def _question(words: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"question": words, "type": "multiple_choice", "answers": answers}


def write(target: Path, title: str, asked: list[dict[str, Any]]) -> None:
    """Write questions as a notebook, or as a page with jupyterquiz's own code in it."""
    if target.suffix not in (".ipynb", ".html"):
        raise LabError(f"Expected a file that ends in .ipynb or .html, got {str(target)!r}.")
    html, script = rendered(asked)
    if target.suffix == ".html":
        target.write_text(_PAGE.format(title=title, body=f"{html}<script>{script}</script>"), encoding="utf-8")
        return
    code = f"from jupyterquiz import display_quiz\n\nquestions = {asked!r}\ndisplay_quiz(questions)"
    shown = [{"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}]
    shown.append({"output_type": "display_data", "data": {"application/javascript": script}, "metadata": {}})
    cell = text_or_code("code", code, "quiz") | {"execution_count": 1, "outputs": shown}
    page = {
        "cells": [text_or_code("markdown", f"# {title}", "title"), cell],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    }
    target.write_text(json.dumps(page | {"nbformat": 4, "nbformat_minor": 5}, indent=1), encoding="utf-8")


def rendered(asked: list[dict[str, Any]]) -> tuple[str, str]:
    """The HTML and the JavaScript with which jupyterquiz shows questions; neither loads anything."""
    require("jupyterquiz")
    module = importlib.import_module("jupyterquiz.dynamic.display")
    shown: list[Any] = []
    with unittest.mock.patch.object(module, "display", shown.append):  # it shows what it makes, and returns nothing
        module.display_quiz(asked, shuffle_answers=False, max_width=960)  # pixels: a long line of code
    return shown[0].data, shown[1].data.replace(_MATHJAX, "data:text/javascript,")
