"""Kinds of parameters: what an annotation takes, and the function that judges and converts a value by it."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from labkit.core.arguments import as_number
from labkit.core.errors import nearest
from labkit.core.quoting import brief_repr

# Beyond these no quantity here has a meaning, and a product of a few of them would leave the floats.
_LEAST, _MOST = 1e-30, 1e30
_MOST_ITEMS = _MOST_CHARACTERS = 1_000_000
# how to make what was expected
_MAKERS = {
    "Ceilings": "lab.measure_ceilings()",
    "Cluster": "lab.cluster.Cluster('A100 SXM4 80GB', 8)",
    "Device": "lab.catalog.find(name)",
    "Link": "lab.costs.Link(...)",
    "Timing": "lab.time_call(...)",
    "Transformer": "lab.cluster.model('Llama-2-70B')",
}


@dataclass(frozen=True)
class Number:
    """Bounds of a number. Without `finite` NaN, infinity and all sizes are taken. `advice` ends the message."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    finite: bool = True
    advice: str = ""


@dataclass(frozen=True)
class Items:
    """The least number of items of a list or dict."""

    least: int


class Refused(Exception):
    """A value that isn't what was expected: words for the message, and `where` in the parameter it is, "[2]"."""

    def __init__(self, words: str, value: object, advice: str = "", where: str = "") -> None:
        self.words, self.value, self.advice, self.where = words, value, advice, where


@dataclass(frozen=True)
class Kind:
    """`take` returns a value as the function gets it, or raises Refused; `words` say what is taken."""

    words: str
    take: Callable[[Any], Any]


ANYTHING = Kind("anything", lambda value: value)


def kind_of(hint: Any, marks: tuple[Any, ...] = ()) -> Kind:
    """The Kind of a resolved annotation; what can't be judged by its type takes anything."""
    origin, parts = get_origin(hint), get_args(hint)
    made, least = origin or hint, next((mark.least for mark in marks if isinstance(mark, Items)), 0)
    if origin is Annotated:
        return parts[1] if isinstance(parts[1], Kind) else kind_of(parts[0], parts[1:])
    if hint in (int, float):
        return _number(next((mark for mark in marks if isinstance(mark, Number)), Number()), whole=hint is int)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return _choice(parts)
    if origin in (Union, types.UnionType):
        return _union([kind_of(part, marks) for part in parts])
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


def _number(bounds: Number, *, whole: bool) -> Kind:
    least, above, most = bounds.least, bounds.above, bounds.most
    low = _LEAST if above == 0 and not whole else -_MOST if least is None else least
    high = _MOST if most is None else most
    words = "a whole number" if whole else "a finite number" if bounds.finite else "a number"
    if least is not None and most is not None:
        words += f" from {least:,} to {most:,}"
    else:
        limits = ((" of at least", least), (" above", above), (" of at most", most))
        words += "".join(f"{word} {limit:,}" for word, limit in limits if limit is not None)

    def take(value: Any) -> Any:
        number = value if type(value) is int or type(value) is float else as_number(value)
        if number is None or (whole and type(number) is not int):
            raise Refused(words, value, bounds.advice)
        if low <= number <= high and (above is None or number > above):
            return number
        if not bounds.finite and (type(number) is float or abs(number) <= sys.float_info.max):
            return number
        odd = number == number and number and not _LEAST <= abs(number) <= _MOST and abs(number) != float("inf")
        raise Refused(words, value, "Its size has to be within 1e-30 and 1e30." if odd else bounds.advice)

    return Kind(words, take)


def _text(value: Any) -> str:
    if not issubclass(type(value), str):
        raise Refused("text", value)
    text = str.__str__(value)
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"text of at most {_MOST_CHARACTERS:,} characters", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("text that UTF-8 can hold", text) from None
    return text


def _bool(value: Any) -> bool:
    try:
        found = value if type(value) is bool or not hasattr(value, "dtype") else value.item()
    except Exception:
        found = None
    if type(found) is not bool:
        raise Refused("True or False", value)
    return found


def _path(value: Any) -> Path:
    if not issubclass(type(value), str | Path):
        raise Refused("a path", value)
    path = value if issubclass(type(value), Path) else Path(_text(value))
    try:
        path.exists()
    except OSError as error:
        raise Refused("a path that this system can have", value, f"It says: {error.strerror}.") from None
    if "\0" in str(path):
        raise Refused("a path without NUL", value)
    return path


def _dtype(value: Any) -> str:
    kind = type(value)
    if kind is type and value.__module__ == "numpy":
        return str(value.__name__)
    if kind.__module__.partition(".")[0] in ("torch", "numpy") and "dtype" in kind.__name__.lower():
        return str(value).removeprefix("torch.")
    if not issubclass(kind, str):
        raise Refused(DTYPE.words, value)
    return _text(value).removeprefix("torch.")


DTYPE = Kind("a dtype such as 'float32' or torch.float32", _dtype)


def _choice(known: tuple[Any, ...]) -> Kind:
    words = f"one of {', '.join(map(repr, known))}" if len(known) > 1 else repr(known[0])

    def take(value: Any) -> Any:
        plain = str.__str__(value) if issubclass(type(value), str) else value
        for one in known:
            if type(plain) is type(one) and plain == one:
                return one
        texts = type(plain) is str and [one for one in known if isinstance(one, str)]
        raise Refused(words, value, f"The nearest is {nearest(plain[:100], texts, 1)[0]!r}." if texts else "")

    return Kind(words, take)


_SIMPLE: dict[Any, Kind] = {
    str: Kind("text", _text),
    bool: Kind("True or False", _bool),
    Path: Kind("a path", _path),
    type(None): _choice((None,)),
}


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


def _items(kinds: Sequence[Kind], make: type, least: int = 0, most: int = _MOST_ITEMS) -> Kind:
    """A list, or anything else with items in an order; where kinds are fewer than items, the last one holds for all."""
    words = "a list" + (f" of at least {least} items" if least else "")
    words = f"({', '.join(kind.words for kind in kinds)})" if least == most else words

    def take(value: Any) -> Any:
        try:
            if issubclass(type(value), str | bytes | bytearray | Mapping | set):
                raise TypeError
            found = list(itertools.islice(iter(value), most + 1))
        except Exception:
            raise Refused(words, value, "For one of them, write it in brackets.") from None
        if not least <= len(found) <= most:
            raise Refused(words, value, f"At most {most:,} items are taken." if len(found) == _MOST_ITEMS + 1 else "")
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
    words = "a dict" + (f" of at least {least} items" if least else "")

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
