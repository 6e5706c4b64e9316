"""Quote a value in a message, whatever it is."""

from __future__ import annotations

import reprlib

_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = _PARTS.maxfrozenset = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one line, cut after 60 characters."""
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]  # type: ignore[index]  # mypy does not narrow by issubclass
        parted = type(value) in (list, tuple, dict, set, frozenset)  # such may be long, and is not written out whole
        text = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(text.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return "a number of thousands of digits" if large else f"an object of type {kind}"


def cut(text: str, longest: int) -> str:
    """At most `longest` characters of `text`, up to the end of a word where there is one."""
    if len(text) <= longest:
        return text
    head = text[: longest - 3]
    if not text[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."
