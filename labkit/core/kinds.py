"""What an annotation takes: its Kind judges a value, and converts it to what the
function gets.
"""

from __future__ import annotations

import collections.abc
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from labkit.core.arguments import as_number, brief_repr
from labkit.core.errors import nearest
from trainplan.arguments import Refused

# Beyond these no quantity here has a meaning, and a product of a few of them would
# leave the floats.
_LEAST = 1e-30
_MOST = 1e30
_MOST_ITEMS = _MOST_CHARACTERS = 1_000_000
# how to make what was expected
_MAKERS = {
    "Ceilings": "lab.measure_ceilings() makes one.",
    "Cluster": "lab.cluster.Cluster('A100 SXM4 80GB', 8) makes one.",
    "Device": "lab.catalog.find(name) makes one.",
    "Link": "lab.costs.Link(...) makes one.",
    "Ratio": "lab.compare(...).ratio(...) makes one.",
    "Timing": "lab.time_call(...) makes one.",
    "Transformer": "lab.cluster.model('Llama-2-70B') makes one.",
}


class Number(NamedTuple):
    """Bounds of a number. Without `finite` infinity and all sizes are taken, and NaN if
    there are no bounds.

    `advice` ends the message.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    finite: bool = True
    advice: str = ""


class Items(NamedTuple):
    """The least number of items of a list or dict."""

    least: int = 0


class Kind(NamedTuple):
    """`convert` returns what the function gets, or raises; then `words` say what is
    taken, and `advice` what to do.
    """

    words: str
    convert: Callable[[Any], Any]
    advice: str = ""

    def take(self, value: Any) -> Any:
        """The value as the function gets it. Raises Refused."""
        try:
            return self.convert(value)
        except Refused:
            raise
        except Exception:  # also what a value raises that refuses all questions
            raise Refused(self.words, value, self.advice) from None


def kind_of(hint: Any, mark: Any = None) -> Kind:
    """The Kind of a resolved annotation, with its mark if it has one; what can't be
    judged by its type is anything.
    """
    origin = get_origin(hint)
    parts = get_args(hint)
    if isinstance(mark, Kind):  # it replaces what the type says, as that of Array does
        return mark
    if origin is Annotated:  # marks of other packages' doors are theirs to read
        return kind_of(
            parts[0], parts[1] if isinstance(parts[1], Kind | Number | Items) else None
        )
    if hint in (int, float):
        return _number(mark or Number(), whole=hint is int)
    if origin is Literal:
        return _choice(parts)
    if origin in (Union, types.UnionType):
        # Where a path may come, text is one: the function gets a Path from both.
        return _union(
            [kind_of(part) for part in parts if part is not str or Path not in parts]
        )
    if origin is collections.abc.Callable:
        return _function(len(parts[0]) if isinstance(parts[0], list) else None)
    if origin in (tuple, list, Sequence, Iterable):
        return _items(origin, parts, mark or Items())
    if origin in (dict, Mapping):
        return _mapping(kind_of(parts[0]), kind_of(parts[1]), mark or Items())
    return _SIMPLE.get(hint) or (
        _instance(origin or hint) if isinstance(origin or hint, type) else ANYTHING
    )


def _require(good: bool) -> None:
    if not good:
        raise TypeError


def _number(bounds: Number, *, whole: bool) -> Kind:
    """Numbers within bounds; the function gets Python's own."""
    least, above, most, finite, advice = bounds
    if whole:
        words = "a whole number"
    elif finite:
        words = "a finite number"
    else:
        words = "a number"
    limits = ((" of at least", least), (" above", above), (" of at most", most))
    texts = [f"{word} {limit:,}" for word, limit in limits if math.isfinite(limit)]
    words += (
        f" from {least:,} to {most:,}"
        if math.isfinite(least + most)
        else " and".join(texts)
    )

    def convert(value: Any) -> Any:
        number: Any = as_number(value)
        _require(number is not None and (type(number) is int or not whole))
        if finite or bounds[:3] != Number()[:3]:
            _require(least <= number <= most and above < number)
        if finite:
            _require(number < math.inf)
            if abs(number) > _MOST or (above == 0 and number < _LEAST):
                raise Refused(words, value, "Its size has to be within 1e-30 and 1e30.")
        # NumPy has no larger integers
        return number if whole or abs(number) < 2**63 else float(number)

    return Kind(words, convert, advice)


def _choice(known: tuple[Any, ...]) -> Kind:
    words = (
        f"one of {', '.join(map(repr, known))}" if len(known) > 1 else repr(known[0])
    )
    texts = [one for one in known if isinstance(one, str)]

    def convert(value: Any) -> Any:
        # What a subclass of str says of itself doesn't count; a bool is no choice,
        # though it equals 0 or 1.
        plain = str.__str__(value) if issubclass(type(value), str) else as_number(value)
        if plain in known:
            return known[known.index(plain)]
        near = nearest(plain, texts, 1) if isinstance(plain, str) else []
        raise Refused(words, value, f"The nearest is {near[0]!r}." if near else "")

    return Kind(words, convert)


def _text(value: Any) -> str:
    text = str.__str__(value)
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"text of at most {_MOST_CHARACTERS:,} characters", text)
    if text.encode(errors="replace").decode() != text:  # half of a surrogate pair
        raise Refused("text that UTF-8 can hold", text)
    return text


