"""Call every public function of labkit with bad values, one parameter at a time, and judge what comes back.

`python -m tests.bad_inputs costs` prints the cases of a room (or of one function, `costs.matmul`) that fall short;
without an argument, the whole package. tests/test_bad_inputs.py holds the counts to their limits.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import decimal
import fractions
import gc
import inspect
import io
import itertools
import math
import os
import resource
import signal
import sys
import tempfile
import types
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import kerneltrace
import labkit as lab
import steptime
from labkit.core.errors import IN_WORDS
from labkit.core.paths import PACKAGES
from teaching import class_files, pool
from tests import notebook_modules
from tests.good_inputs import (
    EXAMPLES,
    INSTANCES,
    NAN_IS_FINE,
    NEGATIVE_IS_FINE,
    NOT_WALKED,
    ONE_IS_FINE,
    RESULTS,
    STARTS,
)

# functions that aren't called (see NOT_WALKED) and whose results have methods that are
MAKERS = (lab.trace, lab.compile_cuda, kerneltrace.compile_numba, lab.launch)
SECONDS = 3  # of the processor: a call that takes more hangs, and one that waits for 20 times as long
OWN = ("exercises.", "teaching.", *(f"{name}." for name in PACKAGES))
MEMORY_BYTES = 3 * 2**30  # that a call may take beyond what the process has


class Hostile:
    """Every question that Python or a careful function may ask of it raises."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError("hostile")

    __float__ = __int__ = __index__ = __repr__ = __str__ = __eq__ = __ne__ = __lt__ = __gt__ = __hash__ = _refuse
    __len__ = __iter__ = __bool__ = __getattr__ = __getitem__ = __call__ = __enter__ = __format__ = _refuse
    __add__ = __mul__ = __radd__ = __rmul__ = __truediv__ = __array__ = __fspath__ = __contains__ = _refuse

    @property
    def __class__(self) -> Any:
        raise RuntimeError("hostile")


class Liar:
    """Claims to be everything."""

    def __float__(self) -> float:
        return math.nan

    def __index__(self) -> int:
        return -1

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "12"

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self

    __int__ = __len__ = __index__
    __contains__ = __eq__
    __str__ = __fspath__ = __repr__
    __getattr__ = __getitem__ = __call__
    __class__ = property(lambda self: float)


