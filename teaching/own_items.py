"""Items that a teacher writes in Markdown: a heading, the task, code if any, and a list
of options, of which the right one is ticked.
"""

from __future__ import annotations

import re
from typing import Any

from labkit.core.errors import BadArgument

_HEADING = re.compile(
    r"## +(?P<name>\S+) *"
    r"\((?P<notebook>\d\d), *(?P<kind>\w+)(?:, *(?P<points>\d+) points?)?\)"
)
_OPTION = re.compile(r"[-*+] +\[(?P<mark>[ xX])\] +(?P<text>.+)")
_FENCE = re.compile(r"```+")


def read(text: str) -> list[dict[str, Any]]:
    """The items of a Markdown text, as tables of the TOML format have them.

    Raises BadArgument with the line and what was expected there.
    """
    items: list[dict[str, Any]] = []
    in_code = False
    for place, line in enumerate(text.splitlines(), 1):
        if line.startswith("## ") and not in_code:
            items.append(_begun(line, place))
        elif items:
            in_code = _read_line(items[-1], line, place, in_code)
    if not items:
        raise BadArgument(
            "expected items that begin with a heading such as `## cache-lines (04,"
            " explain, 2 points)`, found none."
        )
    return [_whole(item) for item in items]


def _begun(line: str, place: int) -> dict[str, Any]:
    match = _HEADING.fullmatch(line.rstrip())
    if not match:
        raise BadArgument(
            f"line {place}: expected `## name (notebook, kind, points)`, such as `##"
            f" cache-lines (04, explain, 2 points)`, got {line.strip()!r}."
        )
    item: dict[str, Any] = {"task": "", "code": "", "options": [], "place": place}
    item |= {key: match[key] for key in ("name", "notebook", "kind")}
    return item | {"points": int(match["points"] or 2)}


def _read_line(item: dict[str, Any], line: str, place: int, in_code: bool) -> bool:
    """Add a line to an item; whether the next one is in its block of code."""
    if _FENCE.match(line):
        return not in_code
    options = item["options"]
    if in_code:
        item["code"] += f"{line}\n"
    elif match := _OPTION.fullmatch(line.strip()):
        options.append([match["mark"] != " ", match["text"].strip(), ""])
    elif options and line.strip():
        if not line.startswith(" "):
            raise BadArgument(
                f"line {place}: expected an option, or the reason of the one above,"
                f" which is indented, got {line.strip()!r}."
            )
        options[-1][2] = f"{options[-1][2]} {line.strip()}".strip()
    elif line.strip():
        item["task"] = f"{item['task']} {line.strip()}".strip()
    return in_code


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    """The item with its right option first."""
    place = item.pop("place")
    marked = [option for option in item["options"] if option[0]]
    if len(marked) != 1 or not item["task"]:
        raise BadArgument(
            f"line {place}: expected a task, and one option that begins with `- [x]`,"
            f" got {len(marked)} of them."
        )
    others = [option for option in item["options"] if not option[0]]
    return item | {"options": [option[1:] for option in (*marked, *others)]}
