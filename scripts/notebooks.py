"""Keep the notebooks canonical, and write them with the solutions filled in.

usage: notebooks.py check          say what is not canonical; exit 1 if anything is
notebooks.py fix            repair it: format, ids, outputs, minutes, tracks, the setup
cell, the links (if any) notebooks.py store          run them, and store the outputs of
the cells tagged keep_output notebooks.py solved         write build/solved/*.ipynb,
each exercise solved, and open again at the end notebooks.py pictures       draw
README.md's pictures anew, from the notebooks they stand in notebooks.py address URL
set the repository's public address: links and Colab cells appear
"""

from __future__ import annotations

import ast
import base64
import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from exercises.open_cells import open_cells
from labkit.core import results
from labkit.core.data_table import TableRow, read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA, RECORDED, ROOT
from labkit.lesson import exercise_files, notebook_files, outline
from labkit.lesson.progress import hours

sys.path.insert(0, str(ROOT))  # scripts are no package that is installed
from scripts import copies, prerequisites

PYPROJECT = ROOT / "pyproject.toml"
README = ROOT / "README.md"
COURSE = DATA / "course.csv"
DOCS = ROOT / "docs"
SOLVED = ROOT / "build" / "solved"
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "toc_visible": True},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
import labkit as lab

machine = lab.start()"""
# Stands above the setup cell once the repository has an address; it does nothing
# anywhere but on Colab and Kaggle.
COLAB = """\
# Colab and Kaggle only: fetch the workbook
import os, sys

kept = {{
    "COLAB_RELEASE_TAG": "/content/drive/MyDrive",
    "KAGGLE_KERNEL_RUN_TYPE": "/kaggle/working",
}}
for host in kept.keys() & os.environ.keys():
    !test -d /content/workbook || git clone -q --depth 1 --branch v{version} {address} /content/workbook
    !pip install -q "amaranth>=0.5" "anywidget>=0.9.13"  # all else is there
    sys.path.insert(0, "/content/workbook")
    # here results outlive the session; on Colab, mount Drive first
    if os.path.isdir(kept[host]):
        os.environ["LABKIT_HOME"] = os.path.join(kept[host], "labkit")"""  # noqa: E501
# README.md's pictures: the notebook and the cell that draws each.
PICTURES = {
    "warp_lines.png": ("04", "nb04-51"),
    "gantt.png": ("14", "cell-36"),
    "roofline.png": ("01", "nb01-33"),
}
LINKS = re.compile(r"\n*\[Open in Colab\].*\Z", re.DOTALL)
# Where a notebook is on its tracks, at the end of its first and of its last cell.
WAY = re.compile(r"\n*\*You are here:\*.*\Z", re.DOTALL)
SKIP = re.compile(r" Know this already\?.*")
BUILDS_ON = re.compile(r"Builds on [^.]*\.")


def address() -> str:
    """The repository's public address, from pyproject.toml; empty while it has none."""
    return str(_project().get("urls", {}).get("Repository", ""))


def version() -> str:
    """The version in pyproject.toml, whose tag Colab fetches: what a branch holds may
    change under a class.
    """
    return str(_project()["version"])


def _project() -> dict[str, Any]:
    with open(PYPROJECT, "rb") as file:
        return dict(tomllib.load(file)["project"])


def set_address(url: str) -> None:
    """Write the repository's public address into pyproject.toml; ValueError for one
    that isn't on GitHub.
    """
    match = re.fullmatch(
        r"(?:https://github\.com/|git@github\.com:)([\w.-]+/[\w.-]+?)(?:\.git)?/?", url
    )
    if not match:
        raise ValueError(
            f"Expected an address like https://github.com/owner/name, got {url!r}."
        )
    text = re.sub(
        r"\n\[project\.urls\]\nRepository = .*\n",
        "",
        PYPROJECT.read_text(encoding="utf-8"),
    )
    section = f'\n[project.urls]\nRepository = "https://github.com/{match[1]}"\n'
    PYPROJECT.write_text(
        text.replace("\n[tool.", section + "\n[tool.", 1), encoding="utf-8"
    )


def links(path: str, url: str) -> str:
    """Links that open a file of the repository at `url` elsewhere: text, since images
    are missing without a network.
    """
    repository = url.removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/{path}"
    binder = f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path}"
    return f"[Open in Colab]({colab}) · [Open on Binder]({binder})"