class OddText(str):
    """Text whose methods raise."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("hostile")

    def __hash__(self) -> int:
        raise RuntimeError("hostile")


class OddNumber(float):
    """A number that says it is another one."""

    def __float__(self) -> float:
        return math.nan

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __ge__ = __le__ = __lt__


def _itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


# name -> (how to make it, kinds of parameters for which it isn't wrong)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "none"),
    "nan": (lambda: math.nan, "nan"),
    "inf": (lambda: math.inf, "inf"),
    "-inf": (lambda: -math.inf, "inf"),
    "-1": (lambda: -1, "negative"),
    "-2.5": (lambda: -2.5, "negative"),
    "0": (lambda: 0, "int float"),
    "2.5": (lambda: 2.5, "float"),
    "True": (lambda: True, "bool"),
    "10**30": (lambda: 10**30, "int float"),
    "10**400": (lambda: 10**400, ""),
    "-10**5000": (lambda: -(10**5000), ""),
    "1e308": (lambda: 1e308, "float"),
    "5e-324": (lambda: 5e-324, "float"),
    "2j": (lambda: 2j, ""),
    "Decimal": (lambda: decimal.Decimal("2.5"), ""),
    "Fraction": (lambda: fractions.Fraction(5, 2), ""),
    "empty text": (lambda: "", "text path"),
    "text": (lambda: "no such thing", "text path sequence"),
    "digits": (lambda: "4", "text path sequence"),
    "bytes": (lambda: b"4", "bytes"),
    "surrogate": (lambda: "\ud800", ""),
    "NUL": (lambda: "a\0b", "text"),
    "lines": (lambda: "a\n\n\tb$\\frac$<b>", "text path"),
    "10 MB": (lambda: "x" * 10_000_000, "text"),
    "folder": (lambda: "/", "text path"),
    "missing": (lambda: "/no/such/folder/file", "text path"),
    "[]": (list, "sequence"),
    "()": (tuple, "sequence"),
    "{}": (dict, "mapping"),
    "set()": (set, "iterable"),
    "[None]": (lambda: [None], ""),
    "[nan]": (lambda: [math.nan], ""),
    "['a', 1]": (lambda: ["a", 1], ""),
    "{1: None}": (lambda: {1: None}, ""),
    "{'a': nan}": (lambda: {"a": math.nan}, ""),
    "generator": (lambda: (i for i in (4, 4)), "sequence iterable"),
    "endless": (itertools.count, ""),
    "range(10**15)": (lambda: range(10**15), ""),
    "itself": (_itself, ""),
    "deep": (_deep, ""),
    "function": (lambda: lambda: None, "callable"),
    "of 9": (lambda: lambda a, b, c, d, e, f, g, h, i: None, ""),
    "class": (lambda: dict, "callable"),
    "object": (object, ""),
    "module": (lambda: os, ""),
    "array of 0": (lambda: np.array([]), "sequence array"),
    "array of 3": (lambda: np.array([1.0, 2.0, 3.0]), "sequence array"),
    "array (2, 2)": (lambda: np.ones((2, 2)), "array"),
    "array of text": (lambda: np.array(["a", "b"]), "sequence"),
    "array of objects": (lambda: np.array([None, {}], dtype=object), ""),
    "masked": (lambda: np.ma.masked, ""),
    "masked array": (lambda: np.ma.array([4.0], mask=[True]), ""),
    "datetime64": (lambda: np.datetime64(5, "s"), ""),
    "timedelta64": (lambda: np.timedelta64(5, "ns"), ""),
    "timedelta": (lambda: datetime.timedelta(seconds=4), ""),
    "complex64": (lambda: np.complex64(2), ""),
    "np.nan": (lambda: np.float32("nan"), "nan"),
    "np.bool": (lambda: np.bool_(True), "bool"),
    "tensor of 0": (lambda: torch.empty(0), "tensor sequence array"),
    "tensor of 3": (lambda: torch.ones(3), "tensor sequence array"),
    "tensor nan": (lambda: torch.tensor(math.nan), "tensor nan"),
    "bool tensor": (lambda: torch.tensor(True), "tensor bool"),
    "meta": (lambda: torch.ones((), device="meta"), "tensor"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "tensor"),
    "needs gradient": (lambda: torch.ones(2, requires_grad=True), "tensor sequence"),
    "hostile": (Hostile, ""),
    "liar": (Liar, "callable"),
    "[hostile]": (lambda: [Hostile()], ""),
    "{hostile}": (lambda: {"a": Hostile()}, ""),
    "odd text": (lambda: OddText("x"), "text path"),
    "odd number": (lambda: OddNumber(2.5), "float"),
}
# the table of a quick look: one value of each kind
QUICK = (
    "None", "nan", "inf", "-1", "True", "10**400", "text", "surrogate", "[]", "{'a': nan}", "endless", "of 9", "class",
    "array of 3", "masked", "tensor nan", "hostile", "liar",
)  # fmt: skip

# the same number in other types: the result has to be the same
SAME_INT = (np.int32, np.uint64, torch.tensor)
SAME_FLOAT = (np.float64, torch.tensor, np.asarray)


@dataclass(frozen=True)
class Target:
    """A public function, with the room it is shown in, and how an instance comes to be where it is a method."""

    name: str
    call: Callable[..., Any]
    owner: type | None = None

    @property
    def room(self) -> str:
        home = (self.owner or inspect.unwrap(self.call)).__module__
        if home.startswith("exercises."):
            return "plot" if home.endswith(".figures") else "exercises"
        return home.split(".")[home.startswith("labkit.")]


@dataclass(frozen=True)
class Case:
    """What came of one bad value: "fine", "wrong", "silent", "obscure" or "hangs"."""

    target: Target
    parameter: str
    value: str
    verdict: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:8} {self.target.name}({self.parameter} = {self.value}): {self.why}"


def targets(wanted: str = "") -> Iterator[Target]:
    """Every public function, class and method that has parameters, of labkit and of what stands beside notebooks."""
    seen: set[int] = set()
    offered_by = {name: getattr(lab, name) for name in lab.__all__} | notebook_modules.instruments()
    offered_by |= {"pool": pool, "class_files": class_files, "steptime": steptime}  # lab.profiling wraps the second
    offered_by |= {f"plot.{name}": drawing for name, drawing in notebook_modules.drawings().items()}
    every = [target for name, found in offered_by.items() for target in _targets_of(name, found, seen)]
    walked = {target.owner for target in every} | {target.call for target in every}
    for cls in sorted(results_of(every) - walked, key=lambda cls: (cls.__module__, cls.__name__)):
        every += _methods_of(f"{cls.__module__.split('.')[0]}.{cls.__name__}", cls)
    yield from (target for target in every if target.name.startswith(wanted))


def results_of(found: list[Target]) -> set[type]:
    """The classes that public functions return, and what the methods and properties of these return in turn."""
    todo = [target.call for target in found] + [inspect.unwrap(fn) for fn in MAKERS]
    classes: set[type] = set()
    while todo:
        for cls in _classes_in(hints(Target("", todo.pop())).get("return")):
            if cls not in classes:
                classes.add(cls)
                parts = (getattr(value, "fget", None) or getattr(value, "func", value) for value in vars(cls).values())
                todo += [part for part in parts if inspect.isfunction(part) and not part.__name__.startswith("_")]
    return classes


def _classes_in(hint: Any) -> Iterator[type]:
    """The classes of the packages in an annotation."""
    if typing.get_origin(hint) is not None:
        yield from itertools.chain.from_iterable(map(_classes_in, typing.get_args(hint)))
    elif inspect.isclass(hint) and hint.__module__.startswith(OWN):
        yield hint


def _targets_of(name: str, found: Any, seen: set[int]) -> Iterator[Target]:
    if id(found) in seen or name in NOT_WALKED:
        return
    seen.add(id(found))
    if inspect.ismodule(found):
        for inner in offered(found):
            value = getattr(found, inner)
            at_home = getattr(value, "__module__", "").startswith(OWN) or inspect.ismodule(value)
            if not inner.startswith("_") and at_home:
                yield from _targets_of(f"{name}.{inner}", value, seen)
        return
    if not callable(found) or (isinstance(found, type) and issubclass(found, BaseException | tuple)):
        return
    if inspect.isclass(found):
        yield from _methods_of(name, found)
    if name not in RESULTS and inspect.signature(found).parameters:
        yield Target(name, found)


def _methods_of(name: str, cls: type) -> Iterator[Target]:
    for method, value in vars(cls).items():
        own = inspect.isfunction(value) and not method.startswith("_")
        if own and len(inspect.signature(value).parameters) > 1 and f"{name}.{method}" not in NOT_WALKED:
            yield Target(f"{name}.{method}", value, cls)


def offered(module: Any) -> list[str]:
    """What a module offers: the names in its `__all__`, what it imports `as` the same name, and what it defines."""
    parts = (part for part in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(part, ast.ImportFrom))
    passed_on = {one.name for part in parts for one in part.names if one.asname == one.name}
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    return sorted({*getattr(module, "__all__", ()), *passed_on} or own)


# -- what a parameter takes


_NAMES = {
    "Tensor": torch.Tensor, "nn": torch.nn, "torch": torch, "np": np, "Optimizer": torch.optim.Optimizer,
    "Path": Path, "Callable": Callable, "Any": Any,
}  # fmt: skip


def hints(target: Target) -> dict[str, Any]:
    """The annotations of a function, those that only a type checker can resolve as text."""
    fn: Any = inspect.unwrap(target.call)
    fn = fn if inspect.isclass(fn) else getattr(fn, "draw", fn)
    fn = inspect.unwrap(fn.__init__) if inspect.isclass(fn) else fn
    if is_dataclass(target.call) and isinstance(target.call, type):
        fn = target.call
    try:
        return typing.get_type_hints(fn, localns=_NAMES)
    except Exception:
        return dict(getattr(fn, "__annotations__", {}))


def kinds(hint: Any) -> set[str]:
    """What an annotation takes, in the words of BAD; "any" where that can't be judged."""
    if isinstance(hint, str) or hint in (Any, object, inspect.Parameter.empty) or isinstance(hint, typing.TypeVar):
        return {"any"}
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return kinds(parts[0])
    if origin is typing.Literal:
        return {"choice"}
    if hint is type(None):
        return {"none"}
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(kinds, parts))
    simple = {bool: "bool", int: "int", float: "int float", str: "text", bytes: "bytes", Path: "path"}
    if hint in simple:
        return set(simple[hint].split())
    made = origin or hint
    if made is typing.get_origin(Callable[[], None]):
        return {"callable"}
    if inspect.isclass(made):
        for abc, words in ((dict, "mapping"), (list, "sequence"), (tuple, "sequence")):
            if issubclass(made, abc):
                return {words}
        if made.__name__ in ("Mapping", "Sequence", "Iterable", "Iterator"):
            return {made.__name__.lower(), "sequence"} if made.__name__ == "Iterable" else {made.__name__.lower()}
        return {"tensor", "instance"} if issubclass(made, torch.Tensor) else {"instance"}
    return {"any"}


