"""Cards: what a reader sees, what a click does, and what stays in the notebook."""

import ast
import importlib
from types import SimpleNamespace

import pytest

import labkit as lab
from exercises import answer_text, bank
from exercises.misconceptions import misconceptions
from labkit.lesson import cards
from labkit.lesson.checks import judged
from tests.selection import sampled

pytestmark = pytest.mark.slow  # reads every exercise's answers

NOTEBOOKS = bank.notebooks()


@pytest.fixture
def shown(monkeypatch):
    monkeypatch.setattr(cards, "attended", lambda: True)
    return lab.cards("01", count=2)


def test_a_right_click_explains_and_lets_the_check_speak(shown):
    card = shown.cards[0]
    assert card.code.splitlines()[0] in shown.asked.value
    assert [button.description for button in shown.buttons[:4]] == list(card.options)
    shown.buttons[card.right].click()
    assert "Right." in shown.told.value
    assert "The check says: " in shown.told.value
    assert shown.buttons[card.right].icon == "check"
    told = shown.told.value
    shown.buttons[(card.right + 1) % 4].click()  # too late
    assert shown.told.value == told
    assert shown.buttons[(card.right + 1) % 4].icon == ""


def test_a_wrong_click_names_the_true_reason_and_the_next_card_follows(shown):
    first, last = shown.cards
    shown.buttons[(first.right + 1) % 4].click()
    assert f"No: {first.misconception.title}." in shown.told.value.replace(
        "&#x27;", "'"
    )
    assert shown.buttons[(first.right + 1) % 4].icon == "times"
    shown.buttons[4].click()
    assert shown.told.value == ""
    assert "Card 2 of 2" in shown.asked.value
    shown.buttons[last.right].click()
    assert "1 of 2 right." in shown.told.value
    assert shown.buttons[4].layout.display == "none"


def test_its_code_is_broken_between_words(shown):
    assert "word-break:normal" in shown.asked.value


def test_without_a_reader_the_questions_stand_there_and_no_answers():
    text = str(lab.cards("01", count=2))
    assert text.count("What is wrong in this answer to exercise 01.") == 2
    assert not any(one.true in text for one in misconceptions().values() if one.true)
    assert str(lab.cards("01", count=2)) == text
    assert str(lab.cards("01", seed=1, count=2)) != text


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_has_three_cards_or_more_with_four_options_of_which_one_can_be_true(
    notebook,
):
    found = bank.cards(notebook)
    assert len(found) >= 3
    assert found == bank.cards(notebook)
    exercises = {card.number for card in found}
    assert len({card.number for card in found[:3]}) == min(3, len(exercises))
    titles = {one.title: one for one in misconceptions().values()}
    for card in found:
        true = card.misconception
        assert len(set(card.options)) == 4
        assert true.kind == "misconception"
        others = [titles[option] for option in card.options if option != true.title]
        assert [
            one.name
            for one in others
            if one.kind != "misconception" or one.name in true.overlaps
        ] == []


@pytest.mark.parametrize("notebook", sampled(NOTEBOOKS, 6))
def test_what_a_card_shows_is_the_answer_that_the_check_rejects(notebook):
    """test_every_exercise runs each wrong answer through its check; here the text is
    held against the answer.
    """
    wrong = importlib.import_module(f"exercises.nb{notebook}.wrong_answers").WRONG
    for card in bank.cards(notebook):
        assert wrong[card.number][card.place][:2] == (card.answer, card.words)
        if isinstance(card.answer, str):
            assert card.code == card.answer.strip()
            continue
        shown = ast.parse(card.code).body[-1]
        made = getattr(card.answer, "py_func", card.answer)
        if isinstance(shown, ast.FunctionDef) and made.__name__ != "<lambda>":
            assert _without_docstring(shown) == _without_docstring(
                _definition(notebook, made.__name__)
            )
        elif isinstance(shown, ast.Assign) and isinstance(card.answer, list | tuple):
            assert ast.literal_eval(shown.value) == card.answer


def test_a_card_is_judged_by_the_rates_of_this_machine(monkeypatch):
    machine = SimpleNamespace(copy_bytes_per_s=3e9, matmul_flop_per_s={"float32": 7e9})
    for name in ("check", "wrong_answers"):
        module = importlib.import_module(f"exercises.nb00.{name}")
        monkeypatch.setattr(module, "measure_ceilings", lambda **_: machine)
    numbers = [card for card in bank.cards("00") if not callable(card.answer)]
    assert {card.number for card in numbers} == {"00.1", "00.6"}
    for card in numbers:
        assert card.words in judged(card.number, card.answer_here()).message


def _definition(notebook, name):
    source = (answer_text.EXERCISES / f"nb{notebook}" / "wrong_answers.py").read_text(
        encoding="utf-8"
    )
    return next(
        node for node in ast.parse(source).body if getattr(node, "name", "") == name
    )


def _without_docstring(function):
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return [ast.dump(node) for node in (function.args, *body, *function.decorator_list)]


def test_every_option_has_a_reply_that_shows_what_it_answers():
    for notebook in NOTEBOOKS:
        for card in bank.cards(notebook):
            assert [reply.startswith("Right.") for reply in card.replies] == [
                i == card.right for i in range(4)
            ]
            for fault, reply in zip(card.faults, card.replies, strict=True):
                assert fault.believed in reply
                assert fault.true in reply
