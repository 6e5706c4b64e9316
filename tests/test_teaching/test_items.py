"""The exams' items: complete, right to the last digit, in no deck, and of no help to
somebody who knows nothing.
"""

import ast
import collections
import math
import re

import pytest

from exercises import bank
from exercises.misconceptions import misconceptions
from labkit.core.errors import DataError
from labkit.lesson import exercise_files, notebook_files
from teaching import anki, items as module
from teaching.__main__ import main
from teaching.items import items
from tests.helpers import notebook_paths
from tests.test_teaching import guessers

ITEMS = items()
MOST_BY_GUESSING = 0.30  # where chance is 0.25


def test_a_hundred_items_or_more_and_as_many_of_each_notebook_and_kind():
    assert len(ITEMS) >= 100
    assert (
        len({item.name for item in ITEMS})
        == len({item.task + item.code for item in ITEMS})
        == len(ITEMS)
    )
    counts = collections.Counter((item.notebook, item.kind) for item in ITEMS)
    numbers = {path.name[:2] for path in notebook_paths()}
    notebooks = numbers - notebook_files.PUZZLES  # puzzles ask for code alone
    assert counts == {
        (notebook, kind): 2 for notebook in notebooks for kind in module.KINDS
    }


def test_an_item_says_why_each_of_four_options_is_right_or_wrong():
    for item in ITEMS:
        texts, whys, _ = zip(*item.options, strict=True)
        assert len(set(texts)) == len(set(whys)) == 4, item.name
        assert all(why.endswith(".") and len(why.split()) >= 3 for why in whys), (
            item.name
        )
        assert item.misconception in misconceptions(), item.name
        assert item.exercise in exercise_files.numbers(), item.name
        assert item.exercise[:2] == item.notebook, item.name
        assert re.fullmatch(r"nb\d\d-[a-z0-9]+(-[a-z0-9]+)*", item.name)
        needs_the_notebook = r"exercise|notebook|this section|cell above|see above"
        assert not re.search(needs_the_notebook, item.task.lower()), item.name
        assert item.points > 0, item.name
        if item.code and not item.code.startswith("float "):  # C++
            ast.parse(item.code)


def test_the_right_option_alone_follows_from_the_stated_arithmetic():
    for item in ITEMS:
        values = []
        for text, _, arithmetic in item.options:
            assert bool(arithmetic) == (item.kind == "calculate"), item.name
            if arithmetic:
                shown = re.match(r"-?[\d,]+(\.\d+)?", text)
                value = eval(arithmetic, {"math": math})
                step = 10 ** -len(shown[1][1:]) if shown[1] else 1
                rounding = step / 2 * (1 + 1e-9)
                assert abs(value - guessers.number(text)) <= rounding, (text, value)
                values.append(guessers.number(text))
        assert len(set(values)) == len(values), item.name


def test_true_and_not_true_are_equally_often_right_and_wrong():
    judged = [item for item in ITEMS if item.kind == "judge"]
    heads = [[text.split(":")[0] for text, _, _ in item.options] for item in judged]
    assert all(
        collections.Counter(head) == {"True": 2, "Not true": 2} for head in heads
    )
    assert collections.Counter(head[0] for head in heads) == dict.fromkeys(
        ("True", "Not true"), len(judged) // 2
    )


def as_questions(chosen):
    return [(item.task, [text for text, _, _ in item.options], 0) for item in chosen]


def test_rules_without_the_subject_find_few_right_options():
    for rule, guess in guessers.RULES.items():
        assert guessers.share_right(guess, as_questions(ITEMS)) <= MOST_BY_GUESSING, (
            rule
        )


def test_frequencies_of_other_notebooks_find_few_right_options():
    right = 0.0
    for notebook in {item.notebook for item in ITEMS}:
        others = as_questions(item for item in ITEMS if item.notebook != notebook)
        own = as_questions(item for item in ITEMS if item.notebook == notebook)
        right += guessers.share_right(guessers.frequencies(others), own) * len(own)
    assert right / len(ITEMS) <= MOST_BY_GUESSING


def test_a_guesser_finds_what_gives_itself_away():
    rank = guessers.RULES["rank 3"]
    hedging = guessers.RULES["hedging"]
    assert guessers.share_right(rank, [("", ["1", "2", "9", "4"], 2)]) == 1
    assert (
        guessers.share_right(hedging, [("", ["always", "never", "mostly", "only"], 2)])
        == 1
    )
    shown_often = [
        ("", ["it overflows", f"a{i}", f"b{i}", f"c{i}"], 0) for i in range(9)
    ]
    counting = guessers.frequencies(shown_often[1:])
    assert guessers.share_right(counting, shown_often[:1]) == 1


@pytest.mark.slow
def test_no_deck_and_no_card_shows_an_item():
    shown = "".join(question + answer for _, question, answer, _ in anki.notes())
    shown += "".join(
        str(card) for notebook in bank.notebooks() for card in bank.cards(notebook)
    )
    assert [item.name for item in ITEMS if item.task in shown] == []


ANSWERS = "student,nb00-a,nb00-b,nb00-c\nkey,a,b,c\none,a,b,c\ntwo,A,b,\nthree,d,b,a\nfour,d,a,a\n"


def test_difficulty_and_discrimination_come_from_filled_in_answers(tmp_path, capsys):
    (tmp_path / "answers.csv").write_text(ANSWERS)
    assert main(["items", str(tmp_path / "answers.csv")]) == 0
    told = capsys.readouterr().out
    rows = {
        row[0]: row
        for row in module.table(module.answers([tmp_path / "answers.csv"])).rows
    }
    assert {name: row[1:3] for name, row in rows.items()} == {
        "nb00-a": ("4", "50%"), "nb00-b": ("4", "75%"), "nb00-c": ("4", "25%")
    }  # fmt: skip
    # right: 1, 1, 0, 0; the share of the two others: 1, 1/2, 1/2, 0. Covariance 1/8,
    # deviations 1/2 and sqrt(1/8)
    assert rows["nb00-a"][3] == f"{(1 / 8) / (1 / 2 * math.sqrt(1 / 8)):.2f}" == "0.71"
    assert "nb00-c" in told
    (tmp_path / "missed.csv").write_text("student,x,y\nkey,a,b\none,b,b\ntwo,b,a\n")
    missed = module.table(module.answers([tmp_path / "missed.csv"])).rows[0]
    assert missed == ("x", "2", "0%", "unknown")


@pytest.mark.parametrize(
    "text", ["", "student,x\nkey,a\none,a,b\n", "student,x\none,a\ntwo,b\n"]
)
def test_another_table_is_refused_by_name(tmp_path, text):
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(DataError, match=r"other\.csv"):
        module.answers([tmp_path / "other.csv"])
