"""A Sphinx extension for who comes from elsewhere: a description of each page, a link
to edit it, and a site map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from labkit.core.paths import ROOT
from scripts.notebooks import address

_LONGEST = 200  # characters of a description
_ORIGINS = {
    "index": "book/index.md",
    "glossary": "docs/glossary.md",
    "claims": "data/claims.csv",
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the handlers with Sphinx."""
    app.connect("doctree-resolved", _describe)
    app.connect("html-page-context", _edit)
    app.connect("build-finished", _map)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def base_url(url: str) -> str:
    """Where GitHub shows the pages of the repository at `url`; "" for none."""
    owner, _, name = url.removeprefix("https://github.com/").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/" if name else ""


def origin(page: str) -> str:
    """The file of the repository that a page is made from; "" for one that is made from
    code.
    """
    files = [_ORIGINS.get(page, ""), f"{page}.ipynb", f"{page}.md"]
    return next((file for file in files if file and (ROOT / file).is_file()), "")


def description(doctree: nodes.document) -> str:
    """The page's first sentences, whole words, 200 characters at most; those about the
    run don't count.
    """
    texts = (
        " ".join(paragraph.astext().split())
        for paragraph in doctree.findall(nodes.paragraph)
    )
    text = next((text for text in texts if len(text) > 20), "")
    return (
        text
        if len(text) <= _LONGEST
        else text[: _LONGEST - 3].rpartition(" ")[0] + " ..."
    )


def _describe(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if text := description(doctree):
        doctree.insert(0, nodes.meta(name="description", content=text))


def _edit(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    url = address()
    file = origin(page)
    context["theme_source_edit_link"] = (
        f"{url}/edit/main/{file}" if url and file else ""
    )


def _map(app: Sphinx, error: Exception | None) -> None:
    """Write sitemap.xml, whose addresses must be whole, if the book has one."""
    if error is None and (base := app.config.html_baseurl):
        pages = sorted(app.env.found_docs)
        rows = "\n".join(f"<url><loc>{base}{page}.html</loc></url>" for page in pages)
        head = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<urlset'
            ' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        )
        Path(app.outdir, "sitemap.xml").write_text(
            f"{head}\n{rows}\n</urlset>\n", encoding="utf-8"
        )
