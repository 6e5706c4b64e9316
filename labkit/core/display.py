"""What a cell shows: values by their words instead of their fields, and
tables of text.
"""

from __future__ import annotations

import html
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.core.arguments import brief_repr as brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import checked
from labkit.core.text import cut as cut, printable

# MathJax looks for no formulas inside of elements of these classes: $ is a price here.
LITERAL = "tex2jax_ignore mathjax_ignore"
_LINK = re.compile(r"https://[^/\s]+[^\s<>)]*[^\s<>).,:;]")
_FILE = r"(?:.*?/)??((?:[^/]+/)?[^/]+)"  # and the folder that it is in
# Addresses that say in a fixed place what the page is: a pattern, and its words.
_PAGES = (
    (rf"github\.com/([^/]+/[^/]+)/(?:blob|tree|raw)/[^/]+/{_FILE}", r"\1, \2"),
    (rf"raw\.githubusercontent\.com/([^/]+/[^/]+)/[^/]+/{_FILE}", r"\1, \2"),
    (r"github\.com/([^/]+/[^/]+)/pull/(\d+).*", r"\1, pull request \2"),
    (r"github\.com/([^/]+/[^/]+)/issues/(\d+).*", r"\1, issue \2"),
    (r"github\.com/([^/]+/[^/]+)/discussions/(\d+).*", r"\1, discussion \2"),
    (r"github\.com/([^/]+/[^/]+)/commit/([0-9a-f]{7}).*", r"\1, commit \2"),
    (r"arxiv\.org/(?:abs|pdf|html)/(\d+\.\d+).*", r"arXiv:\1"),
    (r"(?:dx\.)?doi\.org/(.+)", r"doi:\1"),
)
_LONGEST_HTML = 20_000  # characters of a text on a page
_LONGEST_LINK = 60  # characters of what a link says
_LONGEST_PART = 40  # characters of the last part of a path
_CODE = re.compile(r"`([^`\n]+)`")


def as_html(text: str) -> str:
    """Text for HTML that shows it as it is; the element around it needs the class
    `LITERAL`.
    """
    return html.escape(printable(text, _LONGEST_HTML))


def linked_html(text: str) -> str:
    """What `as_html` makes of a text, with each https address as a link that says which
    page it is, and `code` as such.
    """
    linked = _LINK.sub(_link, as_html(text))
    return _CODE.sub(r"<code>\1</code>", linked)


def _link(match: re.Match[str]) -> str:
    """The link to an address that stands in HTML's text."""
    address = match[0]
    page = as_html(page_name(html.unescape(address)))
    return f'<a href="{address}" target="_blank">{page}</a>'


def page_name(address: str) -> str:
    """What the page at an https address is, in a few words: repository and file, the
    number of a paper, or the host and the last part of the path.
    """
    place = re.sub(r"[?#].*", "", address.removeprefix("https://")).rstrip("/")
    for pattern, words in _PAGES:
        if match := re.fullmatch(pattern, place):
            return cut(match.expand(words), _LONGEST_LINK)
    host, *folders = re.sub(r"/index\.\w+$", "", place).split("/")
    if host == "github.com":
        return cut("/".join(folders[:2]) or host, _LONGEST_LINK)
    last = re.sub(r"\.(html?|pdf|php|md)$", "", folders[-1]) if folders else ""
    return f"{host}, {cut(last, _LONGEST_PART)}" if last else host


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL; "signal 40" where it has none, as most
    real-time signals.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Shown:
    """A value whose `repr` is its `str`. A dataclass that inherits this is declared
    with repr=False.
    """

    def __repr__(self) -> str:
        return printable(str(self))


@dataclass(frozen=True, repr=False)
class Note(Shown):
    """A sentence for the reader, shown as text."""

    text: str

    def __str__(self) -> str:
        return printable(self.text)

    def _repr_html_(self) -> str:  # plain text would be broken in the middle of a word
        text = linked_html(self.text).replace("\n", "<br>")
        return f"<div class='{LITERAL}' style='max-width:48em'>{text}</div>"


@checked
@dataclass(frozen=True, repr=False)
class Table(Shown):
    """Rows of text under a title and headings, both of which may be missing; `notes`
    stand below as sentences.

    Raises BadArgument for rows of different lengths.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Else text would lose cells, and HTML would shift them.
        lengths = [len(line) for line in self._lines()]
        if len(set(lengths)) > 1:
            raise BadArgument(
                "Expected rows to be as long as the headings and each other, got"
                f" {lengths[:20]} cells."
            )

    def _lines(self) -> list[tuple[str, ...]]:
        return [self.headings, *self.rows] if self.headings else list(self.rows)

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [
                cell.ljust(width) for cell, width in zip(line, widths, strict=True)
            ]
            text.append("  ".join(cells).rstrip())
        return printable("\n".join([*text, *self.notes]))

    def _repr_html_(self) -> str:
        title = ""
        if self.title:
            shown = as_html(self.title)
            title = f"<caption style='text-align:left'><b>{shown}</b></caption>"
        head = ""
        if self.headings:
            head = f"<thead>{_html_row(self.headings, 'th')}</thead>"
        body = "".join(_html_row(row, "td") for row in self.rows)
        table = f"<table class='{LITERAL}'>{title}{head}<tbody>{body}</tbody></table>"
        begin = f"<p class='{LITERAL}' style='max-width:48em;margin:0.2em 0'>"
        notes = "".join(f"{begin}{linked_html(note)}</p>" for note in self.notes)
        return table + notes


def _html_row(cells: Iterable[str], tag: str) -> str:
    begin = f"<{tag} style='text-align:left'>"
    shown = [f"{begin}{linked_html(cell)}</{tag}>" for cell in cells]
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
