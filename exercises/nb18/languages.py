"""Seven languages for kernels of tiles: the same three lines in each, what its compiler
made of them without a GPU, and what it lets one say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from exercises.nb18.matmuls.compiling import LANGUAGES
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import Table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.measure import published

RECORDED = DATA / "language_code.csv"  # data/make/language_code.py
_LINE = re.compile(r"\s*(.+?)  # (load|multiply|store)\n")
TOPICS = (
    "shared memory",
    "layouts",
    "pipelines",
    "warps' roles",
    "pairs of blocks",
    "tensor memory",
)
"""What a kernel for Hopper or Blackwell is about, in the order of the table."""


def three_lines() -> str:
    """The lines of each language's matmul that load a tile, multiply, and store."""
    width = max(map(len, LANGUAGES)) + 2
    parts = []
    for name, language in LANGUAGES.items():
        lines = [line for line, _ in _LINE.findall(language.text)]
        indented = f"\n{'':{width}}".join(lines)
        parts.append(f"{name:{width}}{indented}")
    return "\n\n".join(parts)


def compiled() -> Table:
    """What each language's compiler made of its matmul for three generations, as it was
    recorded. Raises DataError for a damaged file.
    """
    made: dict[str, dict[str, str]] = {}
    compilers: dict[str, str] = {}
    for row in recorded():
        made.setdefault(row["language"], {})[row["capability"]] = row["instructions"]
        compilers[row["language"]] = f"{row['compiler']} → {row['output']}"
    rows = tuple(
        (
            name,
            *(made[name].get(capability, "") for capability in ("80", "90", "100")),
            compilers[name],
        )
        for name in LANGUAGES
    )
    headings = ("language", "8.0", "9.0", "10.0", "compiled without a GPU by")
    return Table(rows, headings, notes=("Recorded: data/language_code.csv",))


def says() -> Table:
    """Who decides what in each language: "you" write it, it is an "option" that the
    compiler carries out, or the compiler alone decides ("").
    """
    who = {(row["language"], row["topic"]): row["who"] for row in _said()}
    rows = tuple(
        (name, *(who.get((name, topic), "") for topic in TOPICS)) for name in LANGUAGES
    )
    notes = ("empty: the compiler decides", "names and sources: languages.names()")
    return Table(rows, ("language", *TOPICS), notes=notes)


def names(language: str = "") -> Table:
    """The name in each language for what it lets one say, and where it is documented;
    of all languages, or of one.
    """
    rows = tuple(
        (row["language"], row["topic"], row["name"], row["source"])
        for row in _said()
        if language in ("", row["language"])
    )
    return Table(rows, ("language", "what", "name", "source"))


def _said() -> tuple[Mapping[str, str], ...]:
    return published.table("kernel_languages")


def recorded() -> list[TableRow]:
    """Rows of the table that data/make/language_code.py wrote. Raises DataError for a
    damaged file.
    """
    return read_table(RECORDED, _row, DataError)


def _row(row: TableRow) -> TableRow:
    int(row["capability"])
    if row["language"] not in LANGUAGES:
        raise ValueError(f"no such language: {row['language']!r}")
    return row
