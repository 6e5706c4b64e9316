"""Show results as tables of text, in a terminal and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

# MathJax looks for no formulas inside of elements of these classes: $ is a price here.
_LITERAL = "tex2jax_ignore mathjax_ignore"


class Shown:
    """A value whose `repr` is its `str`. A dataclass that inherits this is declared
    with repr=False.
    """

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """Rows of text under a title and headings, both of which may be missing; `notes`
    stand below as sentences.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()

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
            shown = html.escape(self.title)
            title = f"<caption style='text-align:left'><b>{shown}</b></caption>"
        if self.headings:
            head = f"<thead>{_html_line(self.headings, 'th')}</thead>"
        body = "".join(_html_line(row, "td") for row in self.rows)
        table = f"<table class='{_LITERAL}'>{title}{head}<tbody>{body}</tbody></table>"
        begin = f"<p class='{_LITERAL}' style='max-width:48em;margin:0.2em 0'>"
        notes = "".join(f"{begin}{html.escape(note)}</p>" for note in self.notes)
        return table + notes


def _html_line(cells: Iterable[str], tag: str) -> str:
    begin = f"<{tag} style='text-align:left'>"
    shown = [f"{begin}{html.escape(cell)}</{tag}>" for cell in cells]
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
