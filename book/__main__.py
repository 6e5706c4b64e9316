"""Build the book: python -m book [--only 00 03] [--jobs 2] [--pdf] [--lite FOLDER]
[--folder build/book].

Runs the notebooks whose outputs are out of date, in the profile LABKIT_PROFILE, and
writes the site to FOLDER/html. A notebook that `--only` leaves out is shown as it ran
last, or without outputs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from labkit.core.errors import MissingExtra
from labkit.core.paths import ROOT
from labkit.lesson import notebook_files

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Build the book; the exit status. A warning of Sphinx is an error."""
    numbers = [path.name[:2] for path in notebook_files.paths()]
    parser = argparse.ArgumentParser(
        prog="python -m book", description="Build the workbook as a website."
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=numbers,
        choices=numbers,
        metavar="NN",
        help="run only these",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="notebooks that run at a time (1: they disturb each other)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "book",
        help="where to build (build/book)",
    )
    parser.add_argument(
        "--pdf",
        action="store_true",
        help="print each notebook as a PDF too, with Chromium",
    )
    parser.add_argument(
        "--lite",
        type=Path,
        help="make the JupyterLite site in this folder, which python -m book.lite has"
        " built, a part of the book",
    )
    chosen = parser.parse_args(arguments)
    folder = chosen.folder.resolve()
    executed = folder / "executed"
    source = folder / "source"
    site = folder / "html"
    # the book shows its own run, not the reader's results
    os.environ["LABKIT_HOME"] = str(executed / "results")
    try:
        from sphinx.cmd.build import main as sphinx

        from book import pages, printing, run
    except ImportError as error:
        raise MissingExtra(f"The book needs {error.name}: make extras") from error
    run.run(executed, chosen.only, chosen.jobs, lambda line: print(line, flush=True))
    lite = "lite/index.html" if chosen.lite else ""
    pages.write(source, executed, pdf=chosen.pdf, lite=lite)
    shutil.rmtree(site, ignore_errors=True)
    static = f"html_static_path={HERE / 'static'},{source / 'pictures'}"
    options = [
        "-b",
        "html",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        str(HERE),
        "-d",
        str(folder / "doctrees"),
        "-D",
        static,
    ]
    failed: int = sphinx([*options, str(source), str(site)])
    planner = [sys.executable, "-m", "trainplan.page", "-o", str(site / "planner.html")]
    subprocess.run(planner, check=True, stdout=subprocess.DEVNULL)
    if chosen.lite:
        shutil.copytree(chosen.lite, site / "lite")
    if chosen.pdf:
        printing.pdfs(site, lambda line: print(line, flush=True))
    print(f"{site / 'index.html'}: open it in a browser.", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
