"""How hard each item is and how well it separates, from classes' answers; the items are withheld from decks and cards.

A file of answers is an exam's answers.csv, filled in: a row a student, a letter a question. A results file (.jsonl), or
a folder of them, counts too: there an exercise is an item, and right if it was passed without help.
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
from labkit.lesson.outcomes import outcomes
from teaching.pool import read_class

FOLDER = Path(__file__).with_name("item_bank")
KINDS = ("calculate", "explain", "judge")
_OUTER = 0.27  # of a class at each end, by which the difference in T. L. Kelley (1939) is most reliable
Answers = Mapping[str, bool]  # a student's: item -> whether it was right


@dataclass(frozen=True)
class Item:
    """A question with four options (text, why it is right or wrong, its arithmetic if any), the right one first."""

    notebook: str
    name: str
    kind: str
    exercise: str
    misconception: str
    task: str
    options: tuple[tuple[str, str, str], ...]
    code: str = ""

    @property
    def words(self) -> str:
        """The question."""
        return f"True or not, and why? {self.task}" if self.kind == "judge" else self.task


@functools.cache
def items() -> tuple[Item, ...]:
    """All items, by notebook, in the order of the files."""
    files = [(path.stem, tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.toml"))]
    return tuple(
        Item(notebook, **row | {"options": tuple(map(tuple, row["options"])), "code": row.get("code", "").strip()})
        for notebook, table in files
        for row in table["item"]
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.add_argument("paths", nargs="+", type=Path, help="answers.csv of exams, results files, or folders of these")


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each item that somebody answered."""
    print(table(answers(arguments.paths)))
    return 0


def answers(paths: Sequence[Path]) -> list[list[Answers]]:
    """The students' answers, a list for each exam and one for all results files. Raises DataError for other files."""
    forms = [read_answers(path) for path in paths if path.suffix == ".csv"]
    if others := [path for path in paths if path.suffix != ".csv"]:
        readers, skipped = read_class(others)
        if not readers:
            raise DataError(" ".join(["Expected results files, found none.", *skipped[:5]]))
        forms.append([{n: one.unaided for n, one in outcomes(reader.path).items()} for reader in readers])
    return forms


def read_answers(path: Path) -> list[Answers]:
    """The students of a filled-in answers.csv. What is left empty is wrong, since it was asked."""
    try:
        head, key, *students = csv.reader(path.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} can't be read as an exam's answers.csv: {error}.") from error
    if key[0] != "key" or {len(row) for row in students} - {len(head)} or len(key) != len(head):
        raise DataError(f"{path}: expected a row of items, the row of the key, and rows of {len(head)} cells.")
    return [{n: k == a.strip().lower() for n, k, a in list(zip(head, key, row, strict=True))[1:]} for row in students]


def table(forms: Iterable[Sequence[Answers]]) -> Table:
    """Students, share of right answers and both measures of discrimination of each item, hardest first.

    Each answer is held against the share of right answers among the student's others.
    """
    pairs: dict[str, list[tuple[float, bool]]] = {}
    for student in (student for form in forms for student in form if len(student) > 1):
        for name, right in student.items():
            pairs.setdefault(name, []).append(((sum(student.values()) - right) / (len(student) - 1), right))
    found = {name: (statistics.mean(right for _, right in both), both) for name, both in pairs.items()}
    rows = [
        (name, str(len(both)), f"{share:.0%}", _shown(outer(both)), _shown(point_biserial(both)))
        for name, (share, both) in sorted(found.items(), key=lambda pair: (pair[1][0], pair[0]))
    ]
    head = ("item", "students", "right", "upper less lower 27 %", "point-biserial")
    notes = ("Look at items below 0.2: those who know more hardly do better there. Below 0 the key may be wrong.",)
    return Table(tuple(rows), head if rows else (), notes=notes if rows else ("Nobody has answered two items.",))


def outer(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Share of right answers in the upper 27 % of students less that in the lower; None for fewer than four."""
    ordered = [right for _, right in sorted(pairs, key=lambda pair: pair[0])]
    count = round(_OUTER * len(ordered))
    return (sum(ordered[-count:]) - sum(ordered[:count])) / count if count else None


def point_biserial(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Correlation of an answer with the others' share of right ones; None where one of them is always the same."""
    try:
        return statistics.correlation([rest for rest, _ in pairs], [float(right) for _, right in pairs])
    except statistics.StatisticsError:
        return None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
