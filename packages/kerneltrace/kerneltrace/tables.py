"""How a terminal and a notebook show results: values by their words instead of their
fields, and tables of text.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from kerneltrace.arguments import cut

# MathJax looks for no formulas inside of elements of these classes: $ is a price here.
LITERAL = "tex2jax_ignore mathjax_ignore"
_HIDDEN = {"Cf": "", "Cc": "�", "Cs": "�"}


def plain(text: str, longest: int = 20_000) -> str:
    """Text that any page can show: cut, and without characters that nobody sees or that
    turn others around.
    """
    shown = cut(str(text)[: longest + 1], longest).replace("\t", " ")
    return "".join(
        c if c == "\n" else _HIDDEN.get(unicodedata.category(c), c) for c in shown
    )


def as_html(text: str) -> str:
    """Text for HTML that shows it as it is; the element around it needs the class
    `LITERAL`.
    """
    return html.escape(plain(text))


class Shown:
    """A value whose `repr` is its `str`. A dataclass that inherits this is declared
    with repr=False.
    """

    def __repr__(self) -> str:
        return plain(str(self), longest=10**6)


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """Rows of text under a title and headings, both of which may be missing; `notes`
    stand below as sentences.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()
    _cell = staticmethod(as_html)

    def __str__(self) -> str:
        lines = [self.headings, *self.rows] if self.headings else list(self.rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [
                cell.ljust(width) for cell, width in zip(line, widths, strict=True)
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *self.notes])

    def _repr_html_(self) -> str:
        title = head = ""
        if self.title:
            shown = as_html(self.title)
            title = f"<caption style='text-align:left'><b>{shown}</b></caption>"
        if self.headings:
            head = f"<thead>{self._line(self.headings, 'th')}</thead>"
        body = "".join(self._line(row, "td") for row in self.rows)
        table = f"<table class='{LITERAL}'>{title}{head}<tbody>{body}</tbody></table>"
        begin = f"<p class='{LITERAL}' style='max-width:48em;margin:0.2em 0'>"
        notes = "".join(f"{begin}{self._cell(note)}</p>" for note in self.notes)
        return table + notes

    def _line(self, cells: Iterable[str], tag: str) -> str:
        begin = f"<{tag} style='text-align:left'>"
        shown = [f"{begin}{self._cell(cell)}</{tag}>" for cell in cells]
        return f"<tr>{''.join(shown)}</tr>"


class ShownAsTable(Shown):
    """A value shown as the table that its `table` makes, in text and in HTML."""

    def table(self) -> Table:
        """The value as a table."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
