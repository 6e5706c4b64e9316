"""Tables of a class's answers, as spreadsheets write them: what is meant is read, and
said; what can't be is refused with its line, its cell and what to do.

A table has a row of items, a row of the key, and a row for each student.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.core.errors import DataError

LETTERS = "abcd"  # of an exam's options; a key with later letters has more
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_KEY = {"key", "the key", "answer key", "key row", "solution", "solutions"}
_TOTALS = {
    "%", "average", "correct", "count", "difficulty", "mean", "median", "percent",
    "right", "share", "sum", "total", "totals",
}  # fmt: skip
# beside one of these in a row's name: "number right", "class average"
_OF_A_TOTAL = {"answers", "class", "item", "number", "of", "points", "score"}
_NO_ITEMS = {
    "comment", "comments", "date", "email", "e-mail", "first name", "grade", "group",
    "id", "last name", "mark", "name", "note", "notes", "number", "points", "remark",
    "remarks", "score", "section", "seat", "student id", "sum", "time", "total",
}  # fmt: skip
_NO_ANSWER = {"", "-", "--", ".", "?", "n/a", "na", "none", "empty", "blank"}
_ABSENT = {"absent", "abs", "not present", "ill", "excused"}


@dataclass(frozen=True)
class Sheet:
    """A class's answers: the items, and of each student who was there whether each
    answer is right; `notes` say how the file was understood.
    """

    items: tuple[str, ...]
    students: Mapping[str, tuple[bool, ...]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    line: int
    cells: list[str]

    def cell(self, column: int) -> str:
        return self.cells[column] if column < len(self.cells) else ""


def read(path: Path) -> Sheet:
    """The answers in a file.

    Raises DataError, with the place and what to do, for what can be understood in two
    ways.
    """
    try:
        text, encoding = _decoded(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} can't be read: {error}.") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    try:
        rows, separator = _rows(text)
        return _sheet(rows, [encoding, separator])
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: {error}") from error


def _decoded(data: bytes) -> tuple[str, str]:
    """The text and the name of its encoding."""
    if data[:2] == b"PK":
        raise ValueError("this is a workbook of a spreadsheet. Save it as CSV (UTF-8).")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), "UTF-16"
    if b"\0" in data[:200]:
        little = data[1:200:2].count(0) >= data[0:200:2].count(0)
        return data.decode("utf-16-le" if little else "utf-16-be"), "UTF-16"
    for encoding, name in (("utf-8-sig", "UTF-8"), ("cp1252", "Windows-1252")):
        try:
            return data.decode(encoding), name
        except UnicodeDecodeError:
            continue
    return data.decode("latin1"), "Latin-1"


def _rows(text: str) -> tuple[list[_Row], str]:
    """The rows that aren't empty, their cells without spaces around them, and the name
    of what separates the cells.
    """
    lines = text.splitlines()
    declared = re.match(r'"?sep=(.)"?\s*$', lines[0]) if lines else None
    filled = [line for line in lines[bool(declared) :] if line.strip()]
    head = filled[0] if filled else ""
    counts = {sign: head.count(sign) for sign in _SEPARATORS}
    separator = declared[1] if declared else max(counts, key=lambda sign: counts[sign])
    if separator not in _SEPARATORS or not head.count(separator):
        raise ValueError(
            "line 1: expected a row of items, separated by commas, semicolons or tabs,"
            f" got {head[:60]!r}. Write the students below each other and the items"
            " beside each other."
        )
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = []
    line = 1  # on which the row begins
    for cells in reader:
        clean = [_clean(cell) for cell in cells]
        if any(clean) and not (declared and line == 1):
            rows.append(_Row(line, clean))
        line = reader.line_num + 1
    return rows, _SEPARATORS[separator]


def _clean(cell: str) -> str:
    """A cell with full-width letters as plain ones, and single spaces."""
    return " ".join(unicodedata.normalize("NFKC", cell).replace("\ufeff", "").split())


def _sheet(rows: Sequence[_Row], file_notes: list[str]) -> Sheet:
    if len(rows) < 3:
        raise ValueError(
            "expected a row of items, the row of the key and rows of students, got"
            f" {len(rows)} rows that aren't empty. Begin with the exam's answers.csv."
        )
    head = rows[0]
    key, others = _key_row(rows)
    columns, no_items = _columns(head, key, others)
    options = _Options([key.cell(column) for column in columns])
    due = [options.read(key, column, head) for column in columns]
    if "" in due:
        raise ValueError(
            f"line {key.line}: expected a letter for each item, got none for"
            f" {head.cell(columns[due.index('')])}."
        )
    totals = [row for row in others if _is_total(row, columns)]
    there = [row for row in others if row not in totals]
    for row in there:
        _refuse_cells_beyond(row, head)
    absent = [row for row in there if _is_absent(row, columns)]
    students = _students([row for row in there if row not in absent])
    right = {
        name: tuple(
            options.read(row, column, head) == letter
            for column, letter in zip(columns, due, strict=True)
        )
        for name, row in students.items()
    }
    notes = [
        f"{len(right)} students, {len(columns)} items",
        f"{', '.join(file_notes)}, the key on line {key.line}",
    ]
    if options.numbers:
        notes.append("numbers are options, 1 = a")
    if absent:
        notes.append(f"no answer, so absent: {_names(absent)}")
    if totals:
        notes.append(f"no student: {_names(totals)}")
    if no_items:
        notes.append(f"no key, so no item: {', '.join(no_items)}")
    return Sheet(tuple(head.cell(column) for column in columns), right, tuple(notes))


def _names(rows: Sequence[_Row]) -> str:
    return ", ".join(row.cell(0) or f"line {row.line}" for row in rows)


def _students(rows: Sequence[_Row]) -> dict[str, _Row]:
    """The rows by student; ValueError where a name is missing, or stands twice."""
    students: dict[str, _Row] = {}
    known: dict[str, int] = {}
    for row in rows:
        name = row.cell(0)
        if not name:
            raise ValueError(
                f"line {row.line}, cell A{row.line}: expected a student's name or"
                " number before the answers, got an empty cell."
            )
        if name.casefold() in known:
            raise ValueError(
                f"line {row.line}: the student {name!r} stands on line"
                f" {known[name.casefold()]} too. Leave one of the two rows, or give"
                " each a name of its own."
            )
        known[name.casefold()] = row.line
        students[name] = row
    if not students:
        raise ValueError("expected at least one student with an answer, found none.")
    return students


def _key_row(rows: Sequence[_Row]) -> tuple[_Row, list[_Row]]:
    """The row of the key, and the rows below the head that aren't it."""
    keys = [row for row in rows[1:] if row.cell(0).casefold().rstrip(":") in _KEY]
    if len(keys) != 1:
        where = ", ".join(str(row.line) for row in keys) or "none"
        raise ValueError(
            "expected one row whose first cell is `key`, with the right letters, got"
            f" {where}. Copy that row from the exam's answers.csv."
        )
    return keys[0], [row for row in rows[1:] if row is not keys[0]]


