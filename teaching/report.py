"""One HTML file about all that a reader guessed and measured: boards first, then tables. It needs no network."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from exercises.nb16 import course
from labkit.core import results
from labkit.core.display import Table, as_html
from labkit.core.own_folder import writing
from labkit.core.results import Measurement
from labkit.lesson import journal, notebook_files
from labkit.lesson.boards import SpeedBoard
from labkit.lesson.progress import progress
from labkit.measure.bench import Timing
from labkit.measure.machine import machine

# Whatever text a page holds, no script runs and nothing is fetched.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:.9em;display:block;overflow-x:auto}caption{padding:.5em 0}"
    "td,th{padding:.3em .7em;border-bottom:1px solid #8886;vertical-align:top;text-align:left;overflow-wrap:break-word}"
    "figure{margin:1em 0!important}summary{cursor:pointer;padding:.5em 0}"
    ".row{display:flex;flex-wrap:wrap;gap:0 2em}.row figure{max-width:24em}"
    "@media(prefers-color-scheme:dark){.labkit-picture{filter:brightness(.85)}}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", nargs="?", type=Path, default=Path("report.html"), help="default: report.html")


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    with writing(arguments.file):
        write_page(arguments.file)
    print(f"{arguments.file} is written. Open it in a browser; it needs no network.")
    return 0


def write_page(path: Path) -> None:
    """Write the page about this reader's results on this machine. Raises OSError where `path` can't be written."""
    log, here, shown = results.results(), machine(), progress()
    title = f"Speed of training on {here.name}"
    claims = course.claims()
    parts = [f"<p>{as_html(sentence)}</p>" for sentence in (f"From {log.path}, {results.now()}.", *shown.notes[1:])]
    measured = [e for e in log.entries() if isinstance(e, Measurement) and e.machine == here.name]
    for notebook in notebook_files.paths():
        number = notebook.name[:2]
        summary = journal.summary(number)
        if summary.rows or summary.verdicts:
            headings = _headings(notebook)
            parts += [f"<h2>{as_html(headings.get('', notebook.stem))}</h2>"]
            parts += [*_pictures([m for m in measured if m.section[:2] == number], headings), summary._repr_html_()]
    parts += ["<h2>Progress</h2>", Table(shown.rows, shown.headings, notes=shown.notes[:1])._repr_html_()]
    parts += ["<h2>Guesses</h2>", course.calibration()._repr_html_()]
    parts += [f"<h2>Claims</h2><details><summary>{as_html(claims.table().notes[0])}</summary>", claims._repr_html_()]
    parts += ["<h3>Sources of what is published</h3>", _sources(claims), "</details>"]
    path.write_text(as_page(title, "".join(parts)), encoding="utf-8")


def as_page(title: str, body: str) -> str:
    """A page of HTML that stands alone; what is too wide for a phone can be moved sideways."""
    head = f"<meta charset='utf-8'><meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
    head += f"<meta name='viewport' content='width=device-width'><title>{as_html(title)}</title>"
    page = f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body><h1>{as_html(title)}</h1>"
    return f"{page}{body}</body></html>\n"


def _sources(claims: course.Claims) -> str:
    links = {e["source"]: e["link"] for claim in claims.claims for e in claim.evidence}
    return "".join(f"<p><a href='{as_html(link)}'>{as_html(source)}</a></p>" for source, link in sorted(links.items()))


def _headings(notebook: Path) -> dict[str, str]:
    """A notebook's title under "", and its sections' headings under "1", "2", ..."""
    cells = notebook_files.read(notebook)["cells"]
    lines = [line for c in cells if c["cell_type"] == "markdown" for line in "".join(c["source"]).splitlines()[:1]]
    sections = {line.split()[1]: line.removeprefix("## ") for line in lines if line.startswith("## ")}
    return sections | {"": next((line.removeprefix("# ") for line in lines if line.startswith("# ")), notebook.stem)}


def _pictures(measured: Iterable[Measurement], headings: dict[str, str]) -> list[str]:
    """Each board as its last readings make it: rows of one section, unit, size and number format stand together."""
    boards: dict[tuple[str, ...], SpeedBoard] = {}
    for m in measured:
        if not m.samples or min(m.samples) <= 0 or (m.items is None) != (m.unit == "s"):
            continue
        key = m.section, m.unit, m.size, m.dtype
        heading = headings.get(m.section[-1], m.section)
        board = boards.setdefault(key, SpeedBoard(m.section, heading, unit=m.unit, size=m.size, dtype=m.dtype))
        seconds = m.samples if m.items is None else tuple(m.items / rate for rate in m.samples)
        board.add(m.what, Timing(m.what, seconds[0], seconds), items=m.items, simulated=m.origin == "simulated")
    return [board.as_html() for board in boards.values()]
