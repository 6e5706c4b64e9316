"""Write the pages that Sphinx reads: the notebooks as they ran, the glossary, the
claims, texts of the repository.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from book import recorded, reference
from book.try_here import page as try_here
from exercises.nb16 import course
from labkit.core.paths import INSTRUMENTS, PROJECTS, ROOT
from labkit.lesson import exercise_files, notebook_files
from labkit.lesson.claims import judged_anew
from scripts.glossary import GLOSSARY, glossary
from scripts.notebooks import address

INDEX = Path(__file__).with_name("index.md")
_PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')
# of labkit's pictures: book.css has them for all
_STYLES = re.compile(r"<style>[^<]*</style>(?=<figure)")
_FIGURE = re.compile(r"<figure.*?</figure>", re.DOTALL)
_CHECK = re.compile(r'lab\.check\("(\d\d\.\d\d?[a-z]?)"')
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")
_SECTION = r"(?ms)^## {}\n.*?(?=^## |\Z)"
_TEACHING = ROOT / "docs" / "teaching"
_COVER = "03"  # the notebook whose first board stands on the first page
# Beside the notebooks and the teachers' pages, the files of the repository that are
# pages here under the same path.
_ABOUT = (
    "docs/numbers.md",
    "labkit/README.md",
    "data/README.md",
    "CONTRIBUTING.md",
    "docs/maintaining.md",
    "CHANGELOG.md",
)
# Of each package its README, and the pages that the README leads to.
_PACKAGES = {
    f"packages/{name}/README.md": [
        f"packages/{name}/docs/recipes.md",
        *sorted(
            path.relative_to(ROOT).as_posix()
            for path in (PROJECTS / name / "docs").glob("*.md")
            if path.stem != "recipes"
        ),
        f"packages/{name}/CHANGELOG.md",
    ]
    for name in INSTRUMENTS
}
_COPIED = (*_ABOUT, *_PACKAGES, *itertools.chain.from_iterable(_PACKAGES.values()))


def write(source: Path, executed: Path, *, pdf: bool = False, lite: str = "") -> None:
    """Write all pages into the folder `source`, anew; `executed` holds the notebooks
    that were run.

    With `pdf` each notebook links to its PDF, which book/printing.py writes. `lite` is
    the address of the JupyterLite site, "" where there is none.
    """
    shutil.rmtree(source, ignore_errors=True)
    (source / "pictures" / "pictures").mkdir(parents=True)
    (source / "notebooks").mkdir()
    for path in notebook_files.paths():
        _write(
            source / "notebooks" / path.name,
            json.dumps(_notebook(path, executed, source / "pictures", pdf)),
        )
    teaching = [
        path.relative_to(ROOT).as_posix() for path in sorted(_TEACHING.glob("*.md"))
    ]
    for name in (*_COPIED, *teaching):
        text = _relinked((ROOT / name).read_text(encoding="utf-8"), name, name)
        if name in _PACKAGES:
            text += _more_pages(name)
        _write(source / name, text)
    _write(source / "glossary.md", _glossary())
    _write(source / "claims.md", _claims(course.claims()))
    _write(source / "recorded.md", recorded.page())
    _write(source / "try.md", try_here.text(lite))
    for name, text in reference.pages():
        _write(source / "reference" / f"{name}.md", text)
    _write(source / "index.md", _index(source) + "".join(_contents(teaching)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _notebook(path: Path, executed: Path, pictures: Path, pdf: bool) -> dict[str, Any]:
    """A notebook as it ran, or as it is if it didn't run: with a line about the run,
    and with the exercises' hints.
    """
    ran = executed / path.name
    text = (ran if ran.exists() else path).read_text(encoding="utf-8")
    # Nobody needs the builder's folders.
    text = text.replace(str(executed), "build/book/executed").replace(f"{ROOT}/", "")
    notebook: dict[str, Any] = json.loads(text)
    about_run = notebook["metadata"].pop("book", None)
    cells: list[dict[str, Any]] = []
    hinted: set[str] = set()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            cell["source"] = _relinked(
                text, f"notebooks/{path.name}", f"notebooks/{path.name}"
            )
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output["data"] = {
                    "text/html": _with_files(
                        "".join(output["data"]["text/html"]), pictures
                    )
                }
        cells.append(cell)
        match = (
            _CHECK.search("".join(cell["source"]))
            if cell["cell_type"] == "code"
            else None
        )
        if match and match[1] not in hinted:
            hinted.add(match[1])
            cells.append(_markdown(f"hints-{match[1]}", "\n\n".join(_hints(match[1]))))
    cells.insert(
        1,
        _markdown(
            "about",
            _about(about_run) + f' <a href="../pdf/{path.stem}.pdf">As a PDF</a>' * pdf,
        ),
    )
    return notebook | {"cells": cells}


def _about(about_run: dict[str, Any] | None) -> str:
    """The line about a notebook's run, from what book/run.py wrote into
    its metadata.
    """
    if about_run is None:
        return (
            "*This notebook was not run for this copy of the book: its outputs are"
            " missing.*"
        )
    about = (
        "Run on {machine}, profile {profile}, {day}, in {seconds} s. Your numbers will"
        " differ.".format(**about_run)
    )
    if cells := about_run.get("disturbed"):
        about += (
            f" Other programs took time from {cells} of its cells, in a second run as"
            " well. Their outputs say so: their rates are too low and their times too"
            " long."
        )
    return f"*{about}*"


def _markdown(name: str, text: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": name.replace(".", "-"),
        "metadata": {},
        "source": text,
    }


def _more_pages(readme: str) -> str:
    """What stands below a package's README: its reference, and a list of its pages."""
    package = Path(readme).parent.name
    link = f"[All public names](../../reference/{package}.md)"
    names = [f"/{name.removesuffix('.md')}" for name in _PACKAGES[readme]]
    return f"\n## More pages\n\n{link}\n{reference.toctree('', names)}"


