"""Runs and measurements that others published, which the planner is held against, and
the programs that fit its constants to them. The wheel goes without it.
"""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).parent


def table(name: str) -> list[dict[str, str]]:
    """The rows of <name>.csv that were read from their source, as text by column."""
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["confidence"] == "read from source text"
        ]
