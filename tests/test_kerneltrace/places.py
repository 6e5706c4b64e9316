"""Where the tests find files of the repository: its folder, the README of kerneltrace,
published numbers.
"""

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def readme():
    """The text of kerneltrace's README, in one line."""
    return " ".join(
        (ROOT / "kerneltrace" / "README.md").read_text(encoding="utf-8").split()
    )


def published(name):
    """The rows of a table of published numbers, those that were read
    from their source.
    """
    with (ROOT / "data" / "published" / f"{name}.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["confidence"] == "read from source text"
        ]
