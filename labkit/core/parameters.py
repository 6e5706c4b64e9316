"""The door of public functions: their annotations say what they take, and `checked`
judges and converts by them.

    @checked
    def transfer_s(n_bytes: NonNegative, *, bytes_per_s: Positive) -> float: ...

Numbers of Python, NumPy and torch become int or float; lists, arrays and generators
become lists or tuples. All else is refused with a sentence: a bool or NaN for a number,
what is out of range, text for a function, a function of another number of arguments, a
class in place of its instance.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints, overload

from labkit.core.arguments import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.kinds import ANYTHING, ARRAY, DTYPE, Kind, Number, kind_of
from trainplan.arguments import Refused, unjudged as unjudged

F = TypeVar("F", bound=Callable[..., Any])

Count = Annotated[int, Number(least=1)]
Size = Annotated[int, Number(least=0)]
Positive = Annotated[float, Number(above=0)]
NonNegative = Annotated[float, Number(least=0)]
Share = Annotated[
    float, Number(least=0, most=1, advice="It is a share: write 0.97 for 97 %.")
]
AnyNumber = Annotated[float, Number(finite=False)]  # NaN and infinity too
# a name or torch's or NumPy's dtype; the function gets the name
Dtype = Annotated[Any, DTYPE]
# arrays, tensors and lists of numbers; the function gets a NumPy array
Array = Annotated[Any, ARRAY]

# unit of a number, by the end of its parameter's name: the first that fits, so
# bytes_per_s comes before _s
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
# text of a form of its own, by parameter
_TEXTS = {"key": "00.3 all threads", "notebook": "00", "unit": "images/s"}


@overload
def checked(fn: F) -> F: ...
@overload
def checked(*, error: type[Exception]) -> Callable[[F], F]: ...
def checked(fn: Any = None, *, error: type[Exception] = BadArgument) -> Any:
    """Judge and convert what a function, or the constructor of a class, is called with,
    by its annotations.

    Raises `error` with the parameter, what it takes and what came. Defaults are not
    judged. What an annotation can't say, such as that one size divides another, is left
    to the function, and so are parameters of type Any or object.
    """
    if fn is None:
        return functools.partial(checked, error=error)
    if isinstance(fn, type):
        # The class itself stays, so that isinstance, pickle and dataclasses.replace
        # know it.
        setattr(fn, "__init__", checked(error=error)(vars(fn)["__init__"]))  # noqa: B010
        return fn
    parameters = inspect.signature(fn).parameters.values()
    places = [one.name for one in parameters if one.kind < one.VAR_POSITIONAL]
    further = next(
        (one.name for one in parameters if one.kind is one.VAR_POSITIONAL), ""
    )
    others = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")

    # by the first call, since annotations may name what is heavy to import
    @functools.cache
    def kinds() -> dict[str, Kind]:
        hints = _hints(inspect.unwrap(fn))
        return {one.name: kind_of(hints.get(one.name, Any)) for one in parameters}

    def judged(name: str, value: Any) -> Any:
        try:
            return (kinds().get(name) or kinds().get(others, ANYTHING)).take(value)
        except Refused as refused:
            raise error(_message(name, refused)) from None

    @functools.wraps(fn)
    def door(*args: Any, **kwargs: Any) -> Any:
        # Too many arguments and unknown names are left to Python's own message.
        names = itertools.chain(places, itertools.repeat(further))
        return fn(
            *map(judged, names, args),
            **{name: judged(name, value) for name, value in kwargs.items()},
        )

    return door


def _message(name: str, refused: Refused) -> str:
    units = (f"It is in {unit}." for end, unit in _UNITS.items() if name.endswith(end))
    advice = refused.advice or (next(units, "") if "number" in refused.words else "")
    words = refused.words + (
        f" such as {_TEXTS[name]!r}"
        if name in _TEXTS and refused.words == "text"
        else ""
    )
    return (
        f"Expected {name}{refused.where} to be {words}, got"
        f" {brief_repr(refused.value)}. {advice}".rstrip()
    )


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; what its module imports for type checkers alone is
    imported now.
    """
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError:
        module = sys.modules[fn.__module__]
        names = dict(vars(module))
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                exec(
                    compile(ast.Module(node.body, []), str(module.__file__), "exec"),
                    names,
                )
        return get_type_hints(fn, names, include_extras=True)
