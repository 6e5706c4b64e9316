"""Make an Anki deck of all misconceptions and all cards, by genanki; a later deck
updates an earlier one.
"""

from __future__ import annotations

import argparse
import hashlib
from html import escape
from pathlib import Path
from typing import Any

from exercises import bank
from exercises.bank import Card
from exercises.misconceptions import Misconception, misconceptions
from labkit.core.own_folder import writing
from teaching.assignments import require
from teaching.exam import filled

# Anki knows decks and kinds of notes by such numbers: never change them
_DECK = 1_732_050_807
_MODEL = 1_414_213_562
# they speak of what was believed
_ANSWERS = ("It ", "They ", "Both ", "These ", "Only ", "Each ", "One ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file."""
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="a file that ends in .apkg"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the deck."""
    entries = notes()
    with writing(arguments.output):
        write(arguments.output, entries)
    print(
        f"{arguments.output} has {len(entries)} notes. Open it with Anki"
        " (File, Import)."
    )
    return 0


def notes() -> list[tuple[str, str, str, str]]:
    """(stable name, question, answer, notebook) of each note, questions and answers as
    HTML.
    """
    taught = [m for m in misconceptions().values() if m.kind == "misconception"]
    can_be_true = [m.name for m in taught if not m.true.startswith(_ANSWERS)]
    true = can_be_true[: len(taught) // 2]
    cards = [card for notebook in bank.notebooks() for card in bank.cards(notebook)]
    entries = [_of_misconception(m, m.name in true) for m in taught]
    return entries + [_of_card(card) for card in cards]


def _of_misconception(
    misconception: Misconception, is_true: bool
) -> tuple[str, str, str, str]:
    source = ""
    if misconception.source:
        source = f"<p><a href='{escape(misconception.source)}'>Source</a></p>"
    if is_true:
        claim = misconception.true
        answer = f"True. The opposite is often believed: {misconception.believed}"
    else:
        claim = misconception.believed
        answer = f"Not true. {misconception.true}"
    question = f"<p>True or not, and why?</p><p>{escape(claim)}</p>"
    return (
        f"misconception {misconception.name}",
        question,
        f"<p>{escape(answer)}</p>{source}",
        misconception.notebook,
    )


def _of_card(card: Card) -> tuple[str, str, str, str]:
    options = "".join(f"<li>{escape(option)}</li>" for option in card.options)
    question = f"<p>{escape(card.question)}</p><pre>{escape(card.code)}</pre>"
    answer = (
        f"<p><b>{escape(card.misconception.title)}.</b>"
        f" {escape(card.misconception.explanation)}</p>"
    )
    # a card whose code changes is another card
    name = hashlib.sha256(card.code.encode()).hexdigest()[:16]
    return (
        f"card {card.number} {name}",
        f"{question}<ol type='a'>{options}</ol>",
        answer,
        card.number[:2],
    )


def write(target: Path, found: list[tuple[str, str, str, str]]) -> None:
    """Write notes into an Anki package."""
    require("genanki")
    import genanki

    template = {
        "name": "Card",
        "qfmt": "{{Question}}",
        "afmt": "{{FrontSide}}<hr id='answer'>{{Answer}}",
    }
    fields = [{"name": "Question"}, {"name": "Answer"}]
    css = filled("anki.css")
    model: Any = genanki.Model(
        _MODEL, "GPU training workbook", fields=fields, templates=[template], css=css
    )
    deck: Any = genanki.Deck(_DECK, "GPU training workbook")
    for name, question, answer, notebook in found:
        note = genanki.Note(
            model,
            [question, answer],
            guid=genanki.guid_for(name),
            tags=[f"notebook-{notebook}"],
        )
        deck.add_note(note)
    genanki.Package(deck).write_to_file(str(target))
