import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit import plot
from labkit.lesson import checks, guesses, journal
from labkit.lesson.checks import NotYet, Outcome, Todo
from labkit.lesson.exercise_files import Exercise


@pytest.fixture
def exercise(monkeypatch):
    """Put one check in place of all exercises."""

    def put(judge):
        monkeypatch.setattr(
            checks, "exercise", lambda number: Exercise(judge, ("first", "second"))
        )

    return put


def test_a_pass_carries_its_sentence(exercise):
    exercise(lambda answer: f"{answer} is right.")
    assert checks.check("99.1", 3) == Outcome("99.1", "passed", "3 is right.")


def test_an_open_answer_is_todo_and_points_to_the_hint(exercise):
    exercise(lambda answer: "never called")
    outcome = checks.check("99.1", ...)
    assert outcome.state == "todo"
    assert "lab.hint('99.1')" in outcome.message


@pytest.mark.parametrize("state", ["todo", "not yet"])
def test_an_outcome_stands_for_what_its_answer_gives_until_it_is_passed(state):
    outcome = Outcome("99.1", state, "Why.")
    assert (outcome and 1 / 0) is outcome
    assert (Outcome("99.1", "passed", "Right.") and 42) == 42


def test_whatever_the_check_meets_is_an_outcome(exercise):
    def burst(answer):
        raise ZeroDivisionError("of course")

    exercise(burst)
    outcome = checks.check("99.1", 1)
    assert outcome.state == "not yet"
    assert "ZeroDivisionError: of course" in outcome.message


def test_hints_come_in_steps_and_end_at_the_solution(exercise):
    exercise(lambda answer: "")
    assert "Hint 1 of 2" in str(checks.hint("00.1"))
    assert "lab.hint('00.1', 2)" in str(checks.hint("00.1"))
    assert "lab.solution('00.1')" in str(checks.hint("00.1", 2))
    assert str(checks.hint("00.1", 7)) == str(checks.hint("00.1", 2))


def test_a_solution_is_shown_as_code():
    shown = checks.solution("00.3")._repr_markdown_()
    assert "```python" in shown
    assert "def efficiency_percent" in shown


@pytest.mark.parametrize(
    "answer", [2, np.float32(2), np.array([2.0]), torch.tensor(2.0)]
)
def test_numbers_of_every_library_count(answer):
    assert "right" in checks.number_close(answer, 2.0, rel=0.01, unit="ms")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (2e-3, "0.001x what we expect. Seconds?"),
        (True, "Expected a number in ms, got True"),
        (np.ones(3), "one number"),
        (float("nan"), "NaN"),
        (None, "Is there a return"),
        (0.0, "0 ms is not what we expect"),
    ],
)
def test_a_wrong_number_is_told_by_what_factor_or_why(answer, words):
    with pytest.raises(NotYet, match=words.replace(".", r"\.")):
        checks.number_close(answer, 2.0, rel=0.01, unit="ms", hint="Seconds?")


def test_a_rounded_number_is_told_so():
    words = (
        "For n=3: 88.1 % is close, but 88.13 % was expected: return it unrounded. Hm."
    )
    with pytest.raises(NotYet, match=f"^{re.escape(words)}$"):
        checks.number_close(88.1, 88.13, rel=1e-6, unit="%", given="n=3", hint="Hm.")
    # close, and not the expected one at any number of digits
    for other in (88.2, 86.0, 88.13 * 1.01):
        with pytest.raises(NotYet, match=r"88\.13 % was expected\. Hm\.$"):
            checks.number_close(other, 88.13, rel=1e-6, unit="%", hint="Hm.")
    with pytest.raises(NotYet, match=r"^1 s is close, but 1\.0001 s was"):
        checks.number_close(1.0, 1.0001, rel=1e-6, unit="s")


def raise_without_a_word(x):
    raise ValueError


def interrupt(*args):
    raise KeyboardInterrupt


def test_an_answer_that_leaves_or_says_nothing_is_not_yet_and_ctrl_c_still_stops(
    exercise,
):
    with pytest.raises(NotYet, match=r"raised SystemExit$"):
        checks.call(lambda x: sys.exit(), 1)
    with pytest.raises(NotYet, match=r"raised ValueError$"):
        checks.call(raise_without_a_word, 1)
    with pytest.raises(KeyboardInterrupt):
        checks.call(interrupt, 1)
    exercise(lambda answer: answer())
    assert (
        checks.check("99.1", sys.exit).message
        == "Your answer could not be judged: SystemExit"
    )
    with pytest.raises(KeyboardInterrupt):
        checks.check("99.1", interrupt)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (lambda logits: (logits.max(1) == torch.zeros(3))[0], "tensor.argmax(dim)"),
        (lambda logits: [d + 1 for d in 10], "range(n) counts"),
        (lambda logits: logits[torch.ones(2, dtype=bool)], "a name from outside"),
    ],
)
def test_common_mistakes_with_arrays_get_advice(answer, advice):
    with pytest.raises(NotYet, match=re.escape(advice)):
        checks.call(answer, torch.zeros(3, 4))


def spread_of(low, middle, high):
    return lambda r: float((high(sorted(r)) - low(sorted(r))) / middle(sorted(r)))


def by_index(share):
    return lambda r: r[int(share * len(r))]


def by_numpy(q, method):
    return lambda r: np.percentile(r, q, method=method)


METHODS = ("weibull", "lower", "median_unbiased")


