"""What each training library can run, by data/libraries.csv: a rule a row, with the
version and the source of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trainplan.costs.transformers import Transformer
from trainplan.csv_tables import rows

if TYPE_CHECKING:
    from trainplan.cluster.layout import Layout

_RELATIONS = ("multiple of ", "divisor of ")


class Rule(NamedTuple):
    """`field` of a layout, or of its model, is one of `allowed` where every condition
    of `where` holds.

    A condition is a field that must be above 1 ("pipeline"), or one with its value
    ("zero=3"). Where the field is to be a multiple or a divisor of a product, `factors`
    are the numbers and fields in that.
    """

    row: Mapping[str, str]
    field: str
    allowed: tuple[str, ...]
    factors: tuple[str, ...]
    where: tuple[tuple[str, str], ...]

    def breaks(self, model: Transformer, layout: Layout) -> bool:
        """Whether a layout of a model is one that the library doesn't run."""
        for field, value in self.where:
            held = _value(model, layout, field)
            if str(held) != value if value else (held or 0) <= 1:
                return False
        held = _value(model, layout, self.field)
        if self.factors:
            product = math.prod(
                _value(model, layout, factor) for factor in self.factors
            )
            return bool(
                held % product
                if self.row["allowed"].startswith(_RELATIONS[0])
                else product % held
            )
        return str(held) not in self.allowed

    def __str__(self) -> str:
        allowed = self.row["allowed"] if self.factors else " or ".join(self.allowed)
        where = " and ".join(
            f"{field} = {value}" if value else f"{field} above 1"
            for field, value in self.where
        )
        return f"{self.field} = {allowed}{f' with {where}' * bool(where)}"


def _value(model: Transformer, layout: Layout, name: str) -> Any:
    if name.isdigit():
        return int(name)
    return getattr(layout if hasattr(layout, name) else model, name)


@functools.cache
def rules(library: str) -> tuple[Rule, ...]:
    """The rules of a library in data/libraries.csv; none of "", a
    program of one's own.
    """
    found = []
    for row in rows("libraries"):
        if row["library"] == library:
            allowed = tuple(row["allowed"].split())
            related = row["allowed"].startswith(_RELATIONS)
            factors = row["allowed"].split(" of ")[1].split(" x ") if related else []
            where = tuple(
                (field, value)
                for field, _, value in (
                    one.partition("=") for one in row["where"].split()
                )
            )
            found.append(Rule(row, row["field"], allowed, tuple(factors), where))
    return tuple(found)


@functools.cache
def versions() -> Mapping[str, str]:
    """The libraries that have rules, and the version of each that they were read in."""
    return {row["library"]: row["version"] for row in rows("libraries")}


def broken_rule(model: Transformer, layout: Layout, library: str) -> Rule | None:
    """The first rule of a library that a layout breaks; None where the
    library runs it.
    """
    return next((rule for rule in rules(library) if rule.breaks(model, layout)), None)


def running(model: Transformer, layout: Layout) -> list[str]:
    """The libraries that run a layout."""
    return [
        library for library in versions() if broken_rule(model, layout, library) is None
    ]


def why_not_in(model: Transformer, layout: Layout, library: str) -> str:
    """Why a library can't run a layout, and which ones can, as a sentence; empty where
    it can.
    """
    if (rule := broken_rule(model, layout, library)) is None:
        return ""
    others = ", ".join(running(model, layout)) or "none"
    source = f"{rule.row['version']} ({rule.row['source']})"
    got = (
        f"got {_value(model, layout, rule.field)}. Known libraries that run this"
        f" layout: {others}."
    )
    return f"Expected {rule} in {library} {source}, {got}"
