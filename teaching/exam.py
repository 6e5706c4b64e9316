"""An exam with its key, from the wrong answers of the exercises: what is wrong, and which of four is right.

Each wrong answer is run through its check when the exam is made, and what the check says stands in the key. Another
seed makes another version.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from exercises import bank
from exercises.bank import Card, Choice
from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from labkit.lesson.checks import judged
from teaching.assignments import text_or_code

_CSS = (
    "body{font-family:sans-serif;line-height:1.4;max-width:48em;margin:2em auto;padding:0 1em}"
    "section{break-inside:avoid}h2{font-size:1.1em}"
    "pre{background:#f2f2f2;color:#111;padding:.6em;white-space:pre-wrap;font-size:90%}li{margin:.3em 0}"
)


@dataclass(frozen=True)
class Question:
    """Words, code that they are about, four options (code where `as_code`), which is right, and why."""

    words: str
    code: str
    options: tuple[str, ...]
    as_code: bool
    right: int
    why: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Notebooks, how many questions, the version and the folder."""
    parser.add_argument("--notebooks", nargs="+", required=True, help="numbers of notebooks, such as 03 04")
    parser.add_argument("--questions", type=int, default=12, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the version: another seed draws another exam")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for exam and key")


def run(arguments: argparse.Namespace) -> int:
    """Write exam and key, as pages to print and as notebooks."""
    found = questions(arguments.notebooks, arguments.questions, arguments.seed)
    folder, title = arguments.output, f"Exam, version {arguments.seed}: notebooks {', '.join(arguments.notebooks)}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, key in (("exam", False), ("key", True)):
            (folder / f"{name}.html").write_text(page(title, found, key=key), encoding="utf-8")
            (folder / f"{name}.ipynb").write_text(notebook(title, found, key=key), encoding="utf-8")
    print(f"{folder} has exam.html and key.html, to be printed, and the same as notebooks: {len(found)} questions.")
    return 0


def questions(notebooks: Sequence[str], count: int, seed: int) -> list[Question]:
    """So many questions, the same for the same seed; one in four asks for the right answer, where there are such.

    LabError where there are too few. A wrong answer that its check doesn't reject as it should here (a package may be
    missing) is left out.
    """
    draw = random.Random(f"{seed} {notebooks}")
    cards = [card for number in notebooks for card in bank.cards(number, seed)]
    choices = [choice for number in notebooks for choice in bank.choices(number, seed)]
    draw.shuffle(cards)
    draw.shuffle(choices)
    found = [_of_choice(choice) for choice in choices[: count // 4]]
    for card in cards:
        if len(found) == count:
            break
        outcome = judged(card.number, card.answer)
        if outcome.state == "not yet" and card.words in outcome.message:
            found.append(_of_card(card, outcome.message))
    if len(found) < count:
        raise LabError(
            f"There are {len(found)} questions of notebooks {', '.join(notebooks)}, but {count} were asked for."
        )
    draw.shuffle(found)
    return found


def _of_card(card: Card, said: str) -> Question:
    why = f"{card.misconception.true} The check says: {said}"
    return Question(card.question, card.code, card.options, False, card.right, why)


def _of_choice(choice: Choice) -> Question:
    reasons = [f"({'abcd'[i]}) {reason}." for i, reason in enumerate(choice.reasons) if reason]
    return Question(choice.question, "", choice.codes, True, choice.right, " ".join(reasons))


def page(title: str, found: Sequence[Question], *, key: bool) -> str:
    """The exam, or its key, as a page to print that loads nothing."""
    parts = [f"<h1>{escape(title)}{' (key)' if key else ''}</h1>"]
    for number, one in enumerate(found, 1):
        code = f"<pre>{escape(one.code)}</pre>" if one.code else ""
        options = "".join(f"<li>{_option(option, one.as_code)}</li>" for option in one.options)
        answer = f"<p><b>{'abcd'[one.right]}.</b> {escape(one.why)}</p>" if key else ""
        parts.append(
            f"<section><h2>{number}. {escape(one.words)}</h2>{code}<ol type='a'>{options}</ol>{answer}</section>"
        )
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{_CSS}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>"


def _option(text: str, as_code: bool) -> str:
    return f"<pre>{escape(text)}</pre>" if as_code else escape(text)


def notebook(title: str, found: Sequence[Question], *, key: bool) -> str:
    """The same as a notebook, a cell a question, with an empty cell for the answer in the exam."""
    cells = [text_or_code("markdown", f"# {title}{' (key)' if key else ''}", "title")]
    for number, one in enumerate(found, 1):
        lines = [f"## {number}. {one.words}", *([f"```python\n{one.code}\n```"] if one.code else [])]
        for letter, option in zip("abcd", one.options, strict=True):
            lines.append(f"({letter})\n```python\n{option}\n```" if one.as_code else f"({letter}) {option}")
        lines.append(f"**{'abcd'[one.right]}.** {one.why}" if key else "Your answer: ")
        cells.append(text_or_code("markdown", "\n\n".join(lines), f"question-{number}"))
    return json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False
    )
