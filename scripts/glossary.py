"""The words of docs/glossary.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from labkit.core.paths import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
_ENTRY = re.compile(
    r"^- \*\*(?P<term>[^*]+)\*\*(?: \((?:also (?P<also>[^);]+))?(?:; )?(?:in"
    r" (?P<only>[\d, ]+))?\))?: (?P<meaning>.+)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Word:
    """A word of the glossary, its other forms, the notebooks that use it so (empty:
    all), its meaning in Markdown.
    """

    term: str
    also: tuple[str, ...]
    only: tuple[str, ...]
    meaning: str

    @property
    def anchor(self) -> str:
        """The word's anchor on the glossary's page."""
        return "word-" + re.sub(r"\W+", "-", self.term.lower()).strip("-")

    @property
    def spellings(self) -> set[str]:
        """What a reader may type to find it: the single words of each form, and a
        hyphen's two halves as one word.
        """
        forms = " ".join((self.term, *self.also)).lower()
        return set(re.findall(r"\w+", forms)) | {
            f for h in ("", "_") for f in forms.replace("-", h).split()
        }

    @property
    def told(self) -> str:
        """What it means, without Markdown."""
        return (
            re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", self.meaning)
            .replace("`", "")
            .replace("*", "")
        )


def glossary(path: Path = GLOSSARY) -> list[Word]:
    """The glossary's words, sorted."""
    matches = _ENTRY.finditer(path.read_text(encoding="utf-8"))
    words = [
        Word(m["term"], _listed(m["also"]), _listed(m["only"]), m["meaning"])
        for m in matches
    ]
    return sorted(words, key=lambda word: word.term.lower())


def of_page(page: str) -> list[Word]:
    """The words that have their meaning of the glossary on a page such as
    "notebooks/04_why_is_my_kernel_waiting".
    """
    number = page.removeprefix("notebooks/")[:2]
    return [word for word in glossary() if not word.only or number in word.only]


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()
