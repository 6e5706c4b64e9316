"""Make the site's notebooks from cells of the numbered ones, as sections.toml lists
them: a cell that is changed there is changed here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.lesson import notebook_files

SECTIONS = Path(__file__).with_name("sections.toml")
# What the kernel installs: first what its makers and the package index have, then the
# site's own wheels, some of which ask for what doesn't exist there, such as torch.
SETUP = """\
import piplite

needs = "anywidget filelock ipywidgets matplotlib numpy pillow platformdirs"
own = "gpufacts kerneltrace ranks trainplan workbook-in-browser"
await piplite.install(needs.split())
await piplite.install(own.split(), deps=False)
import browser_lab as lab
"""
_SETUP_TEXT = (
    "Run this cell first. It loads Python's packages into this browser page, which may"
    " take a minute. Then run the others from the top, with Shift+Enter. What you"
    " change is kept in this browser; reload the page to get a fresh kernel."
)
_KERNEL = {
    "kernelspec": {
        "display_name": "Python (Pyodide)",
        "language": "python",
        "name": "python",
    },
    "language_info": {"name": "python"},
}
_TO_NOTEBOOK = re.compile(r"\[([^\]]*)\]\(\d\d_\w+\.ipynb\)")


@dataclass(frozen=True)
class LiteNotebook:
    """A notebook of the site: its file's name, the number of the one that it is made
    from, and its JSON.
    """

    name: str
    number: str
    content: dict[str, Any]


def made() -> list[LiteNotebook]:
    """The site's notebooks. Raises ValueError where sections.toml names a cell, a
    paragraph or a line that isn't there.
    """
    listed = tomllib.loads(SECTIONS.read_text(encoding="utf-8"))["notebook"]
    return [_made(notebook) for notebook in listed]


def _made(listed: dict[str, Any]) -> LiteNotebook:
    number = listed["number"]
    (path,) = (p for p in notebook_files.paths() if p.name.startswith(number))
    source = {cell["id"]: cell for cell in notebook_files.read(path)["cells"]}
    about = " ".join(listed["about"].split())
    cells = [
        _cell("title", "markdown", f"# {listed['title']}\n\n{about}"),
        _cell("about-setup", "markdown", _SETUP_TEXT),
        _cell("setup", "code", SETUP.rstrip()),
    ]
    for place, entry in enumerate(listed["cells"]):
        spec: dict[str, Any] = {"cell": entry} if isinstance(entry, str) else entry
        if "cell" in spec:
            cells.append(_kept(number, source, spec["cell"], spec.get("drop", [])))
        else:
            kind = "markdown" if "text" in spec else "code"
            cells.append(_cell(f"own-{place}", kind, spec.get("text") or spec["code"]))
    content = {"cells": cells, "metadata": _KERNEL, "nbformat": 4, "nbformat_minor": 5}
    return LiteNotebook(listed["file"], number, content)


def _kept(
    number: str, source: dict[str, dict[str, Any]], name: str, drop: list[str]
) -> dict[str, Any]:
    """A cell of a numbered notebook, without the parts that begin as `drop` says."""
    if name not in source:
        raise ValueError(
            f"Expected a cell {name!r} in notebook {number}, which {SECTIONS.name}"
            " lists; there is none. Name the one that took its place, or leave it out."
        )
    kind = source[name]["cell_type"]
    text = "".join(source[name]["source"])
    between = "\n\n" if kind == "markdown" else "\n"
    parts = text.split(between)
    for beginning in drop:
        left = [part for part in parts if not part.startswith(beginning)]
        if left == parts:
            raise ValueError(
                f"Expected a part of cell {name!r} of notebook {number} that begins"
                f" {beginning!r}, which {SECTIONS.name} leaves out; there is none."
            )
        parts = left
    text = between.join(parts)
    if kind == "markdown":
        text = _TO_NOTEBOOK.sub(r"\1", text)  # no page of the site
    return _cell(name, kind, text)


def _cell(name: str, kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": name}
    cell |= {"metadata": {}, "source": text}
    return (
        cell if kind == "markdown" else cell | {"execution_count": None, "outputs": []}
    )


def code(notebook: LiteNotebook) -> Iterator[tuple[str, str]]:
    """Id and source of each cell of code, without the one that installs."""
    for cell in notebook.content["cells"]:
        if cell["cell_type"] == "code" and cell["id"] != "setup":
            yield cell["id"], cell["source"]


def write(folder: Path) -> list[str]:
    """Write the notebooks into a folder; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    notebooks = made()
    for notebook in notebooks:
        text = json.dumps(notebook.content, ensure_ascii=False, indent=1)
        (folder / notebook.name).write_text(f"{text}\n", encoding="utf-8")
    return [notebook.name for notebook in notebooks]
