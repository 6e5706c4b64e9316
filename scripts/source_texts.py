"""Bring the texts of the published rows' sources into build/sources. Needs a network.

`make nightly` holds each row's figures against the text of its source
(tests/test_measure/test_published_sources.py). Usage: python -m scripts.source_texts

A text that is there is kept. PDFs and pictures have no text: put it beside the others
by hand, in the file that this program names.
"""

from __future__ import annotations

import html.parser
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from labkit.core.data_table import TableRow, read_table
from labkit.core.errors import DataError
from labkit.core.paths import PUBLISHED, ROOT

FOLDER = ROOT / "build" / "sources"
_SHORT = 7  # letters of a commit in a file's name: rows give 7 to 40
_SECONDS = 60
_REPOSITORY = r"(?P<repository>[\w.-]+/[\w.-]+)"
_COMMIT = r"(?P<commit>[0-9a-f]{7,40})"
_PATH = r"(?P<path>(?:[\w.-]+/)*[\w.-]+\.\w+)"
# A file of a repository at a commit, as an address and as the tables' sources say it.
_FILES = (
    re.compile(rf"https://github\.com/{_REPOSITORY}/blob/{_COMMIT}/(?P<path>\S+)"),
    re.compile(rf"{_REPOSITORY},? {_PATH}[^()]*(?:\(historical\) )?\(commit {_COMMIT}"),
    re.compile(rf"{_PATH} \({_REPOSITORY}, commit {_COMMIT}\)"),
)
_THREADS = re.compile(rf"{_REPOSITORY},? (?P<kind>pull request|issue) (?P<number>\d+)")
_PAPERS = re.compile(r"(?:arxiv\.org/abs/|arXiv )(?P<paper>\d{4}\.\d{4,5})")
_PAGES = re.compile(r"https://[^\s;,)]+")
_KINDS = {"pull request": "pull", "issue": "issues"}
_WITHOUT_TEXT = (".pdf", ".png")


@dataclass(frozen=True)
class Source:
    """A page or a file: the name of its text in FOLDER, and where that comes from."""

    name: str
    addresses: tuple[str, ...]  # each holds a part of the text

    @property
    def path(self) -> Path:
        """The file of the text."""
        return FOLDER / f"{self.name}.txt"

    @property
    def has_text(self) -> bool:
        """Whether a program can read it: not a PDF, not a picture."""
        return not self.name.endswith(_WITHOUT_TEXT)


def of_row(row: Mapping[str, str]) -> list[Source]:
    """The sources that a published row names, none where it names no address."""
    link = row.get("link", "")
    named = link if link.startswith("https://") else row.get("source", "")
    files = [file for pattern in _FILES for file in pattern.finditer(named)]
    if files:
        return [_file(match) for match in files]
    threads = [_thread(match) for match in _THREADS.finditer(named)]
    papers = [_paper(match["paper"]) for match in _PAPERS.finditer(named)]
    pages = [
        _page(address)
        for address in _PAGES.findall(named)
        if "arxiv.org" not in address
    ]
    return [*threads, *papers, *pages]


def _file(match: re.Match[str]) -> Source:
    place = f"github.com/{match['repository']}"
    path = match["path"].rstrip(",")
    return Source(
        f"{place}/{match['commit'][:_SHORT]}/{path}",
        (f"https://{place}/raw/{match['commit']}/{path}",),
    )


def _thread(match: re.Match[str]) -> Source:
    kind = _KINDS[match["kind"]]
    return _page(f"https://github.com/{match['repository']}/{kind}/{match['number']}")


def _paper(number: str) -> Source:
    return Source(
        f"arxiv.org/abs/{number}",
        (f"https://arxiv.org/abs/{number}", f"https://arxiv.org/html/{number}"),
    )


def _page(address: str) -> Source:
    commit = re.fullmatch(rf"(https://github\.com/.+/commit/){_COMMIT}", address)
    if commit:
        name = commit[1] + commit["commit"][:_SHORT]
        return Source(_name(name), (f"{address}.patch",))
    return Source(_name(address), (address,))


def _name(address: str) -> str:
    name = address.removeprefix("https://").rstrip("/.")
    return quote(name, safe="/-_.%")


class _Text(html.parser.HTMLParser):
    """The words of a page: a line for each block and each row of a table."""

    _LINES = ("p", "div", "tr", "li", "br", "pre", "h1", "h2", "h3", "h4", "section")
    _UNSEEN = ("script", "style")

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unseen += tag in self._UNSEEN
        self.parts.append("\n" if tag in self._LINES else " ")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in self._UNSEEN

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(data)


def words_of(page: str) -> str:
    """The text of a page in HTML, the comments of a plot in SVG; any other as it is."""
    if "<svg" in page[:1000]:
        return "\n".join(re.findall("<!--(.*?)-->", page))
    if not re.match(r"\s*<(!doctype|html)", page, re.IGNORECASE):
        return page
    reader = _Text()
    reader.feed(page)
    return "".join(reader.parts)


def published_rows() -> Iterator[tuple[str, TableRow]]:
    """(name of the table, row) of all published tables."""
    for folder in PUBLISHED:
        for path in sorted(folder.glob("*.csv")):
            for row in read_table(path, TableRow, DataError):
                yield path.stem, row


def bring(source: Source) -> str:
    """Store a source's text. Returns why that didn't work, or nothing."""
    if not source.has_text:
        return f"has no text: save it by hand as {source.path}"
    texts = []
    failure = ""
    for address in source.addresses:
        try:
            with urllib.request.urlopen(address, timeout=_SECONDS) as reply:
                page = reply.read().decode("utf-8", errors="replace")
            texts.append(words_of(page))
        except (OSError, ValueError) as error:
            failure = f"{address}: {error}"
    if texts:
        source.path.parent.mkdir(parents=True, exist_ok=True)
        source.path.write_text("\n".join(texts), encoding="utf-8")
    return failure


def main() -> int:
    """Bring what is missing; say what couldn't be brought."""
    sources = {
        source.name: source for _, row in published_rows() for source in of_row(row)
    }
    missing = [source for source in sources.values() if not source.path.exists()]
    failures = {source.name: bring(source) for source in missing}
    for name, failure in failures.items():
        if failure:
            print(f"{name}: {failure}")
    here = sum(source.path.exists() for source in sources.values())
    print(f"{here} of {len(sources)} texts are in {FOLDER}.")
    return 0 if here == len(sources) else 1


if __name__ == "__main__":
    sys.exit(main())
