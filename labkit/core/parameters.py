"""The door of public functions: `checked` judges arguments by their annotations.

    @checked
    def transfer_s(n_bytes: NonNegative, *, bytes_per_s: Positive) -> float: ...

Arguments are passed on as they came. A class that is imported for type checkers alone
isn't judged.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from labkit.core.arguments import brief_repr, is_array, is_dtype, nearest
from labkit.core.errors import BadArgument

F = TypeVar("F", bound=Callable[..., Any])


class Number(NamedTuple):
    """Bounds of a number; without `finite` infinity is taken, and NaN if there are no
    bounds. `advice` ends the message.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    finite: bool = True
    advice: str = ""


class Items(NamedTuple):
    """The least number of items of a list or dict."""

    least: int


class Kind(NamedTuple):
    """What a parameter takes, in words and as a test; `advice`, or the nearest of the
    `choices`, ends the message. The items of a list or dict are of one kind.
    """

    words: str
    takes: Callable[[Any], bool]
    advice: str = ""
    choices: tuple[str, ...] = ()
    items: Kind | None = None


ANYTHING = Kind("anything", lambda value: True)
Count = Annotated[int, Number(least=1)]
Size = Annotated[int, Number(least=0)]
Positive = Annotated[float, Number(above=0)]
NonNegative = Annotated[float, Number(least=0)]
Share = Annotated[
    float, Number(least=0, most=1, advice="It is a share: write 0.97 for 97 %.")
]
AnyNumber = Annotated[float, Number(finite=False)]  # NaN and infinity too
# the function reads them with dtype_name and as_array
Dtype = Annotated[Any, Kind("a dtype such as 'float32' or torch.float32", is_dtype)]
Array = Annotated[Any, Kind("an array or list of numbers", is_array)]

_SIMPLE = {
    str: Kind("text", lambda value: isinstance(value, str)),
    # bool_ is NumPy's
    bool: Kind(
        "True or False", lambda value: type(value).__name__ in ("bool", "bool_")
    ),
    Path: Kind("a path", lambda value: isinstance(value, str | Path)),
    NoneType: Kind("None", lambda value: value is None),
}
_MAKERS = {
    "MachineCeilings": "lab.measure_ceilings() makes one.",
    "Device": "lab.catalog.find(name) makes one.",
    "Ratio": "lab.compare(...).ratio(...) makes one.",
    "Timing": "lab.time_call(...) makes one.",
}
# by the end of a parameter's name: the first that fits, so bytes_per_s before _s
_UNITS = {
    "bytes_per_s": "bytes a second",
    "bits_per_s": "bits a second",
    "flop_per_s": "FLOP a second",
    "_s": "seconds",
    "seconds": "seconds",
    "bytes": "bytes",
    "flop": "FLOP",
    "usd": "US$",
    "joules": "joules",
    "_in": "inches",
}


@overload
def checked(fn: F) -> F: ...
@overload
def checked(*, error: type[Exception]) -> Callable[[F], F]: ...
def checked(fn: Any = None, *, error: type[Exception] = BadArgument) -> Any:
    """Judge what a function, or the constructor of a class, is called with.

    Raises `error` with the parameter, what it takes and what came. Defaults are not
    judged, nor are parameters of type Any or object. What an annotation can't say, such
    as that one size divides another, is left to the function.
    """
    if fn is None:
        return functools.partial(checked, error=error)
    if isinstance(fn, type):
        # the class itself stays: isinstance, pickle and dataclasses.replace know it
        setattr(fn, "__init__", checked(error=error)(vars(fn)["__init__"]))  # noqa: B010
        return fn
    parameters = inspect.signature(fn).parameters.values()
    places = [each.name for each in parameters if each.kind < each.VAR_POSITIONAL]
    # by the first call, since annotations may name what is defined further down
    kinds = functools.cache(lambda: kinds_of(fn))

    @functools.wraps(fn)
    def door(*args: Any, **kwargs: Any) -> Any:
        kind_of_name = kinds()
        by_place = zip(places, args, strict=False)
        for name, value in itertools.chain(by_place, kwargs.items()):
            kind = kind_of_name.get(name, ANYTHING)
            if kind.items or not kind.takes(value):
                _judge(name, kind, value, error)
        return fn(*args, **kwargs)

    return door


def kinds_of(fn: Callable[..., Any]) -> dict[str, Kind]:
    """What the parameters of a function take, without those whose annotations can't be
    resolved at run time.
    """
    plain: Any = inspect.unwrap(fn)
    kinds = {}
    for name, hint in plain.__annotations__.items():
        with contextlib.suppress(NameError):
            resolved = eval(hint, plain.__globals__) if isinstance(hint, str) else hint
            kinds[name] = _kind_of(resolved)
    return kinds