def _hints(number: str) -> Iterator[str]:
    hints = exercise_files.exercise(number).hints
    for i, hint in enumerate(hints, start=1):
        yield (
            f"<details><summary>{number}: hint {i} of"
            f" {len(hints)}</summary>\n\n{hint}\n\n</details>"
        )


def _with_files(text: str, folder: Path) -> str:
    """A cell's HTML with its pictures as files, so that a page is small and they load
    when they are seen.
    """

    def stored(match: re.Match[str]) -> str:
        png = base64.b64decode(match[1])
        name = f"pictures/{hashlib.sha256(png).hexdigest()[:16]}.png"
        (folder / name).write_bytes(png)
        return f'loading="lazy" src="../_static/{name}"'

    return _PICTURE.sub(stored, _STYLES.sub("", text))


def _relinked(text: str, origin: str, page: str) -> str:
    """Markdown of the repository's file `origin` for the page `page`, its links made to
    lead somewhere there.
    """
    pages = (
        {f"notebooks/{path.name}" for path in notebook_files.paths()}
        | set(_COPIED)
        | {"docs/glossary.md"}
    )
    up = "../" * page.count("/")

    def mended(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        file, _, anchor = target.partition("#")
        full = os.path.normpath(Path(origin).parent / file).replace(os.sep, "/")
        if full in pages or (
            full.startswith("docs/teaching/") and full.endswith(".md")
        ):
            full = "glossary.md" if full == "docs/glossary.md" else full
            return f"[{label}]({up}{full}{'#' + anchor if anchor else ''})"
        if url := address():
            return f"[{label}]({url}/blob/main/{full})"
        if image or "`" in label:
            return label
        if label != full:
            return f"{label} (`{full}`)"
        return f"`{full}`"

    return _LINK.sub(mended, text)


def _glossary() -> str:
    """The glossary as a list of definitions, which the links lead to."""
    begin = (
        GLOSSARY.read_text(encoding="utf-8")
        .split("\n\n")[1]
        .split(" In parentheses")[0]
    )
    entries = "".join(
        f'<dt id="{word.anchor}">{html.escape(word.term)}</dt>\n<dd>\n\n'
        f"{_relinked(word.meaning, 'docs/glossary.md', 'glossary.md')}\n\n</dd>\n"
        for word in glossary()
    )
    return f'# Glossary\n\n{begin}\n\n<dl class="glossary">\n{entries}</dl>\n'


def _claims(claims: course.Claims) -> str:
    """Every claim with the verdicts of this machine and of the recorded ones, and what
    others published.
    """
    parts = [
        "# Claims under test",
        (
            "What popular articles say about the speed of training, each tried as an"
            " experiment. The verdicts of the run that this book shows come first, then"
            " those of recorded runs, each with the notebook's section that gave it."
        ),
    ]
    for claim in claims.claims:
        parts.append(f"## {claim.id} {recorded.plain(claim.text)}")
        verdicts = [
            (v, f"{v.section}, this book's run on {v.machine}") for v in claim.here
        ]
        verdicts += [
            (v, f"{v.section}, recorded on {v.machine}") for v in claim.elsewhere
        ]
        judged = [
            row for row in verdicts if row[0].verdict != "not measured"
        ] or verdicts[:1]
        parts.append(
            "\n".join(
                f"- **{judged_anew(v)}** ({where}): {recorded.plain(v.because)}"
                for v, where in judged
            )
        )
        parts.append(
            "\n".join(
                f"- *published*, {e['supports']}: {recorded.plain(e['finding'])}"
                f" ({recorded.plain(e['device'])};"
                f" [{recorded.plain(e['source'])}]({e['link']}))"
                for e in claim.evidence
            )
        )
        parts.append(
            f"Tried in notebook {claim.notebooks.replace(' ', ', notebook ')}."
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def _index(source: Path) -> str:
    """The first page: what it is, a board, how to read, and the parts of README.md that
    a reader needs.
    """
    readme = _relinked(
        (ROOT / "README.md").read_text(encoding="utf-8"), "README.md", "index.md"
    )

    def section(heading: str) -> str:
        match = re.search(_SECTION.format(re.escape(heading)), readme)
        if match is None:
            raise ValueError(
                f"README.md has no section {heading!r}, which book/index.md shows: name"
                " the new one there."
            )
        return match[0].strip()

    text = INDEX.read_text(encoding="utf-8").replace("SETUP", section("Two commands"))
    text = text.replace("TRACKS", section("Notebooks")).replace(
        "ORIGINS", section("Where a number comes from")
    )
    return text.replace("COVER", _cover(source))


def _cover(source: Path) -> str:
    """The first board of a notebook that ran, with its sentence; empty if it didn't."""
    (path,) = (source / "notebooks").glob(f"{_COVER}_*.ipynb")
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/html", ""))
            if "lab.SpeedBoard" in "".join(cell["source"]) and (
                match := _FIGURE.search(text)
            ):
                return (
                    match[0].replace("../_static", "_static")
                    + f"\n\n*A board of notebook {_COVER}.*"
                )
    return ""


def _contents(teaching: Iterable[str]) -> Iterator[str]:
    """The tables of contents, which the page's side shows."""
    numbers = [path.stem for path in notebook_files.paths()]
    course_pages = [f"notebooks/{name}" for name in numbers if name < "20"]
    appendix = [f"notebooks/{name}" for name in numbers if name >= "20"]
    look_up = ["glossary", "claims", "recorded", "reference/index"]
    packages = [name.removesuffix(".md") for name in _PACKAGES]
    about = [name.removesuffix(".md") for name in _ABOUT]
    parts = {"Nothing to install": ["try"], "Notebooks": course_pages}
    parts |= {"Appendix": appendix, "Look up": look_up}
    parts |= {
        "Packages": packages,
        "For teachers": [name.removesuffix(".md") for name in teaching],
        "About": about,
    }
    for caption, pages in parts.items():
        if pages:
            yield reference.toctree(caption, pages)
