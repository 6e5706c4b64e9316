"""Where the tests find files: the project's folder, its pages, published numbers, and
which cases of a long table every run takes.
"""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]  # with the README, the package and published times


def validation():
    """The text of docs/validation.md, in one line."""
    return " ".join((ROOT / "docs/validation.md").read_text(encoding="utf-8").split())


def published(name):
    """The rows of a table of published numbers, those that were read
    from their source.
    """
    with (ROOT / "kerneltrace_published" / f"{name}.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["confidence"] == "read from source text"
        ]


def one_in(n, cases):
    """Parameters, of tuples, of which every run has one in n, and a nightly run all."""
    return [
        pytest.param(*case, marks=[] if i % n == 0 else [pytest.mark.nightly])
        for i, case in enumerate(cases)
    ]