def _bool(value: Any) -> bool:
    plain = value if type(value) is bool else value.item()  # NumPy's and torch's
    _require(type(plain) is bool)
    return bool(plain)


def _path(value: Any) -> Path:
    # A path need not exist: only those are refused about which the system can't even be
    # asked.
    path = value if issubclass(type(value), Path) else Path(_text(value))
    if "\0" in str(path):
        raise Refused("a path without NUL", value)
    try:
        path.exists()
    except OSError as error:
        raise Refused(
            "a path that this system can have", value, f"It says: {error.strerror}."
        ) from None
    return path


def _dtype(value: Any) -> str:
    if type(value) is type and value.__module__ == "numpy":
        return str(value.__name__)
    return _text(
        str(value) if "dtype" in type(value).__name__.lower() else value
    ).removeprefix("torch.")


def _array(value: Any) -> Any:
    import numpy as np

    # NumPy reads no tensor that needs a gradient or lies on a GPU.
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    _require(array.dtype.kind in "iuf" and not np.ma.isMaskedArray(value))
    return array


def _function(arguments: int | None) -> Kind:
    words = "a function"
    if arguments is not None:
        words += f" of {arguments or 'no'} argument{'s' * (arguments != 1)}"

    def convert(value: Any) -> Any:
        _require(callable(value))
        try:
            signature = inspect.signature(value)
            if arguments is not None:
                signature.bind(*[None] * arguments)
        except TypeError:
            has = ", ".join(signature.parameters) or "none"
            raise Refused(words, value, f"This one has {has}.") from None
        except ValueError:  # some builtins don't say what they take
            pass
        return value

    return Kind(words, convert, "Pass its name without brackets.")


def _instance(cls: type) -> Kind:
    of_torch = cls.__module__ == "torch" and cls.__name__ == "Tensor"

    def convert(value: Any) -> Any:
        # isinstance would believe what a value says of its class
        _require(issubclass(type(value), cls))
        # A meta tensor has no values, and many operators don't take a sparse one.
        _require(
            not of_torch
            or (value.device.type != "meta" and str(value.layout) == "torch.strided")
        )
        return value

    words = "a dense tensor with values" if of_torch else f"a {cls.__name__}"
    return Kind(words, convert, _MAKERS.get(cls.__name__, ""))


def _union(kinds: Sequence[Kind]) -> Kind:
    words = " or ".join(dict.fromkeys(kind.words for kind in kinds))

    def convert(value: Any) -> Any:
        advice = ""
        for kind in kinds:
            try:
                return kind.take(value)
            except Refused as refused:
                # it says more than all the choices do
                if refused.where or refused.words != kind.words:
                    raise
                advice = advice or refused.advice
        raise Refused(words, value, advice)

    return ANYTHING if ANYTHING in kinds else Kind(words, convert)


def _items(origin: Any, parts: Sequence[Any], mark: Items) -> Kind:
    """A list, or anything else with items in an order. Those of a tuple of fixed length
    have a kind each.
    """
    fixed = origin is tuple and ... not in parts
    kinds = [kind_of(part) for part in parts if part is not ...]
    words = (
        f"({', '.join(kind.words for kind in kinds)})"
        if fixed
        else "a list" + _at_least(mark)
    )

    def convert(value: Any) -> Any:
        _require(not issubclass(type(value), str | bytes | bytearray | Mapping | set))
        # itertools.count() has no end
        items = list(itertools.islice(iter(value), _MOST_ITEMS + 1))
        if len(items) > _MOST_ITEMS:
            raise Refused(words, value, f"At most {_MOST_ITEMS:,} items are taken.")
        if len(items) < mark.least or (fixed and len(items) != len(kinds)):
            raise Refused(words, value)
        # One kind is that of all items; a tuple of fixed length has as many kinds as
        # items.
        taken = map(_item, itertools.cycle(kinds), items, itertools.count())
        return list(taken) if origin is list else tuple(taken)

    return Kind(words, convert, "For one of them, write it in brackets.")


def _mapping(key: Kind, inner: Kind, mark: Items) -> Kind:
    def convert(value: Any) -> Any:
        _require(issubclass(type(value), Mapping) and len(value) >= mark.least)
        try:
            keys = [key.take(name) for name in value]
        except Refused as refused:
            raise Refused(f"a dict whose keys are {key.words}", refused.value) from None
        return {
            name: _item(inner, item, name)
            for name, item in zip(keys, value.values(), strict=True)
        }

    return Kind("a dict" + _at_least(mark), convert)


def _at_least(mark: Items) -> str:
    return (
        f" of at least {mark.least} item{'s' * (mark.least != 1)}" if mark.least else ""
    )


def _item(kind: Kind, value: Any, where: Any) -> Any:
    try:
        return kind.take(value)
    except Refused as refused:
        where = f"[{brief_repr(where)}]{refused.where}"
        raise Refused(refused.words, refused.value, refused.advice, where) from None


ANYTHING = Kind("anything", lambda value: value)
ARRAY = Kind("an array or list of numbers", _array)
DTYPE = Kind("a dtype such as 'float32' or torch.float32", _dtype)
_SIMPLE = {
    Any: ANYTHING,
    object: ANYTHING,
    str: Kind("text", _text),
    bool: Kind("True or False", _bool),
    Path: Kind("a path", _path),
    type(None): Kind("None", lambda value: _require(value is None)),
}
