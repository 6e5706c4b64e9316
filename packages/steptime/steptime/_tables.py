"""What a terminal and a notebook show: values by their words instead of their fields,
and tables of text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

# in elements of these classes, a notebook looks for no formulas
_LITERAL = "tex2jax_ignore mathjax_ignore"


class Shown:
    """A value whose `repr` is its `str`. A dataclass that inherits this is declared
    with repr=False.
    """

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """Rows of text, as long as the headings, under a title that may be missing; `notes`
    stand below as sentences.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.headings, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [c.ljust(w) for c, w in zip(line, widths, strict=True)]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *self.notes])

    def _repr_html_(self) -> str:
        title = ""
        if self.title:
            bold = f"<b>{html.escape(self.title)}</b>"
            title = f"<caption style='text-align:left'>{bold}</caption>"
        body = "".join(_line(row, "td") for row in self.rows)
        begin = f"<p class='{_LITERAL}' style='max-width:48em;margin:0.2em 0'>"
        notes = "".join(f"{begin}{html.escape(note)}</p>" for note in self.notes)
        head = _line(self.headings, "th")
        rows = f"<thead>{head}</thead><tbody>{body}</tbody>"
        return f"<table class='{_LITERAL}'>{title}{rows}</table>{notes}"


def _line(cells: Iterable[str], tag: str) -> str:
    begin = f"<{tag} style='text-align:left'>"
    row = "".join(f"{begin}{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{row}</tr>"