def _judge(name: str, kind: Kind, value: Any, error: type[Exception]) -> None:
    if not kind.takes(value):
        raise error(_message(name, kind, value))
    if kind.items is None or not isinstance(value, (tuple, list, Mapping)):
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        if kind.items.items or not kind.items.takes(item):
            _judge(f"{name}[{brief_repr(key)}]", kind.items, item, error)


def _message(name: str, kind: Kind, value: object) -> str:
    advice = kind.advice
    if kind.choices and isinstance(value, str):
        advice = f"The nearest is {nearest(value, kind.choices, 1)[0]!r}."
    elif "number" in kind.words and not advice:
        units = [unit for end, unit in _UNITS.items() if name.endswith(end)]
        advice = f"It is in {units[0]}." if units else ""
    words = f"Expected {name} to be {kind.words}, got {brief_repr(value)}."
    return f"{words} {advice}".rstrip()


def _kind_of(hint: Any, mark: Any = None) -> Kind:  # noqa: C901  # a branch a kind
    """What a resolved annotation takes, with its mark if it has one."""
    origin = get_origin(hint) or hint
    parts = get_args(hint)
    if isinstance(mark, Kind):
        return mark
    if origin is Annotated:
        # the marks of other packages are theirs to read
        is_own = isinstance(parts[1], Kind | Number | Items)
        return _kind_of(parts[0], parts[1] if is_own else None)
    if origin in (int, float):
        return _number(mark or Number(), whole=origin is int)
    if origin in _SIMPLE:
        return _SIMPLE[origin]
    if origin in (Union, UnionType):
        return _union([_kind_of(part) for part in parts])
    if origin is Literal:
        words = f"one of {', '.join(map(repr, parts))}"
        return Kind(words, lambda value: value in parts, choices=parts)
    if origin is Callable:
        return _function(parts[0])
    if origin in (dict, Mapping):
        return _items(_kind_of(parts[1]), mark.least if mark else 0, is_dict=True)
    if origin in (tuple, list, Sequence, Iterable):
        hints = set(parts) - {...}
        item = _kind_of(hints.pop()) if len(hints) == 1 else ANYTHING
        return _items(item, mark.least if mark else 0, is_dict=False)
    if isinstance(origin, type) and origin not in (Any, object):
        return _instance(origin)
    return ANYTHING


def _number(bounds: Number, *, whole: bool) -> Kind:
    least, above, most, finite, advice = bounds
    words = "a finite number" if finite else "a number"
    if whole:
        words = "a whole number"
    if math.isfinite(least + most):
        words += f" from {least:,} to {most:,}"
    else:
        limits = ((" of at least", least), (" above", above), (" of at most", most))
        texts = [f"{word} {limit:,}" for word, limit in limits if math.isfinite(limit)]
        words += " and".join(texts)
    classes = (int, Integral) if whole else (float, int, Real)
    may_be_nan = bounds == Number(finite=False)

    def takes(value: Any) -> bool:
        number: Any = value
        if isinstance(value, bool) or not isinstance(value, classes):
            return False
        is_within = above < number and least <= number <= most
        return may_be_nan or (is_within and not (finite and number == math.inf))

    return Kind(words, takes, advice)


def _union(kinds: list[Kind]) -> Kind:
    if ANYTHING in kinds:
        return ANYTHING
    tests = [kind.takes for kind in kinds]

    def takes(value: Any) -> bool:
        for test in tests:  # noqa: SIM110  # any() takes thrice the time
            if test(value):
                return True
        return False

    return Kind(
        " or ".join(kind.words for kind in kinds),
        takes,
        next((kind.advice for kind in kinds if kind.advice), ""),
        next((kind.choices for kind in kinds if kind.choices), ()),
        next((kind.items for kind in kinds if kind.items), None),
    )


def _function(arguments: Any) -> Kind:
    words = "a function"
    if isinstance(arguments, list):
        count = len(arguments)
        words += f" of {count or 'no'} argument{'s' * (count != 1)}"
    return Kind(words, callable, "Pass its name without brackets.")


def _items(item: Kind, least: int, *, is_dict: bool) -> Kind:
    words = "a dict" if is_dict else "a list"
    if least:
        words += f" of at least {least} item{'s' * (least != 1)}"

    def takes(value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return not is_dict and len(value) >= least
        if isinstance(value, Mapping):
            return is_dict and len(value) >= least
        is_text = isinstance(value, (str, bytes))
        return not is_dict and not is_text and isinstance(value, Iterable)

    advice = "" if is_dict else "For one of them, write it in brackets."
    return Kind(words, takes, advice, items=item)


def _instance(cls: type) -> Kind:
    advice = _MAKERS.get(cls.__name__, "")
    return Kind(f"a {cls.__name__}", lambda value: isinstance(value, cls), advice)
