"""Keep the notebooks canonical, and write them with the solutions filled in.

usage: notebooks.py check    say what is not canonical; exit 1 if anything is
       notebooks.py fix      repair it: format, ids, outputs, and from pyproject.toml's address the setup cell and links
       notebooks.py store    run them, and store the outputs of the cells tagged keep_output
       notebooks.py solved   write build/solved/*.ipynb, each exercise solved
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from labkit.lesson import checks, record_runs

ROOT = Path(__file__).parents[1]
SOLVED = ROOT / "build" / "solved"
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "toc_visible": True},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
import os, sys

if "COLAB_RELEASE_TAG" in os.environ:  # Colab: fetch labkit, upgrade nothing
    !test -d /content/workbook || git clone -q --depth 1 {address} /content/workbook
    sys.path.insert(0, "/content/workbook")
import labkit as lab

machine = lab.start()"""
LINKS = re.compile(r"\n*\[Open in Colab\].*\Z", re.DOTALL)


def address() -> str:
    """The repository's public address, from pyproject.toml."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return str(tomllib.load(file)["project"]["urls"]["Repository"])


def links(name: str) -> str:
    """The line that opens a notebook elsewhere: plain links, since an image would be missing without a network."""
    repository = address().removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}"
    binder = f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/notebooks/{name}"
    return f"[Open in Colab]({colab}) · [Open on Binder]({binder})"


def canonical(notebook: dict[str, Any], name: str) -> str:
    """The one text that a notebook of this content may have."""
    cells = [_cell(cell, i) for i, cell in enumerate(notebook["cells"])]
    if cells and cells[0]["cell_type"] == "markdown":
        body = LINKS.sub("", "".join(cells[0]["source"]))
        cells[0]["source"] = _lines(f"{body}\n\n{links(name)}")
    for cell in cells:
        if "setup" in cell["metadata"].get("tags", []):
            cell["source"] = _lines(SETUP.format(address=address()))
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _cell(cell: dict[str, Any], index: int) -> dict[str, Any]:
    """A cell without what running it left behind, unless it is tagged keep_output."""
    tags = sorted(cell["metadata"].get("tags", []))
    clean: dict[str, Any] = {
        "cell_type": cell["cell_type"],
        "id": cell.get("id") or f"cell-{index:02d}",
        "metadata": {"tags": tags} if tags else {},
        "source": _lines("".join(cell["source"]).rstrip("\n")),
    }
    if cell["cell_type"] == "code":
        keep = "keep_output" in tags
        clean["outputs"] = cell.get("outputs", []) if keep else []
        clean["execution_count"] = cell.get("execution_count") if keep else None
    return clean


def store(notebook: dict[str, Any]) -> None:
    """Run a notebook and put the outputs of its cells tagged keep_output into it; the others stay as they are."""
    import nbclient
    import nbformat

    run = nbformat.reads(json.dumps(notebook), as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(run, timeout=200, store_widget_state=False).execute()
    for cell, done in zip(notebook["cells"], json.loads(nbformat.writes(run))["cells"], strict=True):  # type: ignore[no-untyped-call]
        if "keep_output" in cell["metadata"].get("tags", []):
            cell |= {"outputs": done["outputs"], "execution_count": done["execution_count"]}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(command: str) -> int:
    """Run one of the commands; the exit status."""
    if command == "solved":
        SOLVED.mkdir(parents=True, exist_ok=True)
        for old in SOLVED.glob("*.ipynb"):
            old.unlink()
    wrong = 0
    for path in record_runs.paths():
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        if command == "store":
            store(notebook)
        if command == "solved":
            filled = record_runs.solved(notebook, checks.solutions(path.name[:2]))
            (SOLVED / path.name).write_text(json.dumps(filled, indent=1, ensure_ascii=False), encoding="utf-8")
        elif (good := canonical(notebook, path.name)) != text:
            wrong += 1
            if command != "check":
                path.write_text(good, encoding="utf-8")
            print(f"{path.name}: {'not canonical; make fix repairs it' if command == 'check' else 'written'}")
    return int(command == "check" and wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["fix"], ["store"], ["solved"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
