"""Two equivalent forms of an exam with their keys, from items that no deck, card or
quiz shows.

A form has as many items of each notebook and kind as the other, and shares none. It is
written as HTML to be printed, as Moodle XML and a QTI 2.2 package, and with a table for
the answers, which `items` reads.
"""

from __future__ import annotations

import argparse
import functools
import random
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from teaching.assignments import require
from teaching.items import KINDS, Item, items


@dataclass(frozen=True)
class Question:
    """An item with its options in the order in which a form shows them, and the place
    of the right one.
    """

    item: Item
    options: tuple[tuple[str, str, str], ...]
    right: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Notebooks, how many questions, the version and the folder."""
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
        "--seed",
        type=int,
        default=0,
        help="the version: another seed draws another exam",
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
    drawn = forms(arguments.notebooks, arguments.questions, arguments.seed)
    for letter, questions in zip("AB", drawn, strict=True):
        title = (
            f"Exam {arguments.seed}{letter}: notebooks {', '.join(arguments.notebooks)}"
        )
        write(arguments.output / letter, title, questions)
    print(
        f"{arguments.output} has forms A and B of {len(drawn[0])} questions, to be"
        " printed and for Moodle and QTI 2.2."
    )
    return 0


def forms(
    notebooks: Sequence[str], count: int, seed: int
) -> tuple[list[Question], list[Question]]:
    """Two forms of so many questions, the same for the same seed; question k of both is
    of one notebook and kind.

    LabError where there are too few items.
    """
    draw = random.Random(f"{seed} {notebooks} {count}")
    numbers = list(dict.fromkeys(notebooks))
    draw.shuffle(numbers)
    # each round takes a question of every notebook, and the kinds take turns
    turns = [
        (number, KINDS[(i + turn) % 3])
        for turn in range(3)
        for i, number in enumerate(numbers)
    ]
    strata = [
        [item for item in items() if (item.notebook, item.kind) == stratum]
        for stratum in turns
    ]
    pairs = [draw.sample(group, 2) for group in strata if len(group) > 1][:count]
    if len(pairs) < count or count < 1:
        asked = f"{count} of notebooks {', '.join(notebooks)}"
        raise LabError(
            f"A form has 1 to {len(pairs)} questions, 3 of each notebook from 00 to 22;"
            f" {asked} were asked for."
        )
    pairs.sort(key=lambda pair: pair[0].notebook)
    return _form([a for a, _ in pairs], draw), _form([b for _, b in pairs], draw)


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
    """Write a form into a folder: exam.html, key.html, moodle.xml, qti.zip and
    answers.csv.
    """
    fill = functools.partial(filled, title=title, questions=questions, letters="abcd")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "key.html").write_text(fill("exam.html", key=True), encoding="utf-8")
        for name in ("exam.html", "moodle.xml", "answers.csv"):
            (folder / name).write_text(fill(name, key=False), encoding="utf-8")
        with zipfile.ZipFile(folder / "qti.zip", "w") as package:
            for name in ("imsmanifest.xml", "assessment.xml"):
                package.writestr(name, fill(name))
            for question in questions:
                package.writestr(
                    f"items/{question.item.name}.xml", fill("item.xml", one=question)
                )


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
