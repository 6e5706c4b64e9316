"""The bank of questions: wrong answers that are short enough to be read, each with what is wrong and what is not.

Every piece of code here is a wrong answer of an exercise, or its solution: tests run each through the exercise's check.
"""

from __future__ import annotations

import collections
import functools
import importlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from exercises import answer_text
from exercises.answer_text import Wrong
from exercises.misconceptions import Misconception, misconceptions
from labkit.core.errors import DataError, nearest
from labkit.core.paths import EXERCISES

_OPTIONS = 4
_SHORT = 10  # lines of each of four programs that are read side by side


@dataclass(frozen=True)
class Card:
    """A wrong answer's code, what is wrong with it among four options, and what its check has to say.

    `place` is the answer's place in the list of its exercise.
    """

    number: str
    place: int
    code: str
    misconception: Misconception
    options: tuple[str, ...]
    answer: object
    words: str

    @property
    def right(self) -> int:
        """Which option is true."""
        return self.options.index(self.misconception.title)

    @property
    def question(self) -> str:
        """The question that the code is shown with."""
        return _asked("What is wrong in this answer to exercise", self.number)

    def __str__(self) -> str:
        reasons = "\n".join(f"{letter}. {option}" for letter, option in zip("abcd", self.options, strict=True))
        return f"{self.question}\n{self.code}\n{reasons}"


@dataclass(frozen=True)
class Choice:
    """Four answers to an exercise, one of which is right; for the others, what is wrong."""

    number: str
    codes: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def right(self) -> int:
        """Which answer is right: the one without a reason against it."""
        return self.reasons.index("")

    @property
    def question(self) -> str:
        """The question that the four are shown with."""
        return _asked("Which is the right answer to exercise", self.number)


def _asked(words: str, number: str) -> str:
    task = answer_text.task(number)
    return f"{words} {number}?" + (f" It asks for: {task}" if task else "")


def notebooks() -> list[str]:
    """The notebooks that have wrong answers, in order: "00", "01", ..."""
    return sorted(path.parent.name[2:] for path in EXERCISES.glob("nb*/wrong_answers.py"))


def cards(notebook: str, seed: int = 0) -> list[Card]:
    """The cards of a notebook, the same for the same seed: first one of each misconception, then the others.

    None where this copy of the workbook has no wrong answers. Raises DataError for a notebook that doesn't exist.
    """
    known, found = notebooks(), []
    if not known:
        return []
    if notebook not in known:
        raise DataError(f"There is no notebook {notebook!r}; did you mean {', '.join(nearest(notebook, known))}?")
    for number, place, code in _texts(notebook):
        answer, words, name = _wrong(notebook)[number][place]
        draw = random.Random(f"{seed} {number} {place}")
        options = _options(notebook, number, misconceptions()[name], draw)
        found.append(Card(number, place, code, misconceptions()[name], options, answer, words))
    random.Random(f"{seed} {notebook}").shuffle(found)
    turns: dict[str, int] = collections.Counter()
    order = []
    for card in found:
        order.append((turns[card.misconception.name], card))
        turns[card.misconception.name] += 1
    return [card for _, card in sorted(order, key=lambda turn: turn[0])]


def choices(notebook: str, seed: int = 0) -> list[Choice]:
    """One question for each exercise whose solution and three wrong answers are short and look alike."""
    found = []
    for number in _wrong(notebook):
        solution = answer_text.solution(number)
        wrong = [(code, name) for code, name in _like(notebook, number, solution)] if solution else []
        if solution and len(wrong) >= _OPTIONS - 1:
            draw = random.Random(f"{seed} {number}")
            picked = [*draw.sample(wrong, _OPTIONS - 1), (solution, "")]
            draw.shuffle(picked)
            reasons = tuple(misconceptions()[name].title if name else "" for _, name in picked)
            found.append(Choice(number, tuple(code for code, _ in picked), reasons))
    return found


def _like(notebook: str, number: str, solution: str) -> list[tuple[str, str]]:
    """The wrong answers that begin as the solution does, none of them much longer: (code, misconception)."""
    head = [line for line in solution.splitlines() if line.startswith(("def ", "@"))]
    texts = [(code, _wrong(notebook)[at][place][2]) for at, place, code in _texts(notebook) if at == number]
    return [
        (code, name)
        for code, name in texts
        if [line for line in code.splitlines() if line.startswith(("def ", "@"))] == head
        and max(len(code.splitlines()), len(solution.splitlines())) <= _SHORT
    ]


def _options(notebook: str, number: str, true: Misconception, draw: random.Random) -> tuple[str, ...]:
    """The true misconception's title and three of others, which can't be true of the same code.

    They come from the same exercise first, then from its notebook, then from the notebooks beside it.
    """
    titles: list[str] = []
    everyone = sorted(notebooks(), key=lambda other: abs(int(other) - int(notebook)))
    for group in itertools.chain([_names(notebook, number)], map(_names, everyone)):
        names = sorted(name for name in group if name != true.name and name not in true.overlaps)
        fresh = [title for name in names if (title := misconceptions()[name].title) not in titles]
        titles += draw.sample(fresh, min(len(fresh), _OPTIONS - 1 - len(titles)))
        if len(titles) == _OPTIONS - 1:  # other notebooks' wrong answers take seconds to import
            break
    options = [true.title, *titles]
    draw.shuffle(options)
    return tuple(options)


def _names(notebook: str, number: str = "") -> set[str]:
    """The misconceptions behind the cards of a notebook, or of one of its exercises."""
    texts = [(at, place) for at, place, _ in _texts(notebook) if at == number or not number]
    return {_wrong(notebook)[at][place][2] for at, place in texts}


@functools.cache
def _texts(notebook: str) -> Sequence[tuple[str, int, str]]:
    """(exercise, place, code) of each wrong answer that becomes a card: no slips, and nothing that games the check."""
    wrong = _wrong(notebook)
    found = answer_text.texts(notebook, wrong)
    return [one for one in found if misconceptions()[wrong[one[0]][one[1]][2]].kind == "misconception"]


def _wrong(notebook: str) -> Wrong:
    return cast("Wrong", importlib.import_module(f"exercises.nb{notebook}.wrong_answers").WRONG)
