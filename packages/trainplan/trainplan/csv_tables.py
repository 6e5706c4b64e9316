"""The CSV tables that come with the package: models, libraries, and measurements that
others published.
"""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

DATA = Path(__file__).parent / "data"


@functools.cache
def rows(name: str) -> tuple[Mapping[str, str], ...]:
    """Every row of a table such as "models", as text by column. Raises RuntimeError
    for one that is missing or damaged.
    """
    path = DATA / f"{name}.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise RuntimeError(
            f"Expected a table at {path}, which can't be read: {error}. Install"
            " trainplan again."
        ) from error
    for row in table:
        # DictReader's mark of too many and too few
        if None in row or None in row.values():
            raise RuntimeError(
                f"Expected {len(table[0])} cells in every row of {path}, got another"
                f" number in {row}."
            )
    return tuple(map(MappingProxyType, table))


def settings(row: Mapping[str, str]) -> dict[str, Any]:
    """A row's cells but for its names and source, without empty ones: numbers, true and
    false as such, all else text.
    """
    values: dict[str, Any] = {}
    for column, text in row.items():
        if not text or column in ("name", "also", "torchtitan", "source"):
            continue
        is_json = re.fullmatch(r"true|false|[\d.]+", text)
        values[column] = json.loads(text) if is_json else text
    return values


def published(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of data/published/<name>.csv that were read in their source; those that
    were recalled are left out.
    """
    return tuple(
        row
        for row in rows(f"published/{name}")
        if row["confidence"] == "read from source text"
    )
