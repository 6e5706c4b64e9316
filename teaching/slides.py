"""Make the slides of a lecture from the notebooks' own figures, measured on this
machine.

A lecture is a table in docs/teaching/lectures: a row is a slide, with its title, one
line of text, the cell whose pictures it shows, and the cells whose text becomes the
speaker's notes (press S). The notebooks run with their solutions, as far as the last
picture; LABKIT_PROFILE=ci makes that quick.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.data_table import read_table
from labkit.core.errors import LabError
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import path as paths
from teaching.assignments import require
from teaching.exam import filled
from teaching.record import ran

LECTURES = ROOT / "docs" / "teaching" / "lectures"
_REVEAL = "https://unpkg.com/reveal.js@4.0.2"  # where nbconvert's own slides find it

Cells = Mapping[str, Mapping[str, Any]]  # id -> cell, after it has run


@dataclass(frozen=True)
class Slide:
    """A title, a line of text, the cell whose pictures are shown ("" for none), and
    those with notes, by spaces.
    """

    title: str
    line: str
    notebook: str
    figure: str
    notes: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("lecture", choices=names(), help="the lecture")
    parser.add_argument("-o", dest="out", type=Path, required=True, help="a folder")
    parser.add_argument(
        "--reveal",
        type=Path,
        metavar="FOLDER",
        help=(
            "a copy of reveal.js, such as `npm pack reveal.js@4` brings: it is put"
            " beside the slides, which then need no network"
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the notebooks and write the slides."""
    slides = lecture(arguments.lecture)
    prefix = (
        with_reveal(arguments.reveal, arguments.out) if arguments.reveal else _REVEAL
    )
    cells_by_notebook = {
        number: executed(number, [s.figure for s in slides])
        for number in sorted({s.notebook for s in slides})
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / f"{arguments.lecture}.slides.html"
    file.write_text(
        exported(
            [cell for slide in slides for cell in cells_of(slide, cells_by_notebook)],
            slides[0].title,
            prefix,
        )
    )
    print(f"{file}: {len(slides)} slides")
    return 0


def names() -> list[str]:
    """The lectures that there are."""
    return sorted(path.stem for path in LECTURES.glob("*.csv"))


def lecture(name: str) -> list[Slide]:
    """The slides of a lecture."""
    return read_table(LECTURES / f"{name}.csv", lambda row: Slide(**row))


def with_reveal(folder: Path, out: Path) -> str:
    """Copy reveal.js beside the slides; where they find it. LabError for a folder
    without it.
    """
    if not (folder / "dist" / "reveal.js").is_file():
        raise LabError(
            f"Expected {folder}/dist/reveal.js: `npm pack reveal.js@4` fetches an"
            " archive to unpack."
        )
    for part in ("dist", "plugin"):
        shutil.copytree(folder / part, out / "reveal.js" / part, dirs_exist_ok=True)
    return "reveal.js"


def executed(number: str, figures: Sequence[str]) -> Cells:
    """A notebook's cells, run with the solutions as far as the last of
    these figures.
    """
    (path,) = paths.chosen([number])
    notebook = notebook_files.solved(
        notebook_files.read(path), exercise_files.solutions(number)
    )
    wanted = [i for i, cell in enumerate(notebook["cells"]) if cell["id"] in figures]
    last = max(wanted, default=-1) + 1
    first = []
    if wanted:
        print(f"{path.name}: running {last} cells ...", flush=True)
        with tempfile.TemporaryDirectory() as home:
            first = ran(
                path.name,
                notebook | {"cells": notebook["cells"][:last]},
                LABKIT_HOME=home,
            )["cells"]
    return {cell["id"]: cell for cell in [*first, *notebook["cells"][last:]]}


def cells_of(slide: Slide, done: Mapping[str, Cells]) -> list[dict[str, Any]]:
    """A slide as two cells of text: what is shown, and the notes."""
    cells = done[slide.notebook]
    shown = pictures(cells[slide.figure].get("outputs", [])) if slide.figure else []
    if slide.figure and not shown:
        raise LabError(
            f"Cell {slide.figure} of notebook {slide.notebook} drew nothing: see"
            f" {LECTURES}."
        )
    notes = "\n\n".join("".join(cells[name]["source"]) for name in slide.notes.split())
    texts = {"slide": filled("slide.md", slide=slide, pictures=shown), "notes": notes}
    return [
        {"source": text, "metadata": {"slideshow": {"slide_type": kind}}}
        for kind, text in texts.items()
    ]


def pictures(outputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The pictures among a cell's outputs: data as base64, and alt, width and height
    where they have any.
    """
    with_image = [
        output for output in outputs if output.get("data", {}).get("image/png")
    ]
    return [
        output["metadata"].get("image/png", {})
        | {"data": output["data"]["image/png"].strip()}
        for output in with_image
    ]


def exported(cells: Sequence[Mapping[str, Any]], title: str, prefix: str) -> str:
    """A page with the slides, by nbconvert; `prefix` is where reveal.js is."""
    require("nbconvert")
    from nbconvert import SlidesExporter
    from nbformat import v4

    made = v4.new_notebook(
        cells=[v4.new_markdown_cell(**cell) for cell in cells],
        metadata={"title": title},
    )
    exporter = SlidesExporter(
        extra_template_basedirs=[str(Path(__file__).parent)],
        template_name="slides_template",
        reveal_url_prefix=prefix,
        reveal_theme="white",
    )
    page, _ = exporter.from_notebook_node(made)
    return str(page)
