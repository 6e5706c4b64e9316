"""A Sphinx extension that reads labkit's docstrings as what they are: sentences, with
code in single backticks.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

_GAP = re.compile(r"\n[ ]*\n")  # between two paragraphs
_CODE = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\*_|])")
_LINK = re.compile(r"\[([^\]]+)\]\((https://[^)\s]+)\)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the two handlers with Sphinx."""
    app.connect("autodoc-process-docstring", _as_rst)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}


def rst(text: str) -> str:
    """A docstring's text as reStructuredText: `x` becomes a literal, an example of >>>
    stays as it is, and no other character has a meaning.
    """
    paragraphs = _GAP.split(text)
    return "\n\n".join(
        part if part.lstrip().startswith(">>> ") else _prose(part)
        for part in paragraphs
    )


def _prose(text: str) -> str:
    parts = _CODE.split(text)  # text, code, text, ...
    for i in range(1, len(parts), 2):
        plural = r"\ " if re.match(r"\w", parts[i + 1]) else ""  # as in `Timing`s
        parts[i] = f"`{parts[i]}`{plural}"
    return "".join(part if i % 2 else _escaped(part) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    kept = _LINK.split(text)  # text, label, address, text, ...
    plain = [_SPECIAL.sub(r"\\\1", part) for part in kept[::3]]
    links = [
        f"`{label} <{url}>`__"
        for label, url in zip(kept[1::3], kept[2::3], strict=True)
    ]
    return "".join(
        piece for pair in zip(plain, [*links, ""], strict=True) for piece in pair
    )


def _as_rst(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = rst("\n".join(lines)).splitlines()


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """The signature with what a function returns, where that is one name."""
    if what not in ("function", "method") or signature is None:
        return signature, returns
    try:
        annotation = str(inspect.signature(obj).return_annotation).strip("'\"")
    except (TypeError, ValueError):
        return signature, returns
    is_one_name = re.fullmatch(r"[A-Z]\w+|bool|int|float|str|bytes", annotation)
    return signature, annotation if is_one_name else None
