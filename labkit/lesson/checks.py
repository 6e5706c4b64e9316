"""Judge answers: `check` says todo, not yet or passed and why; `hint` helps in steps;
`solution` shows one way.

The check of an exercise is in `exercises/nbNN/check.py`, built from the helpers at the
end of this file. It takes an answer, returns the sentence of a pass, and raises `Todo`
or `NotYet` otherwise. `check` turns all of that into an `Outcome`, also what the
reader's own code raises: a wrong answer is a result and never a traceback.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from labkit.core.arguments import as_float
from labkit.core.display import Note, brief_repr, cut
from labkit.core.errors import LabError
from labkit.core.parameters import Count, checked
from labkit.core.units import significant
from labkit.lesson import outcomes
from labkit.lesson.exercise_files import exercise, has_solutions, solutions
from labkit.lesson.outcomes import Outcome as Outcome
from labkit.lesson.process_state import KeptFunctions, KeptState

_LONGEST_ERROR = 300


class Todo(LabError):
    """The answer is still open; the message says what is asked for."""


class NotYet(LabError):
    """The answer is wrong; the message says why, and `details` (name -> value) what a
    notebook goes on with.
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class Text(Note):
    """A note in Markdown."""

    _repr_html_ = None  # type: ignore[assignment]  # notebooks would prefer it to Markdown

    def _repr_markdown_(self) -> str:
        return self.text


@checked
def check(number: str, answer: object) -> Outcome:
    """Judge an answer to an exercise, and keep the outcome in the results file.

    Never raises for a wrong answer, only for an exercise that does not exist.
    """
    outcome = judged(number, answer)
    if outcome.state != "todo":
        code = outcomes.answer_code(number, answer, outcome.message)
        outcomes.note(number, outcome.state, answer=code, message=outcome.message)
    return outcome


def judged(number: str, answer: object) -> Outcome:
    """What `check` says of an answer; nothing is kept."""
    with KeptState() as kept:
        outcome = _judged(number, exercise(number).check, answer)
    if not kept.left:
        return outcome
    advice = (
        f"{outcome.message} Your answer changed {', '.join(kept.left)} for good:"
        " restart the kernel."
    )
    return dataclasses.replace(outcome, message=advice)


def _judged(number: str, judge: Callable[[Any], str], answer: object) -> Outcome:
    try:
        if answer is ...:
            raise Todo("Replace the dots with your answer.")
        return Outcome(number, "passed", judge(answer))
    except Todo as todo:
        return Outcome(number, "todo", f"{todo} Stuck? lab.hint({number!r})")
    except NotYet as wrong:
        return Outcome(number, "not yet", str(wrong), wrong.details)
    except (Exception, SystemExit) as error:
        # whatever an answer does, it is a result; Ctrl-C still stops it
        return Outcome(
            number, "not yet", f"Your answer could not be judged: {_in_words(error)}"
        )


@checked
def hint(number: str, step: Count | None = None) -> Text:
    """The hint number `step` of an exercise; the first is a nudge, the last nearly the
    answer.

    Without a step it is the first, and each answer that has been checked since a hint
    leads to the next one.
    """
    hints = exercise(number).hints
    step = min(step or outcomes.next_hint(number), len(hints))
    outcomes.note(number, "hint", step=step)
    text = f"**Hint {step} of {len(hints)}.** {hints[step - 1]}"
    if step < len(hints):
        text += f"\n\nMore: `lab.hint({number!r}, {step + 1})`"
    elif has_solutions(number[:2]):
        text += f"\n\nStill stuck: `lab.solution({number!r})`"
    return Text(text)


@checked
def solution(number: str) -> Text:
    """One right answer, as code with its comments (exercises/nbNN/solution.py)."""
    exercise(number)
    if not has_solutions(number[:2]):
        return Text(
            "This copy of the workbook was made without solutions."
            f" `lab.hint({number!r})` helps in steps."
        )
    outcomes.note(number, "solution")
    return Text(
        f"One way to solve {number}:\n```python\n{solutions(number[:2])[number]}\n```"
    )


# What checks are built from.


def number_close(
    answer: object,
    expected: float,
    *,
    rel: float,
    unit: str,
    hint: str = "",
    given: str = "",
) -> str:
    """Compare a number with the expected one; the factor between them is the diagnosis.
    `rel` is relative.

    Within 5 % the message says so, and that the answer was rounded where it is the
    expected one rounded.
    """
    value = as_number(answer, unit, given)
    near_zero = 1e-12 if expected == 0 else 0.0
    if math.isclose(value, expected, rel_tol=rel, abs_tol=near_zero):
        case = f" for {given}" if given else ""
        return f"{significant(value, 4)} {unit} is right{case}."
    if expected == 0 or value == 0:
        words = f"{value:g} {unit} is not what we expect"
    elif abs(value / expected - 1) < 0.05:
        got, right = _digits_that_differ(value, expected)
        words = f"{got} {unit} is close, but {right} {unit} was expected"
        if _is_rounded(value, expected):
            words += ": return it unrounded"
    else:
        words = f"{value:.4g} {unit} is {value / expected:.3g}x what we expect"
    where = f"For {given}: " if given else ""
    raise NotYet(f"{where}{words}. {hint}".rstrip())


def _is_rounded(value: float, exact: float) -> bool:
    """Whether a value is the exact one rounded to some number of decimals."""
    return any(
        math.isclose(value, round(exact, decimals), rel_tol=1e-7)
        for decimals in range(13)
    )


