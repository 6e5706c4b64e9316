"""What each training library can run, by data/libraries.csv: a rule a row, with the
version and the source of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainplan.cluster.layout import Layout
from trainplan.cluster.software import versions
from trainplan.costs.transformers import Transformer
from trainplan.csv_tables import rows

_MULTIPLE = "multiple of "
_DIVISOR = "divisor of "


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
        if not all(_holds(model, layout, *condition) for condition in self.where):
            return False
        value = _value(model, layout, self.field)
        if not self.factors:
            return str(value) not in self.allowed
        product = math.prod(_value(model, layout, factor) for factor in self.factors)
        if self.row["allowed"].startswith(_MULTIPLE):
            return bool(value % product)
        return bool(product % value)

    def __str__(self) -> str:
        allowed = self.row["allowed"] if self.factors else " or ".join(self.allowed)
        text = f"{self.field} = {allowed}"
        if not self.where:
            return text
        conditions = " and ".join(
            f"{field} = {value}" if value else f"{field} above 1"
            for field, value in self.where
        )
        return f"{text} with {conditions}"


def _holds(model: Transformer, layout: Layout, field: str, value: str) -> bool:
    """Whether a field has a value, or where that is empty is above 1."""
    actual = _value(model, layout, field)
    if value:
        return str(actual) == value
    return (actual or 0) > 1


def _value(model: Transformer, layout: Layout, name: str) -> Any:
    """A number as it is written, or a field of a layout or of its model."""
    if name.isdigit():
        return int(name)
    return getattr(layout if hasattr(layout, name) else model, name)


@functools.cache
def rules(library: str) -> tuple[Rule, ...]:
    """The rules of a library in data/libraries.csv; none of "", a
    program of one's own.
    """
    return tuple(_rule(row) for row in rows("libraries") if row["library"] == library)


def _rule(row: Mapping[str, str]) -> Rule:
    allowed = row["allowed"]
    factors: list[str] = []
    if allowed.startswith((_MULTIPLE, _DIVISOR)):
        _, product = allowed.split(" of ")
        factors = product.split(" x ")
    where = []
    for condition in row["where"].split():
        field, _, value = condition.partition("=")
        where.append((field, value))
    return Rule(row, row["field"], tuple(allowed.split()), tuple(factors), tuple(where))


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
    rule = broken_rule(model, layout, library)
    if rule is None:
        return ""
    others = ", ".join(running(model, layout)) or "none"
    source = f"{rule.row['version']} ({rule.row['source']})"
    value = _value(model, layout, rule.field)
    return (
        f"Expected {rule} in {library} {source}, got {value}. Known libraries that run"
        f" this layout: {others}."
    )
