"""Make two equivalent forms of an exam with their keys, from a private bank; without
one they are for practice, and anybody can print their key.

Question k of both forms is drawn from one template, with other numbers or another
statement. A form is written as HTML to be printed, as Moodle XML and a QTI 2.2 package,
and with a table for the answers, which `items` reads.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import random
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import LabError
from labkit.core.own_folder import make_private, writing
from teaching.assignments import require
from teaching.exam_bank import (
    KINDS,
    Bank,
    Item,
    Template,
    practice_bank,
    read_bank,
)

FORMS = "AB"
_LINES_WITHOUT_STUDENTS = 2  # of answers.csv: the items, and the key
_TRIES = 100  # draws until the second form's item differs from the first's


@dataclass(frozen=True)
class Question:
    """An item with its options in the order in which a form shows them, and the place
    of the right one.
    """

    item: Item
    options: tuple[tuple[str, str, str], ...]
    right: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Notebooks, how many questions, the bank, the version and the folder."""
    parser.add_argument(
        "--notebooks",
        nargs="+",
        required=True,
        help="numbers of notebooks, such as 03 04",
    )
    parser.add_argument(
        "--questions", type=int, default=12, help="how many in each form"
    )
    parser.add_argument(
        "--bank",
        type=Path,
        help="your private bank, made by `items new FOLDER`; without it the exam is"
        " for practice",
    )
    parser.add_argument(
        "--version",
        type=int,
        default=1,
        help="a number, such as the year: the next one draws other templates as far"
        " as there are, and other numbers",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="a folder for both forms and their keys",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write both forms."""
    bank = read_bank(arguments.bank) if arguments.bank else practice_bank()
    drawn = forms(arguments.notebooks, arguments.questions, arguments.version, bank)
    _refuse_to_lose_answers(arguments.output)
    what = "Exam" if bank.secret else "Practice"
    for letter, questions in zip(FORMS, drawn, strict=True):
        numbers = ", ".join(arguments.notebooks)
        title = f"{what} {arguments.version}{letter}: notebooks {numbers}"
        write(arguments.output / letter, title, questions)
    print(
        f"{arguments.output} has forms A and B of {len(drawn[0])} questions, to be"
        " printed and for Moodle and QTI 2.2."
    )
    if not bank.secret:
        print(
            "They are for practice: whoever has the workbook can print their key. For"
            " an exam make a private bank with `python -m teaching items new FOLDER`,"
            " and pass it with --bank."
        )
    return 0


def _refuse_to_lose_answers(folder: Path) -> None:
    """LabError where a table of answers in the folder has students already."""
    for letter in FORMS:
        path = folder / letter / "answers.csv"
        lines = path.read_bytes().splitlines() if path.exists() else []
        if len(lines) > _LINES_WITHOUT_STUDENTS:
            raise LabError(
                f"{path} has answers of students, and would be written anew. Name"
                " another folder, or move that file first."
            )


def forms(
    notebooks: Sequence[str], count: int, version: int, bank: Bank
) -> tuple[list[Question], list[Question]]:
    """Two forms of so many questions, the same for the same bank and version; question
    k of both is of one template, or of two items that don't vary, of one notebook and
    kind.

    LabError where there are too few templates.
    """
    known = {template.item.notebook for template in bank.templates}
    if unknown := [number for number in notebooks if number not in known]:
        raise LabError(
            f"There are no items of {', '.join(unknown)}. Name notebooks by two digits,"
            f" with spaces between them, from {min(known)} to {max(known)}."
        )
    draw = bank.draw("exam", version, count, *notebooks)
    numbers = list(dict.fromkeys(notebooks))
    draw.shuffle(numbers)
    slots = {
        (number, kind): _slots(bank.of(number, kind), version)
        for number in numbers
        for kind in KINDS
    }
    most = sum(map(len, slots.values()))
    if not 1 <= count <= most:
        raise LabError(
            f"A form has 1 to {most} questions of notebooks {', '.join(notebooks)}:"
            f" {count} were asked for. There are two templates of each kind for each"
            " notebook from 00 to 22; a private bank can have more."
        )
    # each round takes a question of every notebook, and the kinds take turns
    turns = [
        (number, KINDS[(i + turn) % len(KINDS)], turn // len(KINDS))
        for turn in range(len(KINDS) * most)
        for i, number in enumerate(numbers)
    ]
    pairs = [
        slots[number, kind][place]
        for number, kind, place in turns
        if place < len(slots[number, kind])
    ][:count]
    pairs.sort(key=lambda pair: pair[0].item.notebook)
    drawn = [_drawn(pair, version, bank) for pair in pairs]
    return _form([a for a, _ in drawn], draw), _form([b for _, b in drawn], draw)


Pair = tuple[Template, Template]


def _slots(templates: Sequence[Template], version: int) -> list[Pair]:
    """What question k of form A and of form B can be drawn from: a template that
    varies, twice, or two items that don't.

    The next version begins with the next one, so it shares none with this version as
    long as neither uses more than half of them.
    """
    varying = [(each, each) for each in templates if each.varies()]
    fixed = [each for each in templates if not each.varies()]
    slots = [*varying, *zip(fixed[::2], fixed[1::2], strict=False)]
    first = version % max(1, len(slots))
    return slots[first:] + slots[:first]


def _drawn(pair: Pair, version: int, bank: Bank) -> tuple[Item, Item]:
    """The items of both forms: two of one template differ."""
    first, second = (
        template.instance(bank.draw(template.item.name, version, letter))
        for template, letter in zip(pair, FORMS, strict=True)
    )
    for again in range(_TRIES):
        if first.shown() != second.shown():
            break
        name = pair[1].item.name
        second = pair[1].instance(bank.draw(name, version, FORMS[1], again))
    return first, second


def _form(drawn: Sequence[Item], draw: random.Random) -> list[Question]:
    """The items with their options shuffled; each letter is right about
    equally often.
    """
    places = draw.sample([i % 4 for i in range(len(drawn))], len(drawn))
    mixed = [draw.sample(item.options[1:], 3) for item in drawn]
    return [
        Question(i, (*o[:k], i.options[0], *o[k:]), k)
        for i, o, k in zip(drawn, mixed, places, strict=True)
    ]


def write(folder: Path, title: str, questions: Sequence[Question]) -> None:
    """Write a form into a folder that only this user can enter: exam.html, key.html,
    moodle.xml, qti.zip and answers.csv.
    """
    fill = functools.partial(
        filled,
        title=title,
        questions=questions,
        letters="abcd",
        mark=_mark_of(title, questions),
    )
    with writing(folder):
        make_private(folder)
        (folder / "key.html").write_text(fill("exam.html", key=True), encoding="utf-8")
        for name in ("exam.html", "moodle.xml", "answers.csv"):
            text = f"{fill(name, key=False)}\n"
            (folder / name).write_text(text, encoding="utf-8")
        with zipfile.ZipFile(folder / "qti.zip", "w") as package:
            for name in ("imsmanifest.xml", "assessment.xml"):
                package.writestr(name, fill(name))
            for question in questions:
                package.writestr(
                    f"items/{question.item.name}.xml",
                    fill("item.xml", question=question),
                )


def _mark_of(title: str, questions: Sequence[Question]) -> str:
    """What the identifiers of a package end in: of its own for each form, and the same
    whenever that form is written. The key isn't in it, so it gives none away.
    """
    shown = [title, *(text for each in questions for text in each.item.shown())]
    return hashlib.sha256("\0".join(shown).encode()).hexdigest()[:12]


def filled(name: str, **values: object) -> str:
    """The template of this name with these values, escaped as HTML and XML need it;
    code is not.
    """
    return str(_template(name).render(values))


@functools.cache
def _template(name: str) -> Any:
    require("jinja2")
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    escape = not name.endswith(".py")
    undefined = jinja2.StrictUndefined
    own = jinja2.Environment(
        loader=loader, autoescape=escape, undefined=undefined, trim_blocks=True
    )
    return own.get_template(f"{name}.j2")
