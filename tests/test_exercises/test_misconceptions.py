"""Every wrong answer has its misconception, and every misconception is one that wrong
answers show.
"""

import collections
import importlib
import re

from exercises.misconceptions import misconceptions
from tests.helpers import notebook_paths

NOTEBOOKS = [path.name[:2] for path in notebook_paths()]
KNOWN = misconceptions()


def wrong_of(notebook):
    return importlib.import_module(f"exercises.nb{notebook}.wrong_answers").WRONG


def test_each_wrong_answer_has_a_misconception_of_the_list():
    for notebook in NOTEBOOKS:
        for number, answers in wrong_of(notebook).items():
            names = [name for *_, name in answers]
            assert set(names) <= set(KNOWN), number


def test_each_misconception_is_behind_two_wrong_answers_or_more():
    every = [answers for n in NOTEBOOKS for answers in wrong_of(n).values()]
    used = collections.Counter(name for answers in every for *_, name in answers)
    assert [name for name in KNOWN if used[name] < 2] == []


def test_each_misconception_is_described():
    for name, described in KNOWN.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert described.kind in ("misconception", "slip", "gaming"), name
        assert re.fullmatch(r".+[^.]", described.title), name
        assert described.overlaps <= set(KNOWN) - {name}
        assert not described.source or described.source.startswith("https://"), name
        if described.kind == "misconception":
            assert described.notebook in NOTEBOOKS, name
            assert described.believed.endswith("."), name
            assert described.true.endswith("."), name


def test_no_two_misconceptions_are_told_alike():
    for words in ("title", "believed", "true"):
        texts = [getattr(described, words) for described in KNOWN.values()]
        filled = [text for text in texts if text]
        assert len(set(filled)) == len(filled), words
