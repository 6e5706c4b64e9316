"""The kind of an annotation: lists and dicts of plain kinds, functions, instances, and choices between them."""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from labkit.core.arguments import brief_repr
from labkit.core.kinds import ANYTHING, MOST_ITEMS, SIMPLE, Items, Kind, Number, Refused, choice_kind, number_kind

# how to make what was expected
_MAKERS = {
    "Ceilings": "lab.measure_ceilings()",
    "Cluster": "lab.cluster.Cluster('A100 SXM4 80GB', 8)",
    "Device": "lab.catalog.find(name)",
    "Link": "lab.costs.Link(...)",
    "Ratio": "lab.compare(...).ratio(...)",
    "Timing": "lab.time_call(...)",
    "Transformer": "lab.cluster.model('Llama-2-70B')",
}


def kind_of(hint: Any, marks: tuple[Any, ...] = ()) -> Kind:
    """The Kind of a resolved annotation; what can't be judged by its type takes anything."""
    origin, parts = get_origin(hint), get_args(hint)
    made, least = origin or hint, next((mark.least for mark in marks if isinstance(mark, Items)), 0)
    if origin is Annotated:
        return parts[1] if isinstance(parts[1], Kind) else kind_of(parts[0], parts[1:])
    if hint in (int, float):
        return number_kind(next((mark for mark in marks if isinstance(mark, Number)), Number()), whole=hint is int)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin is Literal:
        return choice_kind(parts)
    if origin in (Union, types.UnionType):
        return _union([kind_of(part, marks) for part in parts if part is not str or Path not in parts])
    if made is _FUNCTIONS:
        return _function(len(parts[0]) if parts and isinstance(parts[0], list) else None)
    if not isinstance(made, type) or made in (object, Any):
        return ANYTHING
    if made is tuple and parts and parts[-1] is not ...:
        return _items([kind_of(part) for part in parts], tuple, len(parts), len(parts))
    if made in (list, tuple, Sequence, Iterable):
        return _items([kind_of(parts[0]) if parts else ANYTHING], list if made is list else tuple, least)
    if made in (dict, Mapping):
        return _mapping(*([kind_of(part) for part in parts] or [ANYTHING, ANYTHING]), least=least)
    return _instance(made)


_FUNCTIONS = get_origin(Callable[[], None])


def _union(kinds: Sequence[Kind]) -> Kind:
    if ANYTHING in kinds:
        return ANYTHING
    words = " or ".join(dict.fromkeys(kind.words for kind in kinds))

    def take(value: Any) -> Any:
        advice = ""
        for kind in kinds:
            try:
                return kind.take(value)
            except Refused as refused:
                if refused.where or refused.words != kind.words:  # it says more than all the choices do
                    raise
                advice = advice or refused.advice
        raise Refused(words, value, advice)

    return Kind(words, take)


def _function(arguments: int | None) -> Kind:
    words = "a function"
    if arguments is not None:
        words += f" of {arguments or 'no'} argument{'s' * (arguments != 1)}"

    def take(value: Any) -> Any:
        if not callable(value):
            raise Refused(words, value, "Pass its name without brackets.")
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # some builtins don't say what they take
            return value
        except Exception:
            raise Refused(words, value) from None
        try:
            if arguments is not None:
                signature.bind(*[None] * arguments)
        except TypeError:
            raise Refused(
                words, value, f"This one has {', '.join(map(str, signature.parameters)) or 'none'}."
            ) from None
        return value

    return Kind(words, take)


def _instance(cls: type) -> Kind:
    words, maker = f"a {cls.__name__}", _MAKERS.get(cls.__name__)
    if tensor := (cls.__module__, cls.__name__) == ("torch", "Tensor"):
        words = "a dense tensor with values"

    def take(value: Any) -> Any:
        good = issubclass(type(value), cls)  # isinstance would believe what a value says of its class
        if good and tensor:
            good = value.device.type != "meta" and str(value.layout) == "torch.strided"
        if not good:
            raise Refused(words, value, f"{maker} makes one." if maker else "")
        return value

    return Kind(words, take)


def _items(kinds: Sequence[Kind], make: type, least: int = 0, most: int = MOST_ITEMS) -> Kind:
    """A list, or anything else with items in an order; where kinds are fewer than items, the last one holds for all."""
    words = "a list" + (f" of at least {least} item{'s' * (least != 1)}" if least else "")
    words = f"({', '.join(kind.words for kind in kinds)})" if least == most else words

    def take(value: Any) -> Any:
        try:
            if issubclass(type(value), str | bytes | bytearray | Mapping | set):
                raise TypeError
            found = list(itertools.islice(iter(value), most + 1))
        except Exception:
            raise Refused(words, value, "For one of them, write it in brackets.") from None
        if not least <= len(found) <= most:
            raise Refused(words, value, f"At most {most:,} items are taken." if len(found) == MOST_ITEMS + 1 else "")
        return make(_each(itertools.chain(kinds, itertools.repeat(kinds[-1])), found, range(len(found))))

    return Kind(words, take)


def _each(kinds: Iterable[Kind], found: Iterable[Any], names: Sequence[Any]) -> list[Any]:
    taken: list[Any] = []
    try:
        for kind, value in zip(kinds, found, strict=False):
            taken.append(kind.take(value))
    except Refused as refused:
        where = f"[{brief_repr(names[len(taken)])}]{refused.where}"
        raise Refused(refused.words, refused.value, refused.advice, where) from None
    return taken


def _mapping(key: Kind, inner: Kind, *, least: int) -> Kind:
    words = "a dict" + (f" of at least {least} item{'s' * (least != 1)}" if least else "")

    def take(value: Any) -> Any:
        if not issubclass(type(value), Mapping) or len(value) < least:
            raise Refused(words, value)
        keys = list(value)
        try:
            names = [key.take(name) for name in keys]
        except Refused as refused:
            raise Refused(f"a dict whose keys are {key.words}", refused.value) from None
        return dict(zip(names, _each(itertools.repeat(inner), value.values(), keys), strict=True))

    return Kind(words, take)
