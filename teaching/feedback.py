"""How nbgrader shows a learner's notebook to others, in feedback and in formgrader:
nothing in it runs as a script.

A course's nbgrader_config.py names `markdown` as the filter that renders text; outputs
are cleaned by nbconvert itself (`sanitize_html`).
"""

from __future__ import annotations

import bleach
from nbconvert.filters import markdown2html

_TAGS = {
    *bleach.ALLOWED_TAGS,
    *("br", "del", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre"),
    *("span", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr"),
}
_ATTRIBUTES = {**bleach.ALLOWED_ATTRIBUTES, "*": ["class", "id"]}


def markdown(source: str) -> str:
    """A text cell as HTML: text, tables and formulas. Scripts, frames, pictures and
    links that aren't addresses of pages are left out.
    """
    html = markdown2html(source)
    cleaned = bleach.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, strip=True)
    return str(cleaned)
