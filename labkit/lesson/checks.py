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
from typing import Annotated, Any, cast

from labkit.core.arguments import as_float
from labkit.core.display import Note, brief_repr
from labkit.core.errors import LabError
from labkit.core.parameters import Count, Kind, checked
from labkit.core.units import is_count, significant
from labkit.lesson import outcomes
from labkit.lesson.answer_errors import called, in_words
from labkit.lesson.exercise_files import exercise, has_solutions, solutions
from labkit.lesson.outcomes import Outcome as Outcome
from labkit.lesson.process_state import KeptState
from labkit.lesson.time_limit import TimeLimit, TimeUp

ExerciseNumber = Annotated[
    str,
    Kind(
        "text such as '03.1'",
        lambda number: isinstance(number, str),
        "It is notebook.section, in quotation marks.",
    ),
]


_BROKEN = (
    "Its cell was run last with a syntax error, so nothing was judged. Mend that cell,"
    " run it, and then this one."
)


class Todo(LabError):
    """The answer is still open; the message says what is asked for."""


class NotYet(LabError):
    """The answer is wrong; the message says why, and `details` (name -> value) what a
    notebook goes on with.
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class Passed(str):
    """The sentence of a pass, and `details` (name -> value) what a notebook goes on
    with.
    """

    details: Mapping[str, object]

    def __new__(cls, sentence: str, **details: object) -> Passed:
        """The sentence with its details."""
        passed = super().__new__(cls, sentence)
        passed.details = details
        return passed


class Text(Note):
    """A note in Markdown."""

    _repr_html_ = None  # type: ignore[assignment]  # notebooks would prefer it to Markdown

    def _repr_markdown_(self) -> str:
        return self.text


@checked
def check(number: ExerciseNumber, answer: object) -> Outcome:
    """Judge an answer to an exercise, and keep the outcome in the results file.

    Never raises for a wrong answer, only for an exercise that does not exist.
    """
    if outcomes.is_broken(number):
        return Outcome(number, "todo", _BROKEN)
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
        with TimeLimit():
            sentence = judge(answer)
        details = sentence.details if isinstance(sentence, Passed) else {}
        return Outcome(number, "passed", str(sentence), details)
    except Todo as todo:
        return Outcome(number, "todo", f"{todo} Stuck? lab.hint({number!r})")
    except NotYet as wrong:
        return Outcome(number, "not yet", str(wrong), wrong.details)
    except TimeUp as stopped:
        return Outcome(
            number, "not yet", f"Your answer doesn't come to an end. {stopped}"
        )
    except (Exception, SystemExit) as error:
        # whatever an answer does, it is a result; Ctrl-C still stops it
        return Outcome(
            number, "not yet", f"Your answer could not be judged: {in_words(error)}"
        )


@checked
def hint(number: ExerciseNumber, step: Count | None = None) -> Text:
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
def solution(number: ExerciseNumber) -> Text:
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
        return f"{_with_unit(significant(value, 4), unit)} is right{case}."
    if expected == 0 or value == 0 or math.isinf(value):
        words = f"{_with_unit(f'{value:g}', unit)} is not what we expect"
        if given:  # one case of many, whose number gives nothing away
            words += f", which is {expected:.4g}"
    elif abs(value / expected - 1) < 0.05:
        got, right = (
            _with_unit(text, unit) for text in _digits_that_differ(value, expected)
        )
        words = f"{got} is close, but {right} was expected"
        if _is_rounded(value, expected):
            words += ": return it unrounded"
    else:
        is_long = 1e4 <= abs(value) < 1e10
        got = significant(value, 4) if is_long else f"{value:.4g}"
        factor = in_factors(value / expected)
        words = f"{_with_unit(got, unit)} is {factor} what we expect"
    where = f"For {given}: " if given else ""
    raise NotYet(f"{where}{words}. {hint}".rstrip())


def _with_unit(number: str, unit: str) -> str:
    """A number as a reply says it: "1 step", "1.19x", and without a unit in
    parentheses, such as (a share), which only says what is asked for.
    """
    if unit.startswith("("):
        return number
    if unit == "x":
        return f"{number}x"
    counted, *rest = unit.split(" ")
    if number == "1" and is_count(counted):
        counted = counted.removesuffix("s")
    return " ".join([number, counted, *rest])


def in_factors(ratio: float) -> str:
    """A ratio in words that fit before "what we expect": 1,000x, 0.01x, 1/1,000,000
    of, the negative of.
    """
    size = abs(ratio)
    if 1e-3 <= size < 1e15:
        # three digits at most, and no zeros that say nothing
        text = significant(size)
        words = f"{text.rstrip('0').rstrip('.') if '.' in text else text}x"
    elif 1e-15 < size < 1e-3:
        words = f"1/{significant(1 / size)} of"
    else:
        words = f"{size:.3g}x"
    if ratio > 0:
        return words
    return "the negative of" if words == "1x" else f"the negative of {words}"


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
    what = "one number" if _has_several(answer) else "a number"
    counted = unit.split()[-1] if unit else ""
    if unit.startswith(("(", "of ")):
        expected = f"{what} {unit}"
    elif is_count(counted):
        expected = f"a count of {unit}"
    else:
        expected = f"{what} in {unit}"
    where = f"For {given}: expected" if given else "Expected"
    raise NotYet(f"{where} {expected}, got {_no_number(answer)}")


def _has_several(answer: object) -> bool:
    return math.prod(getattr(answer, "shape", ())) != 1


def _no_number(answer: object) -> str:
    """What an answer is that is no number, and what to do about it."""
    if answer is None or answer is ...:
        return "nothing. Is there a return? print only shows a value."
    if as_float(answer) is not None:
        return "NaN: 0 / 0, infinity / infinity, or a value that was never set."
    if _has_several(answer):
        return f"{type(answer).__name__} with several."
    got = brief_repr(answer)
    if callable(answer):
        name = getattr(answer, "__name__", got)
        return f"the function {name}. Call it, with brackets."
    if isinstance(answer, list | set | tuple) and len(answer) != 1:
        return f"{got}, {len(answer)} in all. Is their number meant, len(...)?"
    if isinstance(answer, bool):
        return f"{got}. A comparison gives True or False."
    if isinstance(answer, str):
        return f"{got}. That is text: leave out the quotation marks."
    if isinstance(answer, list | tuple) and len(answer) == 1:
        return f"{got}. Take the number out of it, with [0]."
    return f"{got}."


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
        return fn(*args)
    except TimeUp as stopped:
        raise NotYet(f"{called(fn, args)} doesn't return. {stopped}") from None
    except (Exception, SystemExit) as error:
        raise NotYet(f"{called(fn, args)} raised {in_words(error, fn)}") from error


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
        faults = [f"missing {missing}"] if missing else []
        if extra:
            faults.append(f"not asked for {brief_repr(extra)}")
        raise NotYet(f"Expected the keys {sorted(keys)}: {', '.join(faults)}.")
    still_open = [key for key, value in answer.items() if value is ...]
    if still_open:
        raise Todo(f"Still open: {', '.join(still_open)}.")
    return answer


def _digits_that_differ(value: float, expected: float) -> tuple[str, str]:
    """Both numbers with as few digits as show that they differ."""
    for digits in range(4, 17):
        got = f"{value:.{digits}g}"
        right = f"{expected:.{digits}g}"
        if got != right:
            break
    return got, right
