"""What each training library can run, by data/libraries.csv: a rule a row, with the
version and the source of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpufacts import Device
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import SOFTWARE, TORCHTITAN, Software, versions
from trainplan.costs.transformers import MODELS, Transformer
from trainplan.csv_tables import rows

_MULTIPLE = "multiple of "
_DIVISOR = "divisor of "


class Rule(NamedTuple):
    """`field` of a layout, or of its model, is one of `allowed` where every condition
    of `where` holds.

    A condition is a field that must be above 1 ("pipeline"), or one with its value
    ("zero=3"). Where the field is to be a multiple or a divisor of a product, `factors`
    are the numbers and fields in that. A word of `allowed` that is a field stands for
    its value.
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
            allowed = [_value(model, layout, word) for word in self.allowed]
            return str(value) not in map(str, allowed)
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
    """A field of a layout or of its model, or what is no field as it is written."""
    if name.isdigit():
        return int(name)
    if name == "family":
        return torchtitan_flavor(model)[0]
    if name == "window" and model.window >= model.seq:
        return 0  # no sequence is longer
    if hasattr(layout, name):
        return getattr(layout, name)
    return getattr(model, name, name)


def _sizes(model: Transformer) -> Transformer:
    """A model as its sizes alone, by which it is found under any name."""
    return replace(model, name="", source="", seq=1, head_dim=_head_dim(model))


def _head_dim(model: Transformer) -> int:
    return model.query_width // model.heads - model.rotary


@functools.cache
def _flavors() -> Mapping[Transformer, tuple[str, str]]:
    """What torchtitan calls the models of data/models.csv, by their sizes."""
    flavors = {}
    for row in rows("models"):
        if row["torchtitan"]:
            family, flavor = row["torchtitan"].split()
            flavors[_sizes(MODELS[row["name"]])] = (family, flavor)
    return flavors


@functools.lru_cache(maxsize=4096)
def torchtitan_flavor(model: Transformer) -> tuple[str, str]:
    """The family of torchtitan's models that has these sizes, and its flavor there;
    the flavor "mine" is one to be added to the family.

    Latent attention is deepseek_v3's alone, and experts, heads of a width of their own
    and tied heads are qwen3's (torchtitan/models/*/model/args.py, v0.2.2).
    """
    flavor = _flavors().get(_sizes(model))
    if flavor is not None:
        return flavor
    if model.kv_rank:
        return ("deepseek_v3", "mine")
    own_width = model.query_width != model.hidden
    if model.experts or model.has_tied_head or own_width:
        return ("qwen3", "mine")
    return ("llama3", "mine")


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
    # names of precisions have spaces in them
    words = allowed.split(" or " if row["field"] == "dtype" else None)
    return Rule(row, row["field"], tuple(words), tuple(factors), tuple(where))


def usual_software(model: Transformer, device: Device | None = None) -> Software:
    """What a model's plan is for where no software is named: MaxText on TPUs; else
    torchtitan, TRL for adapters, and Megatron-Core for models that torchtitan hasn't.
    """
    if device is not None and device.vendor == "Google":
        return SOFTWARE["MaxText"]
    if model.adapters:
        return SOFTWARE["TRL"]
    if broken_rule(model, Layout(), TORCHTITAN.library, chosen=("dtype",)) is None:
        return TORCHTITAN
    return SOFTWARE["Megatron-Core"]


def broken_rule(
    model: Transformer, layout: Layout, library: str, chosen: Collection[str] = ()
) -> Rule | None:
    """The first rule of a library that a layout breaks, but for those of fields that
    are still to be `chosen`; None where the library runs it.
    """
    for rule in rules(library):
        if rule.field not in chosen and rule.breaks(model, layout):
            return rule
    return None


def runs_dtype(model: Transformer, dtype: str, library: str) -> bool:
    """Whether no rule of a library is against a precision."""
    layout = Layout(dtype=dtype)
    return not any(
        rule.field == "dtype" and rule.breaks(model, layout) for rule in rules(library)
    )


def running(model: Transformer, layout: Layout, *, own_dtype: bool = True) -> list[str]:
    """The libraries that run a layout, each in its own precision, or all in the
    layout's.
    """
    libraries = []
    for library in versions():
        candidate = layout
        if own_dtype:
            candidate = replace(layout, dtype=SOFTWARE[library].dtype)
        if broken_rule(model, candidate, library) is None:
            libraries.append(library)
    return libraries


def splits(model: Transformer, library: str) -> bool:
    """Whether a library splits a model among ranks, so that more of them hold less."""
    layouts = (
        *(Layout(2, zero=zero) for zero in (1, 2, 3)),
        Layout(tensor=2),
        Layout(pipeline=2),
    )
    chosen = ("dtype", "recompute")
    return any(
        broken_rule(model, layout, library, chosen) is None for layout in layouts
    )


def why_not_in(
    model: Transformer, layout: Layout, library: str, chosen: Collection[str] = ()
) -> str:
    """Why a library can't run a layout, and which ones can, as a sentence; empty where
    it can, whatever the fields are that are still to be `chosen`.
    """
    rule = broken_rule(model, layout, library, chosen)
    if rule is None:
        return ""
    in_own_dtype = rule.field != "dtype"
    others = ", ".join(running(model, layout, own_dtype=in_own_dtype)) or "none"
    source = f"{rule.row['version']} ({rule.row['source']})"
    value = _value(model, layout, rule.field)
    return (
        f"Expected {rule} in {library} {source}, got {value}. Known libraries that run"
        f" this layout: {others}."
    )