def skip(name: str) -> str:
    """The sentence of a notebook's first cell that says which two exercises show that
    it can be skipped, if any do.
    """
    rows = {row["file"]: row["skip"] for row in read_table(COURSE, TableRow, DataError)}
    numbers = rows.get(name, "").replace(";", " and")
    sentence = (
        f" Know this already? Run the setup cell and the imports, and pass {numbers}"
        " without a hint."
    )
    return sentence if numbers else ""


def way(number: str) -> str:
    """Where a notebook is on its tracks, with links back and on."""
    if number not in outline.outlines():
        return f"*You are here:* {number}"  # it is new: the next run has its row
    parts = []
    for track, (before, after) in outline.neighbors(number).items():
        notebooks = outline.tracks()[track] if track else []
        numbers = [notebook.number for notebook in notebooks]
        place = (
            f"{track} {numbers.index(number) + 1} of {len(numbers)}" if track else ""
        )
        back = f"back to [{before.number}]({before.file})" if before else ""
        on = f"on to [{after.number} {after.title}]({after.file})" if after else ""
        parts.append(", ".join(filter(None, (place, back, on))))
    return f"*You are here:* {'; '.join(parts)}."


def minutes(notebook: dict[str, Any], number: str) -> int:
    """How long a reader is busy with a notebook, in whole 5 minutes, rounded up.

    150 words a minute, half a minute a guess, 6 s a line of code, 20 s an output looked
    at, 3 minutes a "change one thing", 4 minutes an exercise and 1 a line of its
    solution that the blank hasn't; and the run itself, as long as it took in the
    slowest recorded run. Optional cells, tagged `more`, don't count.
    """
    cells = notebook["cells"]
    return 5 * math.ceil(
        (reading_minutes(cells, number) + _run_minutes(cells, number)) / 5
    )


def section_minutes(path: Path) -> dict[str, int]:
    """Section ("1") -> how long a reader is busy with it by the same formula, without
    the run, rounded up.
    """
    sections: dict[str, list[dict[str, Any]]] = {}
    cells = sections[""] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if heading := re.match(r"## (\d+) ", "".join(cell["source"])):
            cells = sections[heading[1]] = []
        cells.append(cell)
    return {
        name: math.ceil(reading_minutes(cells, path.name[:2]))
        for name, cells in sections.items()
        if name
    }


def reading_minutes(cells: list[dict[str, Any]], number: str) -> float:
    """Minutes of the formula, without the run."""
    cells = [cell for cell in cells if "more" not in _tags(cell)]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    # what this script writes isn't studied
    prose = "\n".join(SKIP.sub("", WAY.sub("", LINKS.sub("", text))) for text in texts)
    changes = sum("change one thing" in text.lower() for text in texts)
    sources = [
        "".join(c["source"]) for c in cells if c["cell_type"] == "code" and not _made(c)
    ]
    code = "\n".join(sources)
    solutions = exercise_files.solutions(number)
    answers = [
        _code_lines(_to_write(source, solutions[stub]))
        for source in sources
        if (stub := notebook_files.stub_number(source))
    ]
    reading = (
        len(re.findall(r"\w+", prose)) / 150
        + 0.5 * code.count("lab.predict(")
        + 0.1 * _code_lines(code)
    )
    looking = sum(map(_shows_something, sources)) / 3
    return reading + looking + 3 * changes + 4 * len(answers) + sum(answers)


def _to_write(blank: str, solution: str) -> str:
    """The solution's text without the lines that the blank has already, among them its
    docstring.
    """
    shown = set(blank.splitlines())
    return "\n".join(line for line in solution.splitlines() if line not in shown)


def _shows_something(source: str) -> bool:
    """Whether a code cell has an output to look at: it ends in an expression, a loop or
    a block. A guess's field has its own time.
    """
    lines = [line for line in source.splitlines() if not line.startswith(("%", "!"))]
    body = ast.parse("\n".join(lines)).body
    if not body or "lab.predict(" in source:
        return False
    return isinstance(body[-1], ast.Expr | ast.With | ast.For | ast.If)


def _code_lines(text: str) -> int:
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#")
        for line in text.splitlines()
    )


