"""The door of public functions: their annotations say what they take, and `checked`
judges and converts by them.

Numbers of Python, NumPy and torch become int or float, lists and arrays become tuples.
All else is refused with a sentence: a bool or NaN for a number, what is out of bounds,
a name that isn't one of the choices.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
    overload,
)

from trainplan.errors import BadArgument, PlanError, brief_repr, nearest

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_MOST_ITEMS = 1_000_000
# beyond this no quantity here has a meaning, and a product of a few of them would leave
# the floats
_MOST = 1e30


class Refused(Exception):
    """A value that isn't what was expected: words for the message, and `where` in the
    parameter it is, "[2]".
    """

    def __init__(
        self, words: str, value: object, advice: str = "", where: str = ""
    ) -> None:
        self.words = words
        self.value = value
        self.advice = advice
        self.where = where


class Number(NamedTuple):
    """Bounds of a number; `advice` ends the message."""

    least: float = -_MOST
    most: float = _MOST
    above: float | None = None
    advice: str = ""


_DTYPE = "a dtype such as 'bfloat16'"
ANYTHING = "anything"  # the mark of a parameter that the function judges itself
Count = Annotated[int, Number(least=1)]
Size = Annotated[int, Number(least=0)]
Positive = Annotated[float, Number(least=1 / _MOST, above=0)]
NonNegative = Annotated[float, Number(least=0)]
Share = Annotated[float, Number(0, 1, advice="It is a share: write 0.97 for 97 %.")]
# a name, or torch's or NumPy's dtype; the function gets the name
Dtype = Annotated[str, _DTYPE]
_WORDS = {str: "text", bool: "True or False", types.NoneType: "None"}


@overload
def checked(fn: F) -> F: ...
@overload
def checked(*, error: type[PlanError]) -> Callable[[F], F]: ...
def checked(fn: Any = None, *, error: type[PlanError] = BadArgument) -> Any:
    """Judge and convert what a function, or the constructor of a class, is called with,
    by its annotations.

    Raises `error` with the parameter, what it takes and what came. Defaults are not
    judged. What an annotation can't say, such as that one size divides another, is left
    to the function.
    """
    if fn is None:
        return functools.partial(checked, error=error)
    if isinstance(fn, type):
        setattr(fn, "__init__", checked(error=error)(vars(fn)["__init__"]))  # noqa: B010
        return fn
    names = list(inspect.signature(fn).parameters)
    # some name what is defined further down
    hints = functools.cache(lambda: get_type_hints(fn, include_extras=True))

    def judged(name: str, value: Any) -> Any:
        try:
            return judge(value, hints().get(name, Any))
        except Refused as refused:
            words = (
                f"Expected {name}{refused.where} to be {refused.words}, got"
                f" {brief_repr(refused.value)}."
            )
            raise error(f"{words} {refused.advice}".rstrip()) from None

    @functools.wraps(fn)
    def door(*args: Any, **kwargs: Any) -> Any:
        taken = itertools.starmap(judged, zip(names, args, strict=False))
        return fn(
            *taken,
            *args[len(names) :],
            **{name: judged(name, value) for name, value in kwargs.items()},
        )

    return door


def unjudged(cls: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """An instance of a checked class made of values that have been judged, for loops
    that make many.
    """
    instance: Any = object.__new__(cls)  # type: ignore[arg-type]  # a class, as its caller passes it
    instance.__init__.__wrapped__(instance, *args, **kwargs)
    return instance  # type: ignore[no-any-return]


def judge(value: Any, hint: Any, where: str = "") -> Any:  # noqa: C901, PLR0912
    """`value` as a parameter, or an item `where` in it, with this annotation gets it.
    Raises Refused.
    """
    hint, mark = (
        (*get_args(hint), None)[:2] if get_origin(hint) is Annotated else (hint, None)
    )
    origin = get_origin(hint)
    parts = get_args(hint)
    advice = getattr(hint, "MAKER", "")
    if hint is Any or mark is ANYTHING:
        return value
    if origin in (Union, types.UnionType):
        for part in parts:
            try:
                return judge(value, part, where)
            except Refused as refused:
                if refused.where != where:  # it says more than all the choices do
                    raise
                advice = advice or refused.advice
    elif hint in (int, float):
        number = _number(value)
        bounds = mark or Number()
        advice = mark.advice if mark else ""
        if (
            number is not None
            and bounds.least <= number <= bounds.most
            and (type(number) is int or hint is float)
        ):
            return number
    elif hint is str or origin is Literal:
        plain = _text_or_number(value, dtype=mark is _DTYPE)
        if hint is str and isinstance(plain, str):
            return plain
        if plain is not None and plain in parts:
            return parts[parts.index(plain)]
        texts = (
            [one for one in parts if isinstance(one, str)]
            if isinstance(plain, str)
            else []
        )
        advice = (
            f"The nearest is {nearest(str(plain), texts, 1)[0]!r}." if texts else ""
        )
    elif hint is bool:
        if type(value) is bool or type(value).__name__ in ("bool", "bool_"):  # NumPy's
            return bool(value)
    elif origin in (Sequence, tuple):
        items = _items(value)
        if items is not None and (mark or 0) <= len(items) <= _MOST_ITEMS:
            return tuple(
                judge(item, parts[0], f"{where}[{i}]") for i, item in enumerate(items)
            )
    elif issubclass(type(value), origin or hint):
        # isinstance would believe what a value says of its class
        return value
    raise Refused(_words(hint, mark), value, advice, where)


def _number(value: Any) -> int | float | None:
    """A number of Python, NumPy or torch as Python's own; None for what is none, such
    as a bool or a date.
    """
    kind = type(value)
    try:
        if issubclass(kind, int | float):
            if kind is bool:
                return None
            if issubclass(kind, float):
                return float(value)
            return int(value)
        if (
            getattr(value, "mask", None) is not None
            or getattr(value.dtype, "kind", "f") not in "iuf"
        ):
            return None
        item = value.item()
        return item if type(item) in (int, float) else None
    except Exception:
        # several elements, a tensor without values, an object that refuses all
        # questions
        return None


def _text_or_number(value: Any, *, dtype: bool) -> str | int | float | None:
    """Text or a number as Python's own; where a dtype may come, the name of one of
    torch or NumPy; else None.
    """
    kind = type(value)
    home = str(value.__module__ if kind is type else kind.__module__).partition(".")[0]
    if (
        dtype
        and home in ("torch", "numpy")
        and (kind is type or "dtype" in kind.__name__.lower())
    ):
        return str(value.__name__ if kind is type else value).removeprefix("torch.")
    if not issubclass(kind, str):
        return None if dtype else _number(value)
    text = str.__str__(value).removeprefix("torch.")
    # not half of a surrogate pair
    return text if text.encode(errors="replace").decode() == text else None


def _items(value: Any) -> list[Any] | None:
    """The items of a list or array, and no more than one too many; None for what is
    none, text among it.
    """
    if issubclass(type(value), str | bytes | Mapping | set):
        return None
    try:
        return list(itertools.islice(iter(value), _MOST_ITEMS + 1))
    except Exception:  # it has no items, or refuses all questions
        return None


def require_picture(path: str | Path) -> None:
    """Raise PlanError where a picture can't be written: no matplotlib, no such folder,
    or no PNG, PDF or SVG file.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PlanError(
            "Expected matplotlib for a picture, and it isn't installed. Run `pip"
            " install matplotlib`."
        )
    if (
        Path(path).suffix.lower() not in (".png", ".pdf", ".svg")
        or not Path(path).parent.is_dir()
    ):
        raise PlanError(
            "Expected a file that can be written, such as plan.png, plan.pdf or"
            f" plan.svg in a folder that exists, got {str(path)!r}."
        )


def _words(hint: Any, mark: Any = None) -> str:
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return _words(*parts[:2])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, parts)))
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin in (Sequence, tuple):
        return "a list" + (
            f" of at least {mark} item{'s' * (mark != 1)}" if mark else ""
        )
    if hint not in (int, float):
        return (
            mark
            or _WORDS.get(hint)
            or ("a dict" if origin is Mapping else f"a {hint.__name__}")
        )
    words = "a whole number" if hint is int else "a finite number"
    bounds = mark or Number()
    limits = (
        f" of at least {bounds.least:,}"
        if bounds.most == _MOST
        else f" from {bounds.least:,} to {bounds.most:,}"
    )
    limits = limits if bounds.above is None else f" above {bounds.above:,}"
    return words + limits * (bounds.least != -_MOST)