def as_number(answer: object, unit: str, given: str = "") -> float:
    """The answer as a float: Python, NumPy and one-element torch numbers count; NotYet
    for anything else.
    """
    value = as_float(answer)
    if value is not None and not math.isnan(value):
        return value
    what = "a number"
    if answer is None or answer is ...:
        got = "nothing. Is there a return?"
    elif value is not None:
        got = "NaN: 0 / 0, infinity / infinity, or a value that was never set."
    elif math.prod(getattr(answer, "shape", ())) != 1:
        what = "one number"
        got = f"{type(answer).__name__} with several."
    else:
        got = f"{brief_repr(answer)}."
    expected = f"For {given}: expected" if given else "Expected"
    unit = unit if unit.startswith(("(", "of ")) else f"in {unit}"
    raise NotYet(f"{expected} {what} {unit}, got {got}")


def function(answer: object) -> Callable[..., Any]:
    """The answer as a function; Todo while it is a stub."""
    if not callable(answer):
        raise NotYet(
            f"Expected a function, got {brief_repr(answer)}. Pass its name without"
            " brackets."
        )
    if is_open(answer):
        raise Todo(
            f"{getattr(answer, '__name__', 'It')} has no body yet: replace its dots."
        )
    return cast("Callable[..., Any]", answer)


def is_open(fn: object) -> bool:
    """Whether a function is still a stub: dots in its source outside of an index, or a
    docstring and nothing else.

    False without source, as for builtins: such an answer is called, and judged by what
    it returns.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cast("Any", fn))))
    except (OSError, TypeError, SyntaxError):
        return False
    match getattr(tree.body[0], "body", []):
        case [ast.Expr(value=ast.Constant())]:
            return True
    in_indices = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            in_indices |= {id(part) for part in ast.walk(node.slice)}
    return any(
        isinstance(node, ast.Constant)
        and node.value is ...
        and id(node) not in in_indices
        for node in ast.walk(tree)
    )


def over_cases(
    answer: object,
    cases: Iterable[tuple[Any, ...]] | Mapping[str, tuple[Any, ...]],
    expected: Callable[..., Any],
    compare: Callable[..., object],
    *,
    given: str = "",
) -> None:
    """Call the answer with each case's values, and compare(got, expected(*case), words,
    *case), which raises NotYet.

    The words say which case it is: the key where `cases` is a mapping; else `given`, a
    format string with the names of expected's parameters, such as "{n:,} elements";
    else those names and values, such as "n=64, element_bytes=4". The answer works on
    copies, so that it can't change what the next case or `expected` sees. Todo for a
    stub.
    """
    fn = function(answer)
    names = list(inspect.signature(expected).parameters)
    if isinstance(cases, Mapping):
        described = list(cases.items())
    else:
        described = [("", case) for case in cases]
    for words, case in described:
        values = dict(zip(names, case, strict=True))
        if not words:
            words = given.format(**values)
        if not words:
            words = ", ".join(
                f"{name}={_brief(value)}" for name, value in values.items()
            )
        compare(call(fn, *copy.deepcopy(case)), expected(*case), words, *case)


def close(
    unit: str, *, rel: float = 1e-6, hint: str | Callable[..., str] = ""
) -> Callable[..., object]:
    """A `compare` for over_cases, of numbers by number_close; the hint is text, or a
    function hint(value, *case).
    """

    def compare(got: object, right: float, given: str, *case: Any) -> None:
        advice = hint
        if not isinstance(advice, str):
            advice = advice(as_number(got, unit, given), *case)
        number_close(got, right, rel=rel, unit=unit, given=given, hint=advice)

    return compare


def _brief(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return brief_repr(value)


def call(fn: Callable[..., Any], *args: Any) -> Any:
    """Call the reader's function; whatever it raises becomes a NotYet with the error
    and the arguments.
    """
    try:
        with KeptFunctions():  # so that an answer can't replace what judges it
            return fn(*args)
    except (Exception, SystemExit) as error:
        arguments = ", ".join(brief_repr(arg) for arg in args)
        name = getattr(fn, "__name__", "Your function")
        raise NotYet(f"{name}({arguments}) raised {_in_words(error)}") from error


def remaining(faults: Sequence[str], *, of: int) -> str:
    """How many faults are left, "1 of 6 faults remains:", and a line of
    words for each.
    """
    verb = "remains" if len(faults) == 1 else "remain"
    listed = (f"({i}) {words}" for i, words in enumerate(faults, 1))
    return "\n".join([f"{len(faults)} of {of} faults {verb}:", *listed])


def mapping(
    answer: object, keys: Mapping[str, str], *, more: bool = False
) -> dict[str, Any]:
    """The answer as a dict with these keys (key -> what it stands for), and `more` or
    no others; Todo for a `...`.
    """
    if not isinstance(answer, dict):
        raise NotYet(
            f"Expected a dict with the keys {sorted(keys)}, got {brief_repr(answer)}."
        )
    missing = sorted(set(keys) - set(answer))
    extra = [] if more else sorted(map(str, set(answer) - set(keys)))
    if missing or extra:
        not_asked_for = brief_repr(extra) if extra else "none"
        raise NotYet(
            f"Expected the keys {sorted(keys)}: missing {missing or 'none'}, not asked"
            f" for {not_asked_for}."
        )
    still_open = [key for key, value in answer.items() if value is ...]
    if still_open:
        raise Todo(f"Still open: {', '.join(still_open)}.")
    return answer


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    text = cut(str(error), _LONGEST_ERROR)
    return f"{name}: {text}" if text else name


def _digits_that_differ(value: float, expected: float) -> tuple[str, str]:
    """Both numbers with as few digits as show that they differ."""
    for digits in range(4, 17):
        got = f"{value:.{digits}g}"
        right = f"{expected:.{digits}g}"
        if got != right:
            break
    return got, right
