"""Reports of Nsight Systems and Nsight Compute that others published, to be read.

The rows are in data/published/nsight_reports.csv, each with who published it and where.
A report keeps the tool's own names of tables and columns; long names of counters stand
in the file's column `counter`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.core.arguments import lookup
from labkit.core.display import Note, Shown, Table
from labkit.core.errors import BadArgument
from labkit.core.parameters import checked
from labkit.measure.published import table

Row = Mapping[str, str]

# report -> (the command that made it, what the program does)
_MADE_BY = {
    "tiny": (
        "nsys profile --stats=true",
        "A kernel that adds ten numbers is launched 10 times and then, in the range"
        " Profile_Loop, 1,000 times; after each of the two the host waits.",
    ),
    "darts": (
        "nsys profile --stats true",
        "65,536 threads throw 1,000,000,000 darts at a square to estimate pi.",
    ),
    "throw_dart": (
        "ncu --set full",
        "The kernel of the same program that throws the darts.",
    ),
    "transpose": (
        "ncu --metrics",
        "Three kernels that transpose 4,096 x 4,096 numbers of float64. `naive` reads"
        " down the columns; `tiled` goes through shared memory; `padded` adds a column"
        " to that tile.",
    ),
    "matmul": (
        "ncu",
        "Somebody's kernel for a contest: two matrix products in NVFP4, of 4 bits.",
    ),
}


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The tables of a report, and what made it."""

    name: str
    rows: tuple[Row, ...]

    def value(self, row: str, column: str = "Metric Value", section: str = "") -> float:
        """The number in a row and a column; `section` is needed only where two tables
        have such a row. Raises BadArgument for a number that the report hasn't.
        """
        values = {
            line["value"]
            for line in self.rows
            if (line["row"], line["column"]) == (row, column)
            and section in ("", line["section"])
        }
        if len(values) != 1:
            raise BadArgument(
                f"Expected a row and a column of the report {self.name!r} that name one"
                f" number, got {row!r} and {column!r}, which name {len(values)}."
            )
        return float(values.pop())

    def tables(self) -> tuple[Table, ...]:
        """A table for each section; the last says below who published the report."""
        sections = list(dict.fromkeys(line["section"] for line in self.rows))
        shown = [self._table(section) for section in sections]
        who = "; ".join(dict.fromkeys(line["who"] for line in self.rows))
        links = dict.fromkeys(line["link"] for line in self.rows)
        source = f"Published by {who}: {' '.join(links)}"
        last = shown[-1]
        shown[-1] = Table(last.rows, last.headings, last.title, (source,))
        return tuple(shown)

    def _table(self, section: str) -> Table:
        lines = [line for line in self.rows if line["section"] == section]
        columns = list(dict.fromkeys(line["column"] for line in lines))
        units = {line["row"]: line["unit"] for line in lines}
        cells = {(line["row"], line["column"]): line["value"] for line in lines}
        has_units = any(units.values())
        body = []
        for name, unit in units.items():
            row = [name]
            row += [unit] if has_units else []
            row += [_grouped(cells.get((name, column), "")) for column in columns]
            body.append(tuple(row))
        first = ("Metric Name", "Metric Unit") if has_units else ("Name",)
        return Table(tuple(body), (*first, *columns), section)

    def _heading(self) -> str:
        command, work = _MADE_BY[self.name]
        device = self.rows[0]["device"]
        where = f", {device}" if device else ""
        return f"{command}{where}. {work}"

    def __str__(self) -> str:
        return "\n\n".join([self._heading(), *map(str, self.tables())])

    def _repr_html_(self) -> str:
        heading = Note(self._heading())._repr_html_()
        return heading + "".join(part._repr_html_() for part in self.tables())


def _grouped(value: str) -> str:
    """A number with commas between its thousands, and the decimals that it has."""
    whole, point, decimals = value.partition(".")
    return f"{int(whole):,}{point}{decimals}" if whole else ""


@functools.cache
def _reports() -> dict[str, Report]:
    rows = table("nsight_reports")
    return {
        name: Report(name, tuple(row for row in rows if row["report"] == name))
        for name in _MADE_BY
    }


@checked
def published(name: str) -> Report:
    """A published report: "tiny" or "darts" of Nsight Systems; "throw_dart",
    "transpose" or "matmul" of Nsight Compute.

    Raises BadArgument for any other name, and DataError for a damaged file.
    """
    return lookup(name, _reports(), "published report")


def copying_percent(darts: Report) -> float:
    """The percentage of the time in calls of cudaMemcpy in which the device copied."""
    copies = [
        darts.value(f"[CUDA memcpy {way}]", "Total Time (ns)")
        for way in ("HtoD", "DtoH")
    ]
    return 100 * sum(copies) / darts.value("cudaMemcpy", "Total Time (ns)")
