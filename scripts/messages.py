"""Write exercises/messages.csv: what checks reply to each wrong answer of the tests,
and the misconception behind it.

A class's page finds in it which misconception a learner's wrong answer shows. It takes
some minutes; NN ... limits it to notebooks, and keeps the lines of the others.
"""

from __future__ import annotations

import csv
import importlib
import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from exercises.misconceptions import misconceptions
from labkit.core.display import cut
from labkit.core.paths import EXERCISES
from labkit.lesson.checks import judged

FILE = EXERCISES / "messages.csv"
LONGEST = 200  # letters of a message that a results file keeps


def replies(notebook: str) -> list[tuple[str, str, str]]:
    """(exercise, misconception, message) for each wrong answer of a notebook, once
    each.
    """
    wrong = importlib.import_module(f"exercises.nb{notebook}.wrong_answers").WRONG
    bank = misconceptions()
    check = importlib.import_module(f"exercises.nb{notebook}.check")
    if hasattr(check, "measure_ceilings"):
        vars(check)["measure_ceilings"] = _ceilings
    rows = []
    for number, answers in wrong.items():
        for answer, words, name in answers:
            # such ranks hang until a time limit stops them
            if name in bank and "wait for each other" not in words:
                outcome = judged(number, answer)
                rows.append((number, name, cut(outcome.message, LONGEST)))
    return list(dict.fromkeys(rows))


def _ceilings(**_: Any) -> SimpleNamespace:
    """The ceilings that the wrong answers of notebook 00 are made for."""
    from exercises.nb00.wrong_answers import COPY, MATMUL

    return SimpleNamespace(copy_bytes_per_s=COPY, matmul_flop_per_s={"float32": MATMUL})


def main(chosen: Sequence[str]) -> int:
    """Write the lines of these notebooks, or of all."""
    kept: list[tuple[str, str, str]] = []
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            kept = [tuple(row) for row in list(csv.reader(file))[1:]]  # type: ignore[misc]
    for folder in sorted(EXERCISES.glob("nb*")):
        notebook = folder.name[2:]
        if not chosen or notebook in chosen:
            kept = [row for row in kept if row[0][:2] != notebook] + replies(notebook)
            print(notebook, flush=True)
            with FILE.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows(
                    [("exercise", "misconception", "message"), *sorted(kept)]
                )
    return 0


if __name__ == "__main__":
    os.environ["LABKIT_PROFILE"] = "ci"
    sys.exit(main(sys.argv[1:]))
