"""Every wrong answer has its misconception, and every misconception is one that wrong answers show."""

import collections
import csv
import importlib
import re

import pytest

from exercises.misconceptions import FILE, misconceptions
from tests.helpers import notebook_paths

NOTEBOOKS = [path.name[:2] for path in notebook_paths()]
KNOWN = misconceptions()


def wrong_of(notebook):
    return importlib.import_module(f"exercises.nb{notebook}.wrong_answers").WRONG


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_each_wrong_answer_has_a_misconception_of_the_list(notebook):
    for number, cases in wrong_of(notebook).items():
        assert [name for *_, name in cases if name not in KNOWN] == [], number


def test_each_misconception_is_behind_two_wrong_answers_or_more():
    used = collections.Counter(name for n in NOTEBOOKS for cases in wrong_of(n).values() for *_, name in cases)
    assert [name for name in KNOWN if used[name] < 2] == []


@pytest.mark.parametrize("name", KNOWN)
def test_a_misconception_is_described(name):
    one = KNOWN[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.name)
    assert one.kind in ("misconception", "slip", "gaming")
    assert one.title
    assert not one.title.endswith(".")
    assert one.overlaps <= set(KNOWN) - {name}
    if one.kind == "misconception":
        assert one.notebook in NOTEBOOKS
        assert one.believed.endswith(".")
        assert one.true.endswith(".")
    if one.source:
        assert one.source.startswith("https://")


def test_no_name_stands_in_two_rows():
    with FILE.open(encoding="utf-8", newline="") as file:
        names = collections.Counter(row["name"] for row in csv.DictReader(file))
    assert [name for name, rows in names.items() if rows > 1] == []


def test_no_two_misconceptions_are_told_alike():
    for words in ("title", "believed", "true"):
        told = [getattr(one, words) for one in KNOWN.values() if getattr(one, words)]
        assert len(set(told)) == len(told), words


def test_overlaps_count_in_both_directions():
    assert "one-block-is-the-grid" in KNOWN["missing-guard"].overlaps
    assert "missing-guard" in KNOWN["one-block-is-the-grid"].overlaps


def test_what_may_be_true_of_any_code_is_never_a_wrong_option():
    assert all(name in KNOWN[other].overlaps for name in ("zero-never-happens",) for other in KNOWN if other != name)
    assert "forward-and-backward-alike" not in KNOWN["zero-never-happens"].overlaps
