"""How results show themselves: values by their words in place of their fields, and
tables in text and in HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# of text that a row of a table takes at most, where its first cell can give way
_COLUMNS = 80
# MathJax looks for no formulas inside of elements of these classes.
_LITERAL = "tex2jax_ignore mathjax_ignore"


class Shown:
    """A value whose `repr` is its `str`. A dataclass that inherits this is declared
    with repr=False.
    """

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """Rows of text, all as long as the headings, under a title; `notes` stand below as
    sentences.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.headings, *self.rows] if self.headings else self.rows
        first, *others = [
            max(len(cell) for cell in column) for column in zip(*lines, strict=True)
        ]
        left = _COLUMNS - sum(others) - 2 * len(others)
        widths = [min(first, max(left, 20)), *others]
        text = [self.title] if self.title else []
        for line in lines:
            for row in _folded(line, widths[0]):
                cells = [
                    cell.ljust(width) for cell, width in zip(row, widths, strict=True)
                ]
                text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *self.notes])

    def _repr_html_(self) -> str:
        title = ""
        if self.title:
            bold = f"<b>{html.escape(self.title)}</b>"
            title = f"<caption style='text-align:left'>{bold}</caption>"
        head = f"<thead>{_line(self.headings, 'th')}</thead>" if self.headings else ""
        body = "".join(_line(row, "td") for row in self.rows)
        table = f"{title}{head}<tbody>{body}</tbody>"
        style = "max-width:48em;margin:0.2em 0"
        notes = "".join(
            f"<p class='{_LITERAL}' style='{style}'>{html.escape(note)}</p>"
            for note in self.notes
        )
        return f"<table class='{_LITERAL}'>{table}</table>{notes}"


class ShownAsTable(Shown):
    """A value shown as the table that its `table` makes, in text and in HTML."""

    def table(self) -> Table:
        """The value as a table."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _folded(row: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """A row whose first cell, where it is wider, goes on in rows of its own: behind a
    comma or a space, if it can.
    """
    cell, *others = row
    parts = re.findall(rf".{{1,{width}}}(?:(?<=[, ])|$)|.{{1,{width}}}", cell) or [""]
    parts = [part.strip() for part in parts]
    empty = [""] * len(others)
    return [
        (parts[0], *others),
        *((part, *empty) for part in parts[1:]),
    ]


def _line(cells: Iterable[str], tag: str) -> str:
    """A row of a table in HTML, of cells with a tag."""
    tagged = "".join(
        f"<{tag} style='text-align:left'>{html.escape(cell)}</{tag}>" for cell in cells
    )
    return f"<tr>{tagged}</tr>"
