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
        lines = [*([self.headings] if self.headings else []), *self.rows]
        first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
        widths = [
            min(first, max(_COLUMNS - sum(others) - 2 * len(others), 20)),
            *others,
        ]
        folded = [part for line in lines for part in _folded(line, widths[0])]
        text = [
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in folded
        ]
        return "\n".join([*([self.title] if self.title else []), *text, *self.notes])

    def _repr_html_(self) -> str:
        title = (
            "<caption"
            f" style='text-align:left'><b>{html.escape(self.title)}</b></caption>"
            if self.title
            else ""
        )
        head = f"<thead>{_line(self.headings, 'th')}</thead>" if self.headings else ""
        body = "".join(_line(row, "td") for row in self.rows)
        notes = "".join(
            f"<p class='{_LITERAL}' style='max-width:48em;margin:0.2em"
            f" 0'>{html.escape(note)}</p>"
            for note in self.notes
        )
        return (
            "<table"
            f" class='{_LITERAL}'>{title}{head}<tbody>{body}</tbody></table>{notes}"
        )


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
    parts = re.findall(rf".{{1,{width}}}(?:(?<=[, ])|$)|.{{1,{width}}}", row[0]) or [""]
    return [
        (parts[0], *row[1:]),
        *((part, *[""] * (len(row) - 1)) for part in parts[1:]),
    ]


def _line(cells: Iterable[str], tag: str) -> str:
    return (
        "<tr>"
        + "".join(
            f"<{tag} style='text-align:left'>{html.escape(cell)}</{tag}>"
            for cell in cells
        )
        + "</tr>"
    )
