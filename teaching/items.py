"""How hard each item is and how well it separates, from classes' answers; the items are
withheld from decks and cards.

A file of answers is an exam's answers.csv, filled in: a row a student, a letter a
question. A results file (.jsonl), or a folder of them, counts too: there an exercise is
an item, and right if it was passed without help.
"""

from __future__ import annotations

import argparse
import csv
import functools
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.core.display import Table
from labkit.core.errors import DataError
from labkit.lesson.outcomes import standings
from teaching.class_files import read_class

FOLDER = Path(__file__).with_name("item_bank")
KINDS = ("calculate", "explain", "judge")
Answers = Mapping[str, bool]  # a student's: item -> whether it was right


@dataclass(frozen=True)
class Item:
    """A question and four options (text, why, arithmetic if any), the right one first;
    a point stands for a minute.
    """

    notebook: str
    name: str
    kind: str
    points: int
    exercise: str
    misconception: str
    task: str
    options: tuple[tuple[str, str, str], ...]
    code: str = ""


@functools.cache
def items() -> tuple[Item, ...]:
    """All items, by notebook, in the order of the files."""
    all_items = []
    for path in sorted(FOLDER.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["item"]:
            options = tuple(map(tuple, row["options"]))
            code = row.get("code", "").strip()
            name = f"nb{path.stem}-{row['name']}"
            all_items.append(
                Item(
                    path.stem, **row | {"name": name, "options": options, "code": code}
                )
            )
    return tuple(all_items)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="answers.csv of exams, results files, or folders of these",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each item that somebody answered."""
    print(table(answers(arguments.paths)))
    return 0


def answers(paths: Sequence[Path]) -> list[list[Answers]]:
    """The students' answers, a list for each exam and one for all results files. Raises
    DataError for other files.
    """
    forms = [read_answers(path) for path in paths if path.suffix == ".csv"]
    if others := [path for path in paths if path.suffix != ".csv"]:
        readers, skipped = read_class(others)
        if not readers:
            raise DataError(
                " ".join(["Expected results files, found none.", *skipped[:5]])
            )
        forms.append(
            [
                {
                    n: standing.unaided
                    for n, standing in standings(reader.entries).items()
                }
                for reader in readers
            ]
        )
    return forms


def read_answers(path: Path) -> list[Answers]:
    """The students of a filled-in answers.csv. What is left empty is wrong, since it
    was asked.
    """
    try:
        head, key, *students = csv.reader(
            path.read_text(encoding="utf-8-sig").splitlines()
        )
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{path} can't be read as an exam's answers.csv: {error}."
        ) from error
    if (
        key[0] != "key"
        or {len(row) for row in students} - {len(head)}
        or len(key) != len(head)
    ):
        raise DataError(
            f"{path}: expected a row of items, the row of the key, and rows of"
            f" {len(head)} cells."
        )
    return [
        {
            n: k == a.strip().lower()
            for n, k, a in list(zip(head, key, row, strict=True))[1:]
        }
        for row in students
    ]


def table(forms: Iterable[Sequence[Answers]]) -> Table:
    """Students, share of right answers, and discrimination of each item, hardest first.

    Discrimination is the correlation (point-biserial) of an answer with the share of
    right ones among the others.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    for student in (student for form in forms for student in form if len(student) > 1):
        for name, right in student.items():
            pairs.setdefault(name, []).append(
                (float(right), (sum(student.values()) - right) / (len(student) - 1))
            )
    rows = []
    for name, both in sorted(
        pairs.items(),
        key=lambda pair: (statistics.mean(right for right, _ in pair[1]), pair[0]),
    ):
        try:
            correlation = f"{statistics.correlation(*zip(*both, strict=True)):.2f}"
        except statistics.StatisticsError:  # one student, or all alike
            correlation = "unknown"
        rows.append(
            (
                name,
                str(len(both)),
                f"{statistics.mean(right for right, _ in both):.0%}",
                correlation,
            )
        )
    notes = (
        (
            "Look at items below 0.2: those who know more hardly do better there. Below"
            " 0 the key may be wrong."
        ),
    )
    if not rows:
        return Table((), notes=("Nobody has answered two items.",))
    return Table(
        tuple(rows), ("item", "students", "right", "discrimination"), notes=notes
    )
