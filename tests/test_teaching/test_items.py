"""The exams' items: complete, right to the last digit, in no deck, and of no help to somebody who knows nothing."""

import ast
import collections
import math
import re

import pytest

from exercises import bank
from exercises.misconceptions import misconceptions
from labkit.core import results
from labkit.core.errors import DataError
from labkit.lesson import exercise_files
from teaching import anki, items as module
from teaching.__main__ import main
from teaching.items import items
from tests.helpers import notebook_paths
from tests.test_teaching import guessers

ITEMS = items()
every_item = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
MOST_BY_GUESSING = 0.30  # where chance is 0.25


def test_a_hundred_items_or_more_and_as_many_of_each_notebook_and_kind():
    assert len(ITEMS) >= 100
    assert len({item.name for item in ITEMS}) == len({item.task + item.code for item in ITEMS}) == len(ITEMS)
    counts = collections.Counter((item.notebook, item.kind) for item in ITEMS)
    notebooks = [path.name[:2] for path in notebook_paths()]
    assert counts == {(notebook, kind): 2 for notebook in notebooks for kind in module.KINDS}


@every_item
def test_an_item_says_why_each_of_four_options_is_right_or_wrong(item):
    assert len({text for text, _, _ in item.options}) == len({why for _, why, _ in item.options}) == 4
    assert all(why.endswith(".") and len(why.split()) >= 3 for _, why, _ in item.options)
    assert item.misconception in misconceptions()
    assert item.exercise in exercise_files.numbers()
    assert item.exercise[:2] == item.notebook
    assert re.fullmatch(r"nb\d\d-[a-z0-9]+(-[a-z0-9]+)*", item.name)
    assert not re.search(r"exercise|notebook|this section|cell above|see above", item.task.lower()), (
        "it needs the notebook"
    )
    assert item.points > 0


@every_item
def test_the_right_option_alone_follows_from_the_stated_arithmetic(item):
    values = []
    for text, _, arithmetic in item.options:
        assert bool(arithmetic) == (item.kind == "calculate")
        if arithmetic:
            shown = re.match(r"-?[\d,]+(\.\d+)?", text)
            value = eval(arithmetic, {"math": math})
            step = 10 ** -len(shown[1][1:]) if shown[1] else 1
            assert abs(value - guessers.number(text)) <= step / 2 * (1 + 1e-9), (text, value)
            values.append(guessers.number(text))
    assert len(set(values)) == len(values)


@every_item
def test_an_items_code_is_whole(item):
    if item.code and not item.code.startswith("float "):  # C++
        ast.parse(item.code)


def test_true_and_not_true_are_equally_often_right_and_wrong():
    judged = [item for item in ITEMS if item.kind == "judge"]
    heads = [[text.split(":")[0] for text, _, _ in item.options] for item in judged]
    assert all(collections.Counter(head) == {"True": 2, "Not true": 2} for head in heads)
    assert collections.Counter(head[0] for head in heads) == dict.fromkeys(("True", "Not true"), len(judged) // 2)


def as_questions(chosen):
    return [(item.task, [text for text, _, _ in item.options], 0) for item in chosen]


@pytest.mark.parametrize("rule", guessers.RULES)
def test_rules_without_the_subject_find_few_right_options(rule):
    assert guessers.share_right(guessers.RULES[rule], as_questions(ITEMS)) <= MOST_BY_GUESSING


def test_frequencies_of_other_notebooks_find_few_right_options():
    right = 0.0
    for notebook in {item.notebook for item in ITEMS}:
        guess = guessers.frequencies(as_questions(item for item in ITEMS if item.notebook != notebook))
        own = as_questions(item for item in ITEMS if item.notebook == notebook)
        right += guessers.share_right(guess, own) * len(own)
    assert right / len(ITEMS) <= MOST_BY_GUESSING


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("rank 3", ["1", "2", "9", "4"]),
        ("rank 0", ["9", "8", "1", "7"]),
        ("hedging", ["always", "never", "mostly", "only"]),
    ],
)
def test_a_guesser_finds_what_gives_itself_away(rule, options):
    assert guessers.share_right(guessers.RULES[rule], [("", options, 2)]) == 1


def test_a_guesser_that_counts_finds_a_title_that_is_right_whenever_it_is_shown():
    questions = [("", ["it overflows", f"a{i}", f"b{i}", f"c{i}"], 0) for i in range(9)]
    assert guessers.share_right(guessers.frequencies(questions[1:]), questions[:1]) == 1


@pytest.mark.slow
def test_no_deck_and_no_card_shows_an_item():
    shown = "".join(question + answer for _, question, answer, _ in anki.notes())
    shown += "".join(str(card) for notebook in bank.notebooks() for card in bank.cards(notebook))
    assert [item.name for item in ITEMS if item.task in shown] == []


ANSWERS = "student,nb00-a,nb00-b,nb00-c\nkey,a,b,c\none,a,b,c\ntwo,A,b,\nthree,d,b,a\nfour,d,a,a\n"


def test_difficulty_and_discrimination_come_from_filled_in_answers(tmp_path, capsys):
    (tmp_path / "answers.csv").write_text(ANSWERS)
    assert main(["items", str(tmp_path / "answers.csv")]) == 0
    told = capsys.readouterr().out
    rows = {row[0]: row for row in module.table(module.answers([tmp_path / "answers.csv"])).rows}
    assert {name: row[1:3] for name, row in rows.items()} == {
        "nb00-a": ("4", "50%"), "nb00-b": ("4", "75%"), "nb00-c": ("4", "25%")
    }  # fmt: skip
    # right: 1, 1, 0, 0; the share of the two others: 1, 1/2, 1/2, 0. Covariance 1/8, deviations 1/2 and sqrt(1/8)
    assert rows["nb00-a"][3] == f"{(1 / 8) / (1 / 2 * math.sqrt(1 / 8)):.2f}" == "0.71"
    assert "nb00-c" in told


def test_an_item_that_all_miss_has_no_discrimination(tmp_path):
    (tmp_path / "answers.csv").write_text("student,x,y\nkey,a,b\none,b,b\ntwo,b,a\n")
    assert module.table(module.answers([tmp_path / "answers.csv"])).rows[0] == ("x", "2", "0%", "unknown")


@pytest.mark.parametrize("text", ["", "student,x\n", "student,x\nkey,a\none,a,b\n", "student,x\none,a\ntwo,b\n"])
def test_another_table_is_refused_by_name(tmp_path, text):
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(DataError, match=r"other\.csv"):
        module.answers([tmp_path / "other.csv"])


def test_exercises_are_items_of_results_files(tmp_path):
    for name, states in {"one": ["passed", "passed"], "two": ["not yet", "passed"]}.items():
        log = results.Results(tmp_path / f"{name}.jsonl")
        for number, state in zip(("00.1", "00.3"), states, strict=True):
            log.append(results.Attempt(number, number, state, results.now()))
    rows = {row[0]: row[1:3] for row in module.table(module.answers([tmp_path])).rows}
    assert rows == {"00.1": ("2", "50%"), "00.3": ("2", "100%")}
