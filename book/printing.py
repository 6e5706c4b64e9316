"""Print the notebooks' pages of a built book as PDFs, as Chromium prints a page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from labkit.core.errors import LabError, MissingExtra

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-pdf-header-footer",
    "--hide-scrollbars",
)
_LONGEST_S = 120


def pdfs(site: Path, tell: Callable[[str], None]) -> None:
    """Write `site`/pdf/NAME.pdf for each notebook's page.

    Raises MissingExtra without Chromium, and LabError for a page that it can't print.
    """
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        raise MissingExtra("A PDF needs Chromium: make programs, or leave out --pdf.")
    (site / "pdf").mkdir(exist_ok=True)
    for page in sorted((site / "notebooks").glob("*.html")):
        target = site / "pdf" / f"{page.stem}.pdf"
        command = [
            browser,
            *_SWITCHES,
            f"--print-to-pdf={target}",
            page.resolve().as_uri(),
        ]
        try:
            completed = subprocess.run(
                command, capture_output=True, text=True, timeout=_LONGEST_S
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(
                f"Chromium did not print {page.name} within {_LONGEST_S} s: try again."
            ) from error
        if completed.returncode != 0 or not target.is_file():
            last_words = completed.stderr.strip()[-300:]
            raise LabError(f"Chromium could not print {page.name}: {last_words}")
        tell(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
