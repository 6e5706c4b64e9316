"""Tell how hard each item is and how well it separates, from classes' answers; `items
new FOLDER` makes a private bank of items.

A file of answers is an exam's answers.csv, filled in: a row a student, a letter a
question, as a spreadsheet saves it. A results file (.jsonl), or a folder of them,
counts too: there an exercise is an item, and right if it was passed without help.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.core.display import Table
from labkit.core.errors import BadArgument, DataError
from labkit.lesson.outcomes import standings
from labkit.measure.bootstrap import resampled_interval
from teaching import answer_sheets
from teaching.answer_sheets import Sheet
from teaching.class_files import read_class
from teaching.exam_bank import make_bank

Answers = Mapping[str, bool]  # a student's: item -> whether it was right
Pairs = list[tuple[float, float]]  # right or not, and the share of the other items
SUFFIXES = (".csv", ".tsv", ".txt")
_SPREADSHEETS = (".ods", ".xls", ".xlsx")  # read as tables, to say how to save them
_Z = statistics.NormalDist().inv_cdf(0.975)  # of a 95 % interval
_LEAST = 10  # students for an interval of a correlation, or of the reliability


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files, or "new" and a folder."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="answers.csv of exams, results files, or folders of these; or `new` and a"
        " folder for a private bank",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each item that somebody answered, or make a private bank."""
    if arguments.paths[0] == Path("new"):
        return _new(arguments.paths[1:])
    forms, notes = answers(arguments.paths)
    for note in notes:
        print(note)
    print(table(forms))
    return 0


def _new(folders: Sequence[Path]) -> int:
    if len(folders) != 1:
        raise BadArgument(
            f"Expected one folder after `items new`, got {len(folders)}. Choose one"
            " that only you can read, such as ~/exam-bank."
        )
    make_bank(folders[0])
    print(
        f"{folders[0]} is your private bank. Keep it for yourself, and keep a copy:"
        f" `python -m teaching exam --bank {folders[0]} ...` draws exams from it."
    )
    return 0


def answers(paths: Sequence[Path]) -> tuple[list[list[Answers]], list[str]]:
    """The students' answers, a list for each exam and one for all results files, and
    how the files were understood. Raises DataError for other files, and for one that is
    named twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("A file is named twice. Its answers would count twice.")
    sheets = {
        path: answer_sheets.read(path)
        for path in paths
        if path.suffix.lower() in (*SUFFIXES, *_SPREADSHEETS)
    }
    forms: list[list[Answers]] = [_by_item(sheet) for sheet in sheets.values()]
    notes = [
        f"{path}: {'; '.join(sheet.notes)}.{_reliability(sheet)}"
        for path, sheet in sheets.items()
    ]
    if others := [path for path in paths if path not in sheets]:
        forms.append(_of_results(others))
    return forms, notes


def _by_item(sheet: Sheet) -> list[Answers]:
    return [
        dict(zip(sheet.items, right, strict=True)) for right in sheet.students.values()
    ]


def _of_results(paths: Sequence[Path]) -> list[Answers]:
    readers, skipped = read_class(paths)
    if not readers:
        raise DataError(
            " ".join(
                [
                    "Expected results files, found none. A table of answers ends in"
                    f" {' or '.join(SUFFIXES)}.",
                    *skipped[:5],
                ]
            )
        )
    return [
        {number: each.unaided for number, each in standings(reader.entries).items()}
        for reader in readers
    ]


# -- statistics


def table(forms: Iterable[Sequence[Answers]]) -> Table:
    """Students, share of right answers, and discrimination of each item, hardest first,
    with 95 % intervals of both.

    Discrimination is the correlation (point-biserial) of an answer with the share of
    right ones among the others.
    """
    pairs: dict[str, Pairs] = {}
    for student in (student for form in forms for student in form if len(student) > 1):
        for name, right in student.items():
            pairs.setdefault(name, []).append(
                (float(right), (sum(student.values()) - right) / (len(student) - 1))
            )
    rows = [_row(name, both) for name, both in sorted(pairs.items(), key=_hardness)]
    if not rows:
        return Table((), notes=("Nobody has answered two items.",))
    return Table(
        tuple(rows),
        ("item", "students", "right", "discrimination", "right, 95 %", "discr., 95 %"),
        notes=(
            "Look at items below 0.2: those who know more hardly do better there. Below"
            " 0 the key may be wrong. Of four options, chance finds 25 %. An interval"
            " that contains 0 shows nothing of an item.",
        ),
    )


def _hardness(item: tuple[str, Pairs]) -> tuple[float, str]:
    name, both = item
    return statistics.mean(right for right, _ in both), name


def _row(name: str, both: Pairs) -> tuple[str, ...]:
    right = [right for right, _ in both]
    low, high = share_interval(sum(right), len(right))
    try:
        separation = f"{statistics.correlation(*zip(*both, strict=True)):.2f}"
        interval = _shown(_interval(both, _correlations))
    except statistics.StatisticsError:  # one student, or all alike
        separation = interval = "unknown"
    share = f"{statistics.mean(right):.0%}"
    return name, str(len(both)), share, separation, f"{low:.0%} to {high:.0%}", interval


def share_interval(right: float, count: int) -> tuple[float, float]:
    """95 % interval of a share, which stays between 0 and 1 and isn't empty for a share
    of 0 or 1. Source: Wilson (1927), Probable inference, the law of succession, and
    statistical inference, Journal of the American Statistical Association.
    """
    share = right / count
    middle = share + _Z**2 / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    whole = 1 + _Z**2 / count
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def _interval(rows: Sequence[Sequence[float]], statistic: Any) -> Any:
    """The interval of a statistic of students, None for too few."""
    return resampled_interval(rows, statistic) if len(rows) >= _LEAST else None


def _shown(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return f"fewer than {_LEAST}"
    low, high = interval
    return f"{low:.2f} to {high:.2f}" if math.isfinite(low + high) else "unknown"


def _correlations(rows: Any) -> Any:
    """The correlation of two columns in each sample of rows (samples, students, 2)."""
    away = rows - rows.mean(axis=1, keepdims=True)  # (samples, students, 2)
    both = (away[..., 0] * away[..., 1]).sum(axis=1)  # (samples,)
    squares = (away**2).sum(axis=1)  # (samples, 2)
    return both / (squares[:, 0] * squares[:, 1]) ** 0.5


def kr20(rows: Any) -> Any:
    """The reliability of a test in each sample of answers (samples, students, items), 0
    or 1: k / (k - 1) x (1 - sum of p (1 - p) / variance of the totals).

    Source: Kuder and Richardson (1937), The theory of the estimation of test
    reliability, Psychometrika; its formula 20. Variances are those of the students
    themselves.
    """
    items = rows.shape[2]
    shares = rows.mean(axis=1)  # (samples, items)
    spread = (shares * (1 - shares)).sum(axis=1)  # (samples,)
    totals = rows.sum(axis=2)  # (samples, students)
    return items / (items - 1) * (1 - spread / totals.var(axis=1))


def _reliability(sheet: Sheet) -> str:
    """What an exam's KR-20 is, as a sentence."""
    import numpy as np

    rows = [tuple(map(float, right)) for right in sheet.students.values()]
    with np.errstate(divide="ignore", invalid="ignore"):
        (value,) = kr20(np.asarray([rows]))
    if not math.isfinite(value):
        return " Reliability (KR-20): unknown, as all have as many right answers."
    interval = _shown(_interval(rows, kr20))
    return f" Reliability (KR-20): {value:.2f}; 95 % interval: {interval}."
