"""The bank of questions: wrong answers that are short enough to be read, each with what
is wrong and what is not.

Every piece of code here is a wrong answer of an exercise: tests run each through the
exercise's check.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib
import random
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from exercises import answer_text
from exercises.answer_text import Wrong
from exercises.misconceptions import Misconception, misconceptions
from labkit.core.arguments import nearest
from labkit.core.data_table import read_table
from labkit.core.errors import BadArgument
from labkit.core.paths import EXERCISES

# the answers that become cards, each with the misconceptions of its wrong options
_CARDS = EXERCISES / "cards.csv"


@dataclass(frozen=True)
class Card:
    """A wrong answer's code, what is wrong with it among four `faults`, and what its
    check has to say.

    `place` is the answer's place in the list of its exercise.
    """

    number: str
    place: int
    code: str
    misconception: Misconception
    faults: tuple[Misconception, ...]
    answer: object
    words: str

    def answer_here(self) -> object:
        """The answer; a number with the rates of this machine, where those in its file
        are made up.
        """
        wrong_answers = _wrong_answers(self.number[:2])
        if callable(self.answer) or not hasattr(wrong_answers, "shown_values"):
            return self.answer
        names: dict[str, object] = wrong_answers.shown_values()
        exec(self.code, names)
        return names[answer_text.solution_name(self.number)]

    @property
    def options(self) -> tuple[str, ...]:
        """The titles of the four."""
        return tuple(fault.title for fault in self.faults)

    @property
    def right(self) -> int:
        """Which option is true."""
        return self.faults.index(self.misconception)

    @property
    def replies(self) -> tuple[str, ...]:
        """What is said to each option."""
        heads = {True: "Right.", False: "No: this code doesn't do that."}
        return tuple(
            f"{heads[fault == self.misconception]} {fault.explanation}"
            for fault in self.faults
        )

    @property
    def question(self) -> str:
        """The question that the code is shown with."""
        return (
            f"What is wrong in this answer to exercise {self.number}? It asks for:"
            f" {answer_text.task(self.number)}"
        )

    def __str__(self) -> str:
        reasons = "\n".join(
            f"{letter}. {option}"
            for letter, option in zip("abcd", self.options, strict=True)
        )
        return f"{self.question}\n{self.code}\n{reasons}"


def notebooks() -> list[str]:
    """The notebooks that have wrong answers, in order: "00", "01", ..."""
    return sorted(
        path.parent.name[2:] for path in EXERCISES.glob("nb*/wrong_answers.py")
    )


def cards(notebook: str, seed: int = 0) -> list[Card]:
    """The cards of a notebook, the same for the same seed: the exercises in turn, with
    misconceptions that haven't come yet before the others.

    None where this copy of the workbook has no wrong answers. Raises BadArgument for a
    notebook that doesn't exist.
    """
    numbers = notebooks()
    deck = []
    if not numbers:
        return []
    if notebook not in numbers:
        raise BadArgument(
            f"There is no notebook {notebook!r}; did you mean"
            f" {', '.join(nearest(notebook, numbers))}?"
        )
    for number, place, code in _texts(notebook):
        if wrong := _listed().get((number, mark(code))):
            answer, words, name = _wrong(notebook)[number][place]
            faults = [misconceptions()[fault] for fault in (name, *wrong)]
            random.Random(f"{seed} {number} {place}").shuffle(faults)
            deck.append(
                Card(
                    number,
                    place,
                    code,
                    misconceptions()[name],
                    tuple(faults),
                    answer,
                    words,
                )
            )
    random.Random(f"{seed} {notebook}").shuffle(deck)
    return _in_turn(deck)


def _in_turn(deck: Sequence[Card]) -> list[Card]:
    """The cards so that those at the front have few exercises and few misconceptions in
    common.
    """
    left = list(deck)
    drawn: list[Card] = []
    exercises: dict[str, int] = collections.Counter()
    beliefs: dict[str, int] = collections.Counter()
    while left:
        card = min(
            left,
            key=lambda each: (
                exercises[each.number],
                beliefs[each.misconception.name],
            ),
        )
        left.remove(card)
        drawn.append(card)
        exercises[card.number] += 1
        beliefs[card.misconception.name] += 1
    return drawn


def mark(code: str) -> str:
    """By what cards.csv knows a wrong answer's code."""
    return hashlib.sha256(code.encode()).hexdigest()[:12]


@functools.cache
def _listed() -> dict[tuple[str, str], list[str]]:
    """(exercise, mark of the code) -> the misconceptions of a card's wrong options."""
    return dict(
        read_table(
            _CARDS, lambda row: ((row["exercise"], row["code"]), row["wrong"].split())
        )
    )


@functools.cache
def _texts(notebook: str) -> Sequence[tuple[str, int, str]]:
    """(exercise, place, code) of each wrong answer that becomes a card: no slips, and
    nothing that games the check.
    """
    wrong = _wrong(notebook)
    texts = []
    for number, place, code in answer_text.texts(notebook, wrong):
        name = wrong[number][place][2]
        if misconceptions()[name].kind == "misconception":
            texts.append((number, place, code))
    return texts


def _wrong(notebook: str) -> Wrong:
    return cast("Wrong", _wrong_answers(notebook).WRONG)


def _wrong_answers(notebook: str) -> types.ModuleType:
    return importlib.import_module(f"exercises.nb{notebook}.wrong_answers")