RIGHT = [
    ("00.3", lambda one_s, all_s, threads: round(100 * one_s / all_s / threads, 2)),
    ("01.3", lambda n, element_bytes: (2 * n - 1) * n**2 / (3 * n**2 * element_bytes)),
    ("02.5", spread_of(by_index(0.25), by_index(0.5), by_index(0.75))),
    (
        "02.5",
        spread_of(
            by_numpy(25, "linear"),
            lambda r: torch.tensor(r).median(),
            by_numpy(75, "linear"),
        ),
    ),
    *(
        ("02.5", spread_of(by_numpy(25, method), np.median, by_numpy(75, method)))
        for method in METHODS
    ),
]


@pytest.mark.parametrize(("number", "answer"), RIGHT)
def test_a_right_answer_in_other_words_passes(number, answer):
    assert str(checks.check(number, answer)).startswith(f"{number} passed")


def test_a_function_without_a_body_is_todo_and_one_that_raises_is_told_its_arguments():
    def empty(x): ...

    with pytest.raises(Todo, match="empty has no body yet"):
        checks.function(empty)
    assert checks.function(lambda x: np.ones(3))
    with pytest.raises(NotYet, match=r"raised ZeroDivisionError: .* zero"):
        checks.call(lambda x: 1 / x, 0)
    with pytest.raises(NotYet, match="ndarray of shape \\(3,\\)"):
        checks.call(lambda x: x.nothing, np.ones(3))
    with pytest.raises(NotYet, match="without brackets"):
        checks.function(3)


def test_a_mapping_names_what_is_missing():
    keys = {"a": "", "b": ""}
    assert checks.mapping({"a": 1, "b": 2}, keys) == {"a": 1, "b": 2}
    with pytest.raises(Todo, match="Still open: b"):
        checks.mapping({"a": 1, "b": ...}, keys)
    with pytest.raises(NotYet, match=r"missing \['b'\]"):
        checks.mapping({"a": 1}, keys)
    with pytest.raises(NotYet, match="Expected a dict"):
        checks.mapping([1], keys)


def only_says_what(x):
    """A docstring."""


def shows_dots(x):
    y = x[..., 0]
    ...  # noqa: PIE790 - what a stub has
    return y


def test_a_stub_is_open_and_dots_in_an_index_are_none():
    assert checks.is_open(only_says_what)
    assert checks.is_open(shows_dots)
    assert not checks.is_open(raise_without_a_word)
    assert not checks.is_open(lambda x: x[..., 0])
    assert not checks.is_open(len)  # no source to read


def test_a_driven_answer_meets_each_case_in_words_and_works_on_copies():
    met = []

    def compare(got, right, given, *case):
        met.append((got, right, given))

    def emptied(x, n):
        x.clear()
        return n

    checks.over_cases(
        emptied, [([1, 2], 3000), ([], 0.25)], lambda x, n: len(x) + n, compare
    )
    checks.over_cases(
        emptied, [([1, 2], 3000)], lambda x, n: n, compare, given="{n:,} of {x[1]}"
    )
    checks.over_cases(emptied, {"words": ([1], 1)}, lambda x, n: n, compare)
    assert met == [
        (3000, 3002, "x=[1, 2], n=3,000"),
        (0.25, 0.25, "x=[], n=0.25"),
        (3000, 3000, "3,000 of 2"),
        (1, 1, "words"),
    ]
    with pytest.raises(Todo):
        checks.over_cases(only_says_what, [(1,)], lambda x: x, compare)


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, in its order."""
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda one, **how: seen.append(one))
    return seen


def curve():
    return plot.curves({"a": [1.0, 2.0]})


def test_a_pass_is_drawn_in_one_output_with_the_verdict_and_the_guess(
    shown, home, monkeypatch
):
    bound = []
    events = SimpleNamespace(
        register=lambda *call: bound.append(call),
        unregister=lambda *call: bound.remove(call),
    )
    monkeypatch.setattr(guesses, "shell", lambda: SimpleNamespace(events=events))

    def drawn():
        journal.record("99.1 doubled", 6.0, "x", origin="calculated")
        return curve()

    guesses.predict("99.1 doubled", 2, "x")
    Outcome("99.1", "passed", "Right.").draw(drawn)
    (output,) = shown
    at = [
        output["text/html"].index(words)
        for words in ("99.1 passed", "<img", "loss by step", "You said 2.00 x, it was")
    ]
    assert at == sorted(at)
    assert output["image/png"]
    assert output["text/plain"].startswith(
        "99.1 passed: Right.\nloss by step: a 2.00 after 2. You said 2.00 x, it was"
        " 6.00 x"
    )
    assert bound == []  # the cell doesn't tell it again at its end
    assert guesses.answered() == ()


@pytest.mark.parametrize(
    ("state", "wrong"), [("todo", False), ("todo", True), ("not yet", False)]
)
def test_what_is_not_passed_has_its_verdict_alone(shown, state, wrong):
    Outcome("99.1", state, "Why.").draw(lambda: pytest.fail("drawn"), wrong=wrong)
    assert [one["text/plain"] for one in shown] == [f"99.1 {state}: Why."]


def test_a_wrong_answer_is_drawn_if_that_is_asked_for_and_can_be(shown):
    wrong = Outcome("99.1", "not yet", "Why.")
    wrong.draw(curve, wrong=True)
    wrong.draw(lambda: 1 / 0, wrong=True)
    assert ["<img" in one["text/html"] for one in shown] == [True, False]
    with pytest.raises(ZeroDivisionError):
        Outcome("99.1", "passed", "Right.").draw(lambda: 1 / 0)
    assert shown[-1]["text/plain"] == "99.1 passed: Right."  # above the traceback
