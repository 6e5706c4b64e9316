"""Measurements that others published, read from their tables, with their sources."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.arguments import lookup
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadArgument, DataError
from labkit.core.parameters import checked
from labkit.core.paths import PUBLISHED
from labkit.core.results import Measurement, profile, split_key
from labkit.core.units import GIGA, format_quantity, format_si

FOLDERS = PUBLISHED
_READ = "read from source text"
_CONFIDENCES = (_READ, "from memory, not verified")
# The columns of numbers, in all tables.
_NUMBERS = re.compile(
    r"layers|heads|hidden|vocab|pp|tp|gpus|nodes|d_model|microbatches_m|params_b"
    r"|seq_len|value|micro_batch|global_batch_seqs"
    r"|.*_(ms|us|gbs|gb|tflops|bytes|derived|per_s|per_gpu)"
)


@checked
@functools.cache
def table(name: str) -> tuple[Mapping[str, str], ...]:
    """Every row of the table <name>.csv that was read from its source, as text by
    column.

    Rows that were only recalled are left out. Raises BadArgument for an unknown name,
    with the nearest, and DataError for a damaged file.
    """
    files = (path for folder in FOLDERS for path in folder.glob("*.csv"))
    paths = {path.stem: path for path in sorted(files)}
    path = lookup(name, paths, "published table")
    return tuple(
        MappingProxyType(row)
        for row in read_table(path, _checked_row, DataError)
        if row["confidence"] == _READ
    )


def _checked_row(row: TableRow) -> TableRow:
    """The row; ValueError unless its numbers are some, and it says whether its source
    was read.
    """
    if row["confidence"] not in _CONFIDENCES:
        confidences = " or ".join(map(repr, _CONFIDENCES))
        raise ValueError(
            f"expected confidence to be {confidences},"
            f" got {brief_repr(row['confidence'])}"
        )
    for column, text in row.items():
        if text and _NUMBERS.fullmatch(column) and float(text) < 0:
            raise ValueError(f"expected {column} to be at least 0, got {text}")
    return row


@dataclass(frozen=True, repr=False)
class Bus(Shown):
    """A link between main memory and a GPU, and the copy rate that `source` measured on
    it.
    """

    link: str
    gpu: str
    bytes_per_s: float
    source: str

    def __str__(self) -> str:
        rate = format_si(self.bytes_per_s, "B/s")
        return (
            f"{self.link} to {self.gpu}: {rate} from host to device (not measured here:"
            f" {self.source})"
        )


@checked
def bus(gpu: str, link: str) -> Bus:
    """The host-to-device copy rate published for a GPU on a link (table
    "memcpy_bandwidth").

    Raises BadArgument, with the pairs that were published, for any other.
    """
    rows = [row for row in table("memcpy_bandwidth") if "host_to_device" in row["test"]]
    for row in rows:
        if (row["gpu"], row["link_or_memory"]) == (gpu, link):
            return Bus(link, gpu, float(row["bandwidth_gbs"]) * GIGA, row["source"])
    published = "; ".join(f"{row['gpu']} on {row['link_or_memory']}" for row in rows)
    raise BadArgument(
        f"No copy rate was published for {gpu} on {link}. Published are: {published}."
    )


@dataclass(frozen=True, repr=False)
class Cited(Shown):
    """Somebody's measurement of `what`, which belongs to the board that has its key's
    row.

    It did the row's work ("same": a bar if size and format agree too), is a "ratio" of
    other work, or is "related": another quantity or other work of its kind. `number`
    has the link, and says who measured it on which device.
    """

    relation: str
    what: str
    number: Measurement

    def __str__(self) -> str:
        return f"{self.what} {format_quantity(self.number.value, self.number.unit)}"


@checked
def cited(section: str) -> list[Cited]:
    """What others published that belongs to a section, "04.6" (table "boards"). Raises
    DataError like `table`.
    """
    numbers = []
    for row in table("boards"):
        key, what = split_key(row["key"])
        if key == section:
            number = Measurement(
                key,
                what,
                float(row["value"]),
                row["unit"],
                "published",
                f"{row['who']}, {row['device']}",
                "",
                size=row["size"],
                dtype=row["dtype"],
                link=row["link"],
                profile=profile(),
            )
            numbers.append(Cited(row["relation"], row["what"], number))
    return numbers


@checked
def ratios(section: str) -> dict[str, Measurement]:
    """The ratios that others published and that belong to a section, by what was
    compared; for `lab.plot.ratios`.
    """
    return {
        citation.what: citation.number
        for citation in cited(section)
        if citation.relation == "ratio"
    }


@checked
def citations(numbers: Iterable[Cited]) -> list[str]:
    """A sentence for each source: its numbers, who measured them on which device, size,
    format and link.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for citation in numbers:
        number = citation.number
        parts = (number.machine, number.size, number.dtype, number.link)
        source = "; ".join(filter(None, parts))
        is_related = citation.relation == "related"
        begin = "Related, published" if is_related else "Published"
        grouped.setdefault((begin, source), []).append(str(citation))
    return [
        f"{begin}: {', '.join(texts)} ({source})."
        for (begin, source), texts in grouped.items()
    ]