def is_wrong(target: Target, parameter: str, hint: Any, value: str) -> bool:
    """Whether a function that takes this value, and returns, hides something."""
    takes = kinds(hint)
    key = f"{target.name}.{parameter}"
    if "any" in takes:
        return False
    fine = set(BAD[value][1].split())
    if value in ONE_IS_FINE.get(key, ()) or value in ONE_IS_FINE.get(parameter, ()):
        return False
    if {key, parameter} & NAN_IS_FINE:
        takes |= {"nan", "inf"}
    if {key, parameter} & NEGATIVE_IS_FINE:
        takes |= {"negative"}
    if value == "-2.5" and "float" not in takes:
        return True
    return not fine & takes


# -- one call


class Hangs(BaseException):
    """A call took too long."""


class Started(BaseException):
    """A call has judged all that it was given, and would now start a process or write a file."""


@contextlib.contextmanager
def nothing_starts(room: str) -> Iterator[None]:
    """The functions with which this room's functions start something raise Started instead."""
    with contextlib.ExitStack() as stack:
        for name in STARTS.get(room, ()):
            stack.enter_context(mock.patch(name, side_effect=Started))
        yield


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A limit of time and of memory, a folder of its own, and nothing on the screen."""

    def stop(*_: object) -> None:
        raise Hangs

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    old = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        if pages:
            most = pages * resource.getpagesize() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        gc.disable()  # what is raised while other tests' garbage is collected is lost
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, 20 * SECONDS)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        for number, handler in old.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def example(target: Target, parameter: inspect.Parameter, hint: Any) -> Any:
    """A good value: by function and parameter, by parameter, by annotation, or the default."""
    for key in (f"{target.name}.{parameter.name}", parameter.name, _text(hint)):
        if key in EXAMPLES:
            return EXAMPLES[key]()
    if parameter.default is not inspect.Parameter.empty:
        return parameter.default
    raise LookupError(f"no example for {target.name}({parameter.name}: {_text(hint)})")


def _text(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Annotated:
        return _text(typing.get_args(hint)[0])
    if typing.get_origin(hint) is None and hasattr(hint, "__name__"):
        return str(hint.__name__)
    return str(hint)


def call(target: Target, **changed: Any) -> Any:
    """Call with good values, `changed` in place of some; what it returns, used as a reader would."""
    known = hints(target)
    args: list[Any] = []
    named: dict[str, Any] = {}
    parameters = list(inspect.signature(target.call).parameters.values())
    if target.owner is not None:
        args.append(INSTANCES[target.owner.__name__]())
        parameters = parameters[1:]
    more = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
    in_order = more in changed or f"{target.name}.{more}" in EXAMPLES
    for one in parameters:
        may_lack = one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if one.name not in changed and may_lack and f"{target.name}.{one.name}" not in EXAMPLES:
            continue
        value = changed[one.name] if one.name in changed else example(target, one, known.get(one.name))
        if one.kind is one.VAR_POSITIONAL:
            args += value if one.name not in changed else [value]
        elif one.kind is one.POSITIONAL_ONLY or (in_order and one.kind is one.POSITIONAL_OR_KEYWORD):
            args.append(value)
        elif one.kind is one.VAR_KEYWORD:
            named |= value if one.name not in changed else {"extra": value}
        else:
            named[one.name] = value
    try:
        return _used(target.call(*args, **named))
    except Started:
        return None


def _used(found: Any) -> Any:
    """What a reader sees of a result: a block is entered, an iterator begun, a table written."""
    if isinstance(found, contextlib._GeneratorContextManager):
        with found as inside:
            return inside
    if inspect.isgenerator(found):
        return next(found, None)
    if type(found).__module__.startswith(OWN):
        str(found)
    return found


def holds_nan(found: Any, depth: int = 0) -> bool:
    """Whether a number in a result is NaN."""
    if isinstance(found, float):
        return math.isnan(found)
    if isinstance(found, str):
        return found in ("nan", "inf") or found.startswith(("nan ", "inf "))
    if depth > 3:
        return False
    if isinstance(found, dict):
        return any(holds_nan(value, depth + 1) for value in found.values())
    if isinstance(found, list | tuple):
        return any(holds_nan(value, depth + 1) for value in found[:100])
    if is_dataclass(found) and not isinstance(found, type):
        return any(holds_nan(value, depth + 1) for value in vars(found).values())
    return False


def judged(target: Target, parameter: str, hint: Any, value: str) -> Case:
    """Call with one bad value and judge the outcome."""
    verdict, why = "fine", ""
    try:
        bad = BAD[value][0]()
        with limits():
            found = call(target, **{parameter: bad})
        if is_wrong(target, parameter, hint, value):
            verdict, why = "silent", f"returned {_brief(found)}"
        elif holds_nan(found) and not {f"{target.name}.{parameter}", parameter} & NAN_IS_FINE:
            verdict, why = "silent", f"returned NaN: {_brief(found)}"
    except Hangs:
        verdict, why = "hangs", f"over {SECONDS} s"
    except IN_WORDS as error:
        if "xpected" not in str(error) and parameter not in str(error):
            verdict, why = "obscure", f"{type(error).__name__}: {str(error)[:100]}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        verdict, why = "obscure", f"{type(error).__name__}: {_brief(error)}"
    return Case(target, parameter, value, verdict, why)


def _brief(found: Any) -> str:
    try:
        return f"{found!s:.100}".replace("\n", " ")
    except Exception:
        return f"an object of type {type(found).__name__}"


def same_numbers(target: Target, parameter: inspect.Parameter, hint: Any) -> Iterator[Case]:
    """The same number as NumPy's and torch's has to give the same result, or be refused in words."""
    takes = kinds(hint)
    if not takes & {"int", "float"}:
        return
    plain = example(target, parameter, hint)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return
    # 10^7 shows whether an integer of 32 bits overflows
    for number in {plain, 10**7 if isinstance(plain, int) else plain}:
        try:
            with limits():
                expected, again = (call(target, **{parameter.name: number}) for _ in range(2))
        except BaseException:
            continue
        told = (is_dataclass(expected) or isinstance(expected, int | float | str)) and expected == again
        for convert in SAME_INT if isinstance(number, int) else SAME_FLOAT:
            verdict, why = "fine", ""
            try:
                with limits():
                    found = call(target, **{parameter.name: convert(number)})
                if told and found != expected:
                    verdict, why = "wrong", f"{_brief(found)} instead of {_brief(expected)}"
            except BaseException as error:
                verdict, why = "obscure", f"{type(error).__name__}: {error!s:.80}"
            yield Case(target, parameter.name, f"{convert.__name__}({number})", verdict, why)


def walk(found: list[Target], values: tuple[str, ...] = tuple(BAD)) -> Iterator[Case]:
    """Every case of these functions, run in a folder of their own."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for target in found:
                with nothing_starts(target.room):
                    yield from _cases(target, values)
        finally:
            os.chdir(here)


def _cases(target: Target, values: tuple[str, ...]) -> Iterator[Case]:
    try:
        with limits():
            call(target)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        yield Case(target, "", "good values", "unknown", f"{type(error).__name__}: {error!s:.150}")
        return
    known = hints(target)
    for parameter in inspect.signature(target.call).parameters.values():
        if parameter.name == "self":
            continue
        for value in values:
            yield judged(target, parameter.name, known.get(parameter.name), value)
        yield from same_numbers(target, parameter, known.get(parameter.name))


def main() -> None:
    """Print what falls short in the whole package, or in what the arguments name."""
    sys.stdout.reconfigure(errors="backslashreplace")
    for wanted in sys.argv[1:] or [""]:
        cases = list(walk(list(targets(wanted))))
        for case in cases:
            if case.verdict != "fine":
                print(case)
        rooms = Counter((case.target.room, case.verdict) for case in cases)
        for (room, verdict), count in sorted(rooms.items()):
            print(f"{room:10} {verdict:8} {count:6,}")
        print(f"{wanted or 'labkit'}: {len(cases):,} cases; {dict(Counter(case.verdict for case in cases))}")


if __name__ == "__main__":
    main()
