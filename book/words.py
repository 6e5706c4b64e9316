"""A Sphinx extension: links words to the glossary and notebooks to each other, and
gives search all spellings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from labkit.lesson import notebook_files
from scripts.glossary import Word, glossary, of_page

_NOTEBOOK = re.compile(r"\b[Nn]otebooks? (\d\d)\b")
_SILENT = (
    nodes.reference,
    nodes.literal,
    nodes.title,
    nodes.literal_block,
    nodes.raw,
    nodes.term,
    nodes.target,
)

Link = Callable[[re.Match[str]], "nodes.reference | None"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the handlers with Sphinx."""
    app.connect("doctree-resolved", _link)
    # after furo has made its navigation
    app.connect("html-page-context", _level, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if docname == "glossary":
        _add_keywords(doctree, glossary())
    if docname == "glossary" or docname.startswith("reference/"):
        return
    notebooks = {
        path.name[:2]: f"notebooks/{path.stem}" for path in notebook_files.paths()
    }
    words = of_page(docname)
    forms = {form: word for word in words for form in (word.term, *word.also)}
    longest_first = "|".join(
        re.escape(form) for form in sorted(forms, key=len, reverse=True)
    )
    # A word may begin a sentence; an abbreviation is spelled one way.
    pattern = re.compile(rf"(?<![\w.-])(?:{longest_first})(?![\w-])", re.IGNORECASE)
    linked: set[str] = set()

    def to_word(match: re.Match[str]) -> nodes.reference | None:
        form = match[0] if match[0] in forms else match[0][0].lower() + match[0][1:]
        word = forms.get(form)
        if word is None or word.term in linked:
            return None
        linked.add(word.term)
        uri = f"{app.builder.get_relative_uri(docname, 'glossary')}#{word.anchor}"
        return _reference(match[0], uri, title=word.told, css="word")

    def to_notebook(match: re.Match[str]) -> nodes.reference | None:
        page = notebooks.get(match[1])
        uri = (
            app.builder.get_relative_uri(docname, page)
            if page and page != docname
            else ""
        )
        return _reference(match[0], uri) if uri else None

    for replace, expression in ((to_notebook, _NOTEBOOK), (to_word, pattern)):
        for text in [node for node in doctree.findall(nodes.Text) if not _inside(node)]:
            pieces = list(_pieces(str(text), expression, replace))
            if len(pieces) > 1 or not isinstance(pieces[0], nodes.Text):
                text.parent.replace(text, pieces)
    _add_keywords(doctree, [word for word in words if word.term in linked])


def _add_keywords(doctree: nodes.document, words: Iterable[Word]) -> None:
    """What search finds the page by, beside its text."""
    spellings = sorted({spelling for word in words for spelling in word.spellings})
    if spellings:
        doctree.insert(0, nodes.meta(name="keywords", content=", ".join(spellings)))


def _level(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Give the headings of the navigation a level, without which screen readers can't
    place them.
    """
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def _inside(node: nodes.Node) -> bool:
    """Whether a text stands where nothing is linked: in a link, a heading, code."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, _SILENT):
            return True
    return False


def _pieces(text: str, pattern: re.Pattern[str], replace: Link) -> Iterator[nodes.Node]:
    end = 0
    for match in pattern.finditer(text):
        link = replace(match)
        if link is not None:
            if match.start() > end:
                yield nodes.Text(text[end : match.start()])
            yield link
            end = match.end()
    if end < len(text) or not text:
        yield nodes.Text(text[end:])


def _reference(
    text: str, uri: str, *, title: str = "", css: str = ""
) -> nodes.reference:
    reference = nodes.reference(
        "", text, internal=True, refuri=uri, classes=[css] if css else []
    )
    if title:
        reference["reftitle"] = title
    return reference