def _columns(
    head: _Row, key: _Row, others: Sequence[_Row]
) -> tuple[list[int], list[str]]:
    """The columns of items, and the names of the other ones."""
    columns = []
    left_out = []
    for column in range(1, max(len(head.cells), len(key.cells))):
        name = head.cell(column)
        if key.cell(column) and name.casefold() not in _NO_ITEMS:
            columns.append(column)
        elif name or any(row.cell(column) for row in others):
            _refuse_item_without_key(head, key, others, column)
            left_out.append(name or f"column {column_letter(column)}")
    names = [head.cell(column).casefold() for column in columns]
    for place, name in zip(columns, names, strict=True):
        if not name:
            raise ValueError(
                f"line {head.line}, cell {column_letter(place)}{head.line}: expected"
                " the name of an item above its key, got an empty cell."
            )
        if names.count(name) > 1:
            raise ValueError(
                f"line {head.line}: the item {head.cell(place)!r} stands in two columns"
                f" ({column_letter(place)} is one). Leave one of them."
            )
    if len(columns) < 2:
        raise ValueError(
            f"line {key.line}: expected the key of at least two items, got"
            f" {len(columns)}."
        )
    return columns, left_out


def _refuse_item_without_key(
    head: _Row, key: _Row, others: Sequence[_Row], column: int
) -> None:
    """ValueError for a column that looks like answers and has no key."""
    name = head.cell(column)
    texts = [row.cell(column) for row in others if row.cell(column)]
    named = name.casefold() in _NO_ITEMS
    if texts and not named and all(map(_letter_of, texts)):
        raise ValueError(
            f"line {key.line}, cell {column_letter(column)}{key.line}: expected the key"
            f" of {name or 'this column'!r}, whose cells are answers, got an empty"
            " cell. Write the right letter there, or take the column out."
        )


def _is_total(row: _Row, columns: Sequence[int]) -> bool:
    """Whether a row has the name of a total, and no letter below an item."""
    words = set(row.cell(0).casefold().rstrip(":").split())
    named = words & _TOTALS and words <= _TOTALS | _OF_A_TOTAL
    return bool(named) and not any(row.cell(column).isalpha() for column in columns)


def _is_absent(row: _Row, columns: Sequence[int]) -> bool:
    cells = [row.cell(column).casefold() for column in columns]
    return not any(cells) or any(cell in _ABSENT for cell in cells)


def _refuse_cells_beyond(row: _Row, head: _Row) -> None:
    beyond = [cell for cell in row.cells[len(head.cells) :] if cell]
    if beyond:
        raise ValueError(
            f"line {row.line}: expected {len(head.cells)} cells, as in the row of"
            f" items, got {len(row.cells)}; {beyond[0]!r} has no item above it. Put"
            " cells that have a separator in them into quotes."
        )


class _Options:
    """The letters that answers can have, by the key: a to d, or further."""

    def __init__(self, key: Sequence[str]) -> None:
        letters = [letter for cell in key if (letter := _letter_of(cell))]
        last = max([*letters, LETTERS[-1]])
        self.letters = string.ascii_lowercase[: ord(last) - ord("a") + 1]
        self.numbers = False

    def read(self, row: _Row, column: int, head: _Row) -> str:
        """The letter in a cell, or "" if there is no answer in it."""
        cell = row.cell(column)
        if cell.casefold() in _NO_ANSWER:
            return ""
        letter = _letter_of(cell)
        if not letter or letter not in self.letters:
            raise ValueError(
                f"line {row.line}, cell {column_letter(column)}{row.line}, item"
                f" {head.cell(column)}: expected a letter from a to {self.letters[-1]},"
                f" or 1 for a and so on, got {cell!r}. Leave the cell empty where no"
                " answer counts."
            )
        self.numbers = self.numbers or cell.strip("().: ")[0].isdigit()
        return letter


def _letter_of(cell: str) -> str:
    """The letter of an option: "b", "B", "b)", "(b)", "2" and "2.0" are b; "" for all
    else.
    """
    match = re.fullmatch(r"\(?([a-z]|[1-9])(?:\.0+)?[).:]?", cell.casefold())
    if not match:
        return ""
    sign = match[1]
    return string.ascii_lowercase[int(sign) - 1] if sign.isdigit() else sign


def column_letter(column: int) -> str:
    """A spreadsheet's name of a column, counted from 0: A, B, ... Z, AA."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = string.ascii_uppercase[rest] + name
    return name
