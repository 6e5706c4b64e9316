"""Read the CSV tables that ship with the workbook, or say in one sentence which line is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kerneltrace import data_table
from kerneltrace.data_table import TableRow as TableRow
from labkit.core.errors import DataError

T = TypeVar("T")


def read_table(path: Path, convert: Callable[[TableRow], T]) -> list[T]:
    """What `kerneltrace.data_table.read_table` makes of a CSV file; it raises DataError."""
    return data_table.read_table(path, convert, DataError)