def _run_minutes(cells: list[dict[str, Any]], number: str) -> float:
    """Minutes that these cells of a notebook ran in the recorded run in which they took
    longest: of the times from entry to entry, those that end with an entry of theirs.
    """
    kept = _code_of([cell for cell in cells if "more" not in _tags(cell)])
    whole = _code_of(
        cell
        for path in notebook_files.paths()
        if path.name[:2] == number
        for cell in notebook_files.read(path)["cells"]
    )
    runs = [
        sorted(
            (e for e in results.read(path)[0] if e.section[:2] == number),
            key=lambda entry: entry.when,
        )
        for path in RECORDED.glob("*.jsonl")
    ]
    seconds = [
        sum(
            (
                datetime.fromisoformat(entry.when) - datetime.fromisoformat(last.when)
            ).total_seconds()
            for last, entry in itertools.pairwise(run)
            if _is_made(entry, kept, whole)
        )
        for run in runs
    ]
    return max(seconds, default=0.0) / 60


def _code_of(cells: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Section ("1"; "" above the first) -> the code of its cells."""
    code: dict[str, str] = {}
    section = ""
    for cell in cells:
        source = "".join(cell["source"])
        if heading := re.match(r"## (\d+) ", source):
            section = heading[1]
        if cell["cell_type"] == "code":
            code[section] = f"{code.get(section, '')}{source}\n"
    return code


def _is_made(entry: results.Entry, kept: dict[str, str], whole: dict[str, str]) -> bool:
    """Whether the kept cells make an entry of a recorded run: they have some of its
    section, and those that name it, if any do.
    """
    what = entry.claim if isinstance(entry, results.Verdict) else entry.what
    is_named = [
        any(what in source for source in code.values()) for code in (kept, whole)
    ]
    return entry.section[3:] in kept and (is_named[0] or not is_named[1])


def canonical(notebook: dict[str, Any], name: str, url: str | None = None) -> str:
    """The one text that a notebook of this content may have; `url` is the public
    address, "" while there is none.
    """
    url = address() if url is None else url
    cells = [
        _cell(cell, i)
        for i, cell in enumerate(notebook["cells"])
        if "colab" not in _tags(cell)
    ]
    if cells and cells[0]["cell_type"] == "markdown":
        body = LINKS.sub("", "".join(cells[0]["source"]))
        body = re.sub(
            r"(?m)^\d+ minutes\b", f"{minutes(notebook, name[:2])} minutes", body
        )
        body = BUILDS_ON.sub(
            prerequisites.sentence(name[:2]), SKIP.sub("", WAY.sub("", body))
        )
        parts = [body + skip(name), way(name[:2])]
        if url:
            parts.append(links(f"notebooks/{name}", url))
        cells[0]["source"] = _lines("\n\n".join(parts))
        if cells[-1]["cell_type"] == "markdown" and len(cells) > 1:
            last = WAY.sub("", "".join(cells[-1]["source"]))
            cells[-1]["source"] = _lines(f"{last}\n\n{way(name[:2])}")
    for cell in [cell for cell in cells if "setup" in _tags(cell)]:
        cell["source"] = _lines(SETUP)
        if url:
            source = _lines(COLAB.format(address=url, version=version()))
            colab = {
                "cell_type": "code",
                "id": "colab",
                "metadata": {"tags": ["colab"]},
                "source": source,
            }
            cells.insert(cells.index(cell), _cell(colab, 0))
    _tell_apart(cells)
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def readme(text: str, url: str) -> str:
    """README.md's text, with the milestones, the tracks, and the links to notebook 00,
    if any.
    """
    text = _between(text, "milestones", milestones())
    text = _between(text, "tracks", tracks())
    inside = f"\n{links('notebooks/00_start_here.ipynb', url)}\n" if url else "\n"
    return re.sub(
        r"(?s)(<!-- links -->).*?(<!-- /links -->)",
        lambda match: match[1] + inside + match[2],
        text,
    )


def _between(text: str, name: str, made: str) -> str:
    """The text with `made` between two comments, <!-- name --> and <!-- /name -->."""
    begin = f"<!-- {name} -->\n"
    before, _, rest = text.partition(begin)
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{begin}{made}{end}{after}" if end else text


def course(text: str) -> str:
    """data/course.csv's text, with a row for each notebook: what it can be skipped by
    is kept, the rest is made.
    """
    skips = {row["file"]: row["skip"] for row in csv.DictReader(io.StringIO(text))}
    members = prerequisites.tracks()
    made = io.StringIO()
    table = csv.writer(made, lineterminator="\n")
    table.writerow(["file", "title", "minutes", "exercises", "tracks", "skip"])
    for path in notebook_files.paths():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        number = path.name[:2]
        title = (
            "".join(notebook["cells"][0]["source"])
            .splitlines()[0]
            .removeprefix(f"# {number} ")
        )
        needed = [
            "".join(cell["source"])
            for cell in notebook["cells"]
            if "more" not in _tags(cell)
        ]
        exercises = "; ".join(filter(None, map(notebook_files.stub_number, needed)))
        on_tracks = "; ".join(
            track for track, numbers in members.items() if number in numbers
        )
        skip_by = skips.get(path.name, "")
        is_puzzles = number in notebook_files.PUZZLES
        counted = 0 if is_puzzles else minutes(notebook, number)
        table.writerow([path.name, title, counted, exercises, on_tracks, skip_by])
    return made.getvalue()


def milestones() -> str:
    """README.md's list of milestones, and of the appendices: what a reader can do then,
    in how many hours, and the notebooks that lead there.
    """
    lines = [
        f"- **{part.name}** ({hours(part.minutes)}). You learn to {part.you_can}."
        f" Notebooks: {_linked(part.notebooks)}.\n"
        for part in outline.milestones()
    ]
    further = _linked(outline.appendices())
    lines.append(f"- **Appendix**. Other frameworks and chips: {further}.\n")
    return "".join(lines)


def _linked(notebooks: Iterable[outline.Outline]) -> str:
    return ", ".join(
        f"[{notebook.number} {notebook.title}](notebooks/{notebook.file})"
        for notebook in notebooks
    )


def tracks() -> str:
    """README.md's list of tracks, each with its notebooks and the sum
    of their minutes, in which puzzles don't count.
    """
    lines = []
    for track, notebooks in outline.tracks().items():
        total = hours(sum(notebook.minutes for notebook in notebooks))
        numbers = ", ".join(
            notebook.number
            for notebook in notebooks
            if notebook.number not in notebook_files.PUZZLES
        )
        puzzles = [
            notebook.number
            for notebook in notebooks
            if notebook.number in notebook_files.PUZZLES
        ]
        if puzzles:
            numbers += f"; then {', '.join(puzzles)}, puzzles for as long as you like"
        lines.append(f"- **{track}** ({total}): {numbers}\n")
    return "".join(lines)


def _made(cell: dict[str, Any]) -> bool:
    """Whether this script writes the cell."""
    return bool({"setup", "colab"} & set(_tags(cell)))


def _tags(cell: dict[str, Any]) -> list[str]:
    return sorted(cell["metadata"].get("tags", []))


def _tell_apart(cells: list[dict[str, Any]]) -> None:
    """Give a cell whose id another one above has an id of its own."""
    taken: set[str] = set()
    all_ids = {cell["id"] for cell in cells}
    numbers = (f"cell-{i}" for i in itertools.count(len(cells)))
    for cell in cells:
        if cell["id"] in taken:
            cell["id"] = next(new for new in numbers if new not in all_ids)
        taken.add(cell["id"])


def _cell(cell: dict[str, Any], index: int) -> dict[str, Any]:
    """A cell without what running it left behind, unless it is tagged keep_output."""
    tags = _tags(cell)
    clean: dict[str, Any] = {
        "cell_type": cell["cell_type"],
        "id": cell.get("id") or f"cell-{index:02d}",
        "metadata": {"tags": tags} if tags else {},
        "source": _lines("".join(cell["source"]).rstrip("\n")),
    }
    if "more" in tags and "".join(clean["source"]).startswith("#"):
        # JupyterLab folds what stands below the heading
        clean["metadata"]["jp-MarkdownHeadingCollapsed"] = True
    if cell["cell_type"] == "code":
        keep = "keep_output" in tags
        clean["outputs"] = cell.get("outputs", []) if keep else []
        # nbval refuses outputs of a cell without a number
        clean["execution_count"] = cell.get("execution_count") if keep else None
    return clean


def store(notebook: dict[str, Any]) -> None:
    """Run a notebook and put the outputs of its cells tagged keep_output into it; the
    others stay as they are.
    """
    for cell, run_cell in zip(notebook["cells"], _run(notebook)["cells"], strict=True):
        if "keep_output" in _tags(cell):
            cell |= {
                "outputs": run_cell["outputs"],
                "execution_count": run_cell["execution_count"],
            }


def pictures() -> None:
    """Run the notebooks that README.md's pictures come from, solved, and keep what
    those cells show in docs/.
    """
    from PIL import Image

    for name, (number, cell_id) in PICTURES.items():
        (path,) = (
            path for path in notebook_files.paths() if path.name.startswith(number)
        )
        notebook = json.loads(path.read_text(encoding="utf-8"))
        run = _run(notebook_files.solved(notebook, exercise_files.solutions(number)))
        (cell,) = (cell for cell in run["cells"] if cell["id"] == cell_id)
        pngs = [
            output["data"]["image/png"]
            for output in cell["outputs"]
            if "image/png" in output.get("data", {})
        ]
        images = [
            Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
            for data in pngs
        ]
        width = max(image.width for image in images)
        height = sum(image.height for image in images)
        whole = Image.new("RGB", (width, height), "white")
        top = 0
        for image in images:
            whole.paste(image, (0, top))
            top += image.height
        whole.save(DOCS / name, optimize=True)


def _run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook after all its cells have run in a new kernel."""
    import nbclient
    import nbformat

    run = nbformat.reads(json.dumps(notebook), as_version=4)
    # what it measures and answers is nobody's result
    with tempfile.TemporaryDirectory() as home:
        client = nbclient.NotebookClient(run, timeout=200, store_widget_state=False)
        client.execute(env={**os.environ, "LABKIT_HOME": home})
    return dict(json.loads(nbformat.writes(run)))


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(path: Path, command: str) -> bool:
    """Bring a file into its canonical form (or only look, for "check"); whether it was
    another.
    """
    text = path.read_text(encoding="utf-8")
    if path == COURSE:
        good = course(text)
    elif path == README:
        good = readme(text, address())
    else:
        notebook = json.loads(text)
        if command == "store":
            store(notebook)
        good = canonical(notebook, path.name)
    if good == text:
        return False
    if command != "check":
        path.write_text(good, encoding="utf-8")
    print(
        f"{path.name}:"
        f" {'not canonical; make fix repairs it' if command == 'check' else 'written'}"
    )
    return True


def solve() -> None:
    """Write build/notebooks and build/solved anew, from the notebooks as shipped."""
    copies.write_copies()
    for path in copies.worked_in():
        print(f"{path.name}: worked in, so the tests look at the one that was shipped")
    shutil.rmtree(SOLVED, ignore_errors=True)
    SOLVED.mkdir(parents=True)
    for path in sorted(copies.COPIES.glob("[0-9][0-9]_*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        filled = notebook_files.solved(
            notebook, exercise_files.solutions(path.name[:2])
        )
        filled["cells"] += open_cells(notebook)
        (SOLVED / path.name).write_text(
            json.dumps(filled, indent=1, ensure_ascii=False), encoding="utf-8"
        )


def main(command: str, url: str = "") -> int:
    """Run one of the commands; the exit status."""
    if command == "solved":
        solve()
        return 0
    if command == "pictures":
        pictures()
        return 0
    if command == "address":
        set_address(url)
        tag = f"v{version()}"
        print(
            f"Colab and Kaggle fetch the tag {tag} of it. Push it: git tag {tag} && git"
            f" push origin {tag}"
        )
    changed = [write(COURSE, command)]
    outline.outlines.cache_clear()  # course.csv may have been written
    outline.milestones.cache_clear()
    changed += [write(path, command) for path in [*notebook_files.paths(), README]]
    return int(command == "check" and any(changed))


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    if (command, len(rest)) not in [
        *((name, 0) for name in ("check", "fix", "store", "solved", "pictures")),
        ("address", 1),
    ]:
        sys.exit(__doc__)
    try:
        sys.exit(main(command, *rest))
    except ValueError as error:
        sys.exit(str(error))
