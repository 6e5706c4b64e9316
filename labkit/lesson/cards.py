"""What is wrong here? A wrong answer's code with four reasons, one of which is true;
then what its check says of it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from labkit.core.display import LITERAL, Note, Shown, as_html
from labkit.core.parameters import Count, checked
from labkit.core.results import NotebookName
from labkit.lesson.checks import judged
from labkit.lesson.live import publish_question, spoken_html
from labkit.lesson.notebook import attended

_STYLE = (
    "<style>.labkit-option{width:auto;max-width:48em;height:auto;white-space:normal;"
    "text-align:left}</style>"
)


@checked
def cards(notebook: NotebookName, seed: int = 0, count: Count = 3) -> Cards | Note:
    """So many cards of a notebook ("04"); another `seed` draws others. Raises
    BadArgument for an unknown notebook.
    """
    bank: Any = importlib.import_module("exercises.bank")
    drawn = bank.cards(notebook, seed)[:count]
    if not drawn:
        return Note(
            "There are no cards: they are made of short wrong answers, and there are"
            " none here."
        )
    return Cards(drawn) if attended() else Note("\n\n".join(map(str, drawn)))


class Cards(Shown):
    """Cards one after another: `buttons` are the four reasons and the way on, `told` is
    what the reader is told.

    The notebook keeps the questions without their answers.
    """

    def __init__(self, cards: Sequence[Any]) -> None:
        import ipywidgets as widgets

        self.cards = cards
        self.right = 0
        self._at = 0
        self.asked = widgets.HTML()
        self.told = widgets.HTML()
        self.buttons = [widgets.Button(description="Next card") for _ in range(5)]
        for i, button in enumerate(self.buttons):
            button.add_class("labkit-option")
            button.on_click(functools.partial(self._answer, i) if i < 4 else self._next)
        self.box = widgets.VBox(
            [self.asked, *self.buttons[:4], self.told, self.buttons[4]]
        )
        self._ask()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.cards))

    def _ask(self) -> None:
        card = self.cards[self._at]
        head = f"Card {self._at + 1} of {len(self.cards)}. {card.question}"
        self.asked.value = _STYLE + spoken_html(head) + _code(card.code)
        self.told.value = ""
        self.buttons[4].layout.display = "none"
        for option, button in zip(card.options, self.buttons, strict=False):
            button.description = option
            button.button_style = ""
            button.icon = ""

    def _answer(self, chosen: int, _button: object) -> None:
        """Mark the true reason and the chosen one, explain, and let the check judge the
        answer.
        """
        # answered already; a disabled button would be pale, and lose the keyboard's
        # focus
        if self.told.value:
            return
        card = self.cards[self._at]
        last = self._at == len(self.cards) - 1
        self.buttons[chosen].button_style = "danger"
        self.buttons[chosen].icon = "times"
        self.buttons[card.right].button_style = "success"
        self.buttons[card.right].icon = "check"
        if chosen == card.right:
            self.right += 1
            verdict = "Right."
        else:
            verdict = f"No: {card.misconception.title}."
        self.told.value = spoken_html(f"{verdict} {card.misconception.explanation}")
        message = judged(card.number, card.answer_here()).message  # after some seconds
        self.told.value += spoken_html(f"The check says: {message}")
        if last:
            self.told.value += spoken_html(f"{self.right} of {len(self.cards)} right.")
        self.buttons[4].layout.display = "none" if last else ""

    def _next(self, _button: object) -> None:
        self._at += 1
        self._ask()

    def _ipython_display_(self) -> None:
        questions = "".join(_code(str(card)) for card in self.cards)
        publish_question(self.box, questions, str(self))


def _code(text: str) -> str:
    # JupyterLab breaks such text inside words
    wrap = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
    style = f"margin:0.5em 0;line-height:1.4;{wrap}"
    return f"<pre class='{LITERAL}' style='{style}'>{as_html(text)}</pre>"
