"""Par of each puzzle: what the course's own answers cost, as `par.csv` has it.

The table is kept because a copy for a class has no solutions; `counting.py` writes it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from exercises.nb23.puzzles import Puzzle
from labkit.core.data_table import TableRow, read_table
from labkit.core.errors import DataError

TABLE = Path(__file__).with_name("par.csv")

Parts = dict[tuple[str, str], float]
"""(array, kind of access) -> its part of the count that decides."""
Row = tuple[str, str, str, str, float]


def par(number: str) -> dict[str, float]:
    """What the course's answer to a puzzle costs, by the names of its counts."""
    return {
        count: cost
        for puzzle, count, array, _, cost in _rows()
        if puzzle == number and not array
    }


def par_by_part(number: str) -> Parts:
    """Which arrays par's first count comes from."""
    return {
        (array, kind): cost
        for puzzle, _, array, kind, cost in _rows()
        if puzzle == number and array
    }


def parts_of(puzzle: Puzzle, trace: Any) -> Parts:
    """Which arrays of the kernel's parameters the count that decides comes from; empty
    where it is no count of memory.
    """
    deciding = puzzle.counts[0]
    if deciding not in ("sectors", "bytes"):
        return {}
    parts = {}
    for array in puzzle.arrays():
        for kind in ("load", "store", "atomic"):
            counts = trace.count(array, kind=kind)
            parts[array, kind] = float(getattr(counts, deciding))
    return {part: cost for part, cost in parts.items() if cost}


@functools.cache
def _rows() -> list[Row]:
    return read_table(TABLE, _row, DataError)


def _row(row: TableRow) -> Row:
    return row["puzzle"], row["count"], row["array"], row["kind"], float(row["cost"])
