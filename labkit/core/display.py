"""What a cell shows: values by their words instead of their fields, and
tables of text.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from kerneltrace import tables
from kerneltrace.tables import (  # offered from here too
    LITERAL as LITERAL,
    Shown as Shown,
    ShownAsTable as ShownAsTable,
    as_html as as_html,
    plain as plain,
)
from labkit.core.arguments import brief_repr as brief_repr, cut as cut
from labkit.core.errors import BadArgument
from labkit.core.parameters import checked

_LINK = re.compile(r"https://([^/\s]+)[^\s<>)]*[^\s<>).,:;]")
_CODE = re.compile(r"`([^`\n]+)`")


def linked_html(text: str) -> str:
    """What `as_html` makes of a text, with each https address as a link that shows its
    host, and `code` as such.
    """
    linked = _LINK.sub(r'<a href="\g<0>" target="_blank">\1</a>', as_html(text))
    return _CODE.sub(r"<code>\1</code>", linked)


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL; "signal 40" where it has none, as most
    real-time signals.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, repr=False)
class Note(Shown):
    """A sentence for the reader, shown as text."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:  # plain text would be broken in the middle of a word
        text = linked_html(self.text).replace("\n", "<br>")
        return f"<div class='{LITERAL}' style='max-width:48em'>{text}</div>"


@checked
@dataclass(frozen=True, repr=False)
class Table(tables.Table):
    """Rows of text under a title and headings, both of which may be missing; `notes`
    stand below as sentences.

    Raises BadArgument for rows of different lengths.
    """

    _cell = staticmethod(linked_html)

    def __post_init__(self) -> None:
        # Else text would lose cells, and HTML would shift them.
        lines = [self.headings, *self.rows] if self.headings else self.rows
        lengths = [len(line) for line in lines]
        if len(set(lengths)) > 1:
            raise BadArgument(
                "Expected rows to be as long as the headings and each other, got"
                f" {lengths[:20]} cells."
            )
