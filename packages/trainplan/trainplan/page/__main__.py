"""Write the planner's page: python -m trainplan.page -o planner.html."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainplan.page.build import page, usual_address


def main(arguments: list[str] | None = None) -> None:
    """Write the page and print where it is."""
    parser = argparse.ArgumentParser(
        prog="python -m trainplan.page",
        description="Write the planner as one HTML page, to open in a browser.",
    )
    parser.add_argument(
        "-o", default="planner.html", type=Path, metavar="FILE", dest="file"
    )
    parser.add_argument(
        "--pyodide",
        metavar="ADDRESS",
        help=f"of Pyodide's files; default: {usual_address()}",
    )
    words = parser.parse_args(arguments)
    words.file.parent.mkdir(parents=True, exist_ok=True)
    words.file.write_text(page(words.pyodide), encoding="utf-8")
    print(f"{words.file}: open it in a browser.")


if __name__ == "__main__":
    main()
