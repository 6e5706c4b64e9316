"""What an SM's units do in a clock, and how near its peak each FlashAttention came, as
others published it.
"""

from __future__ import annotations

from labkit.core.display import Table
from labkit.core.units import significant
from labkit.measure import published


def per_clock() -> dict[str, dict[str, float]]:
    """GPU -> unit ("tensor cores", "exp units", "multiply-adds") -> what an SM of it
    does in a clock: FLOP of float16, or results.
    """
    rates: dict[str, dict[str, float]] = {}
    for row in published.table("sm_rates"):
        rates.setdefault(row["gpu"], {})[row["unit"]] = float(row["value"])
    return rates


def table() -> Table:
    """A row for each unit, a column for each GPU."""
    rates = per_clock()
    units = {row["unit"]: row["per"] for row in published.table("sm_rates")}
    rows = tuple(
        (unit, *(f"{rates[gpu][unit]:,.0f}" for gpu in rates), per)
        for unit, per in units.items()
    )
    sources = dict.fromkeys(row["source"] for row in published.table("sm_rates"))
    notes = tuple(f"published: {source}" for source in sources)
    return Table(rows, ("unit", *rates, ""), notes=notes)


def reached() -> Table:
    """The best rate and share of the peak that the papers of FlashAttention give."""
    rows = tuple(
        (
            row["version"],
            row["gpu"],
            row["what"],
            f"{float(row['value']):,g} {row['unit']}",
        )
        for row in published.table("flash_attention")
    )
    sources = dict.fromkeys(row["source"] for row in published.table("flash_attention"))
    notes = tuple(f"published: {source}" for source in sources)
    return Table(rows, ("version", "GPU", "what", ""), notes=notes)


def clocks(gpu: str, queries: int, keys: int, width: int) -> dict[str, float]:
    """Clocks that an SM's tensor cores and exp units take for a tile of attention: two
    products, and a power for each score.
    """
    rates = per_clock()[gpu]
    scores = queries * keys
    return {
        "tensor cores": 4 * scores * width / rates["tensor cores"],
        "exp units": scores / rates["exp units"],
    }


def clocks_table(queries: int, keys: int, widths: tuple[int, ...]) -> Table:
    """The clocks of a tile for each GPU and width of a head, and which takes longer."""
    rows = []
    for gpu in per_clock():
        for width in widths:
            taken = clocks(gpu, queries, keys, width)
            ratio = taken["exp units"] / taken["tensor cores"]
            cells = (f"{n:,.0f}" for n in taken.values())
            rows.append((gpu, f"{width}", *cells, f"{significant(ratio)} x"))
    headings = ("GPU", "head", "tensor cores", "exp units", "exp / tensor cores")
    return Table(tuple(rows), headings, notes=("clocks of an SM, calculated",))
