"""Read a CSV table, or say in one sentence which line is damaged."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from labkit.core.arguments import brief_repr
from labkit.core.errors import DataError

T = TypeVar("T")


class TableRow(dict[str, str]):
    """A row's cells by column. Asked for a column that the table lacks, it raises
    ValueError.
    """

    def __missing__(self, column: str) -> str:
        raise ValueError(f"expected a column {column!r}, got none")


def read_table(
    path: Path, convert: Callable[[TableRow], T], error: type[Exception] = DataError
) -> list[T]:
    """What `convert` makes of each row of a CSV file with a header.

    Raises `error`, with file, line and what to do, where the file can't be read, has no
    rows, ends within a row, or has a row with too many or too few cells, a number that
    isn't finite, or what `convert` refuses with ValueError.
    """
    rows = []
    line = 1
    try:
        # Windows' ends of lines become "\n", within cells too
        with path.open(encoding="utf-8") as file:
            lines = file.read().splitlines(keepends=True)
        reader = csv.DictReader(lines, strict=True)
        for cells in reader:
            line = reader.line_num
            rows.append(convert(_whole(cells)))
        line = len(lines) or 1
        if not rows or not lines[-1].endswith(("\n", "\r")):
            raise ValueError("the file ends too early")
    except OSError as failure:
        raise error(
            f"{path} can't be read ({failure.strerror}). Restore it with"
            f" `git checkout -- {path}`."
        ) from failure
    except (ValueError, csv.Error) as failure:
        raise error(
            f"{path}, line {line} is damaged: {str(failure).rstrip('.')}."
            f" Restore it with `git checkout -- {path}`."
        ) from failure
    return rows


def _whole(cells: dict[str, str]) -> TableRow:
    # DictReader's mark of too many and too few
    if None in cells or None in cells.values():
        raise ValueError(
            f"expected {len(cells.keys() - {None})} cells, got another number"
        )
    for column, text in cells.items():
        if text.strip().lstrip("+-").lower() in ("nan", "inf", "infinity"):
            raise ValueError(f"expected {column} to be finite, got {brief_repr(text)}")
    return TableRow(cells)
