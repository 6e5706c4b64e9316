"""The door of public functions: `checked` judges what they are called with, by their
annotations.

NumPy's numbers become Python's, whose integers don't overflow; lists of numbers become
tuples, and dtypes their names.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from trainplan._text import brief_repr, nearest

F = TypeVar("F", bound=Callable[..., Any])
_MOST = sys.float_info.max  # infinity and NaN are not below


class Bounds(NamedTuple):
    """Bounds of a number; `advice` ends the message."""

    least: float = -_MOST
    most: float = _MOST
    above: float = -math.inf
    advice: str = ""


ANYTHING = "anything"  # the mark of what the function judges itself
DTYPE = "a dtype such as 'bfloat16'"
Count = Annotated[int, Bounds(least=1)]
Size = Annotated[int, Bounds(least=0)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(least=0)]
Share = Annotated[float, Bounds(0, 1, advice="It is a share: write 0.97 for 97 %.")]
# a name, or a dtype of torch or NumPy, of which the function gets the name
Dtype = Annotated[str, DTYPE]
_REFUSED = object()
_WORDS = {str: "text", bool: "True or False", types.NoneType: "None"}


class _Kind(NamedTuple):
    """One of the things that a parameter takes: instances of `classes`.

    `take` returns what the function gets in place of one, or _REFUSED; None is for the
    instance itself.
    """

    classes: tuple[type, ...]
    words: str
    advice: str = ""
    take: Callable[[str, Any], Any] | None = None
    takes_bool: bool = False
    texts: tuple[str, ...] = ()  # the choices, of which the nearest is named


def checked(fn: F) -> F:
    """Judge what a function, or the constructor of a class, is called with, by its
    annotations.

    Raises TypeError or ValueError with the parameter, what it takes and what came.
    Defaults are not judged. What an annotation can't say, such as that one size divides
    another, is left to the function.
    """
    if isinstance(fn, type):
        setattr(fn, "__init__", checked(vars(fn)["__init__"]))  # noqa: B010
        return fn
    names = list(inspect.signature(fn).parameters)

    @functools.cache  # by the first call: some hints name what is defined further down
    def kinds_by_name() -> dict[str, tuple[_Kind, ...]]:
        hints = get_type_hints(fn, include_extras=True)
        return {name: _kinds(hints.get(name, Any)) for name in names}

    @functools.wraps(fn)
    def door(*args: Any, **kwargs: Any) -> Any:
        kinds = kinds_by_name()
        judged = [
            _judged(name, value, kinds[name])
            for name, value in zip(names, args, strict=False)
        ]
        for name, value in kwargs.items():
            kwargs[name] = _judged(name, value, kinds.get(name, ()))
        # with arguments that are too many, of which Python says so
        return fn(*judged, *args[len(names) :], **kwargs)

    return door  # type: ignore[return-value]


def _judged(name: str, value: Any, kinds: tuple[_Kind, ...]) -> Any:
    """`value` as the function gets it; where there are no kinds, as it is."""
    if not kinds:
        return value
    error: type[Exception] = TypeError
    is_bool = isinstance(value, bool)  # which is no number, though Python's is an int
    for kind in kinds:
        if not isinstance(value, kind.classes) or is_bool != kind.takes_bool:
            continue
        taken = value if kind.take is None else kind.take(name, value)
        if taken is not _REFUSED:
            return taken
        error = ValueError
    words = " or ".join(kind.words for kind in kinds)
    message = f"Expected {name} to be {words}, got {brief_repr(value)}."
    raise error(f"{message} {_advice(value, kinds)}".rstrip())


def _advice(value: object, kinds: tuple[_Kind, ...]) -> str:
    for kind in kinds:
        if isinstance(value, str) and kind.texts:
            return f"The nearest is {nearest(value, kind.texts, 1)[0]!r}."
        if kind.advice:
            return kind.advice
    return ""


def _kinds(hint: Any) -> tuple[_Kind, ...]:
    """What an annotation takes, one or the other; empty where nothing is judged."""
    mark: Any = None
    if get_origin(hint) is Annotated:
        hint, mark = get_args(hint)
    origin = get_origin(hint) or hint
    parts = get_args(hint)
    if hint is Any or mark is ANYTHING:
        return ()
    if origin in (Union, types.UnionType):
        return tuple(kind for part in parts for kind in _kinds(part))
    if origin in (int, float):
        return (_number(hint, mark or Bounds()),)
    if origin is Literal:
        return (_choice(parts),)
    if origin in (Sequence, tuple):
        return (_list(_kinds(parts[0])),)
    if mark is DTYPE:
        return (_Kind((object,), DTYPE, take=_dtype),)
    words = _WORDS.get(origin, f"a {origin.__name__}")
    advice = getattr(origin, "MAKER", "")
    return (_Kind((origin,), words, advice, takes_bool=origin is bool),)


def _number(hint: type, bounds: Bounds) -> _Kind:
    least, most, above, advice = bounds
    classes: tuple[type, ...] = (int, numbers.Integral)
    words = "a whole number"
    if hint is float:
        classes = (int, float, numbers.Real)
        words = "a finite number"
    if above > -math.inf:
        words += f" above {above:,}"
    elif most < _MOST:
        words += f" from {least:,} to {most:,}"
    elif least > -_MOST:
        words += f" of at least {least:,}"
    lowest = max(least, math.nextafter(above, math.inf))

    def take(_: str, value: Any) -> Any:
        if not lowest <= value <= most:
            return _REFUSED
        return value if type(value) in (int, float) else hint(value)

    return _Kind(classes, words, advice, take)


def _choice(choices: tuple[Any, ...]) -> _Kind:
    def take(_: str, value: Any) -> Any:
        return choices[choices.index(value)] if value in choices else _REFUSED

    texts = tuple(choice for choice in choices if isinstance(choice, str))
    words = f"one of {', '.join(map(repr, choices))}"
    return _Kind((object,), words, take=take, texts=texts)


def _list(kinds: tuple[_Kind, ...]) -> _Kind:
    def take(name: str, value: Any) -> Any:
        items = enumerate(value)
        return tuple(_judged(f"{name}[{i}]", item, kinds) for i, item in items)

    return _Kind((Iterable,), "a list", take=take)


def _dtype(_: str, value: Any) -> Any:
    """The name of a dtype of torch or NumPy; a name as it is."""
    if isinstance(value, str):
        return value
    name = str(getattr(value, "__name__", value)).removeprefix("torch.")
    return name if name.replace(" ", "").isalnum() else _REFUSED
