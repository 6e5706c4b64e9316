"""Text that any terminal, page and figure shows as it is."""

from __future__ import annotations

import unicodedata


def printable(text: object, longest: int = 10**6, *, in_lines: bool = True) -> str:
    r"""Text without a character that moves the cursor, changes colors, turns others
    around or can't be seen: such a one is written as its code, such as \x1b.

    Tabs become spaces, and what is longer than `longest` characters is cut. Line breaks
    stay if it is shown `in_lines`.
    """
    shown = cut(str(text)[: longest + 1], longest).replace("\t", " ")
    kept = "\n" if in_lines else ""
    return "".join(c if c in kept or _is_seen(c) else _code(c) for c in shown)


def _is_seen(c: str) -> bool:
    """Whether a character is a letter, a mark, a number, a sign or any space."""
    return c.isprintable() or unicodedata.category(c) == "Zs"


def _code(c: str) -> str:
    return c.encode("unicode_escape").decode()


def cut(words: str, longest: int) -> str:
    """At most `longest` characters of a text, up to the end of a word where there is
    one.
    """
    if len(words) <= longest:
        return words
    head = words[: longest - 3]
    if not words[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."
