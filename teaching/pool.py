"""Make one page about a class to project, or about recorded runs: exercises, guesses,
claims, results. It needs no network.

Readers are p1, p2, ... in an order that says nothing, unless names are asked for; then
each is the file's name.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.core import results
from labkit.core.errors import DataError
from labkit.core.own_folder import write_whole, writing
from labkit.core.parameters import Count, checked
from labkit.core.text import printable
from teaching import class_page
from teaching.class_files import Reader, read_class, within
from teaching.exam import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "paths", nargs="+", type=Path, help="results files (.jsonl), or folders of them"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("pool.html"),
        help="default: pool.html",
    )
    words = (
        "write the page again every so many seconds while the class works; the browser"
        " loads it again, too"
    )
    parser.add_argument("--every", type=_seconds, metavar="SECONDS", help=words)
    parser.add_argument(
        "--names",
        action="store_true",
        help="call readers by their files' names, not p1, p2",
    )


def _seconds(text: str) -> int:
    """A time between two pages."""
    try:
        seconds = int(text)
    except ValueError:  # no whole number
        seconds = 0
    if not 1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(
            f"expected 1 to 86400 seconds (a day), got {text}"
        )
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and print what was skipped; again and again with --every, until
    Ctrl-C.
    """
    seen: set[str] = set()
    for turn in itertools.count():
        skipped = write_page(
            arguments.paths,
            arguments.output,
            names=arguments.names,
            every=arguments.every,
        )
        for sentence in skipped:
            if sentence not in seen:
                print(sentence, file=sys.stderr)
        seen.update(skipped)
        if not turn:
            print(
                f"{arguments.output} is written. Open it in a browser; it needs no"
                " network."
            )
        if not arguments.every:
            break
        try:
            time.sleep(arguments.every)
        except KeyboardInterrupt:
            break
    return 0


@checked
def write_page(
    paths: Sequence[Path],
    target: Path,
    *,
    names: bool = False,
    every: Count | None = None,
) -> list[str]:
    """Write the page about these files and folders; what was skipped, in sentences that
    may name files.

    A browser loads it again `every` so many seconds; then it may begin without a
    reader. Raises DataError where nothing can be read, or `target` can't be written.
    """
    readers, skipped = read_class(paths, names=names)
    if not readers and not every:
        raise DataError(" ".join(["Expected results files, found none.", *skipped[:5]]))
    with writing(target):
        # whole, also for who reloads it just now
        write_whole(target, as_page(readers, len(skipped), every=every))
    return skipped


def as_page(
    readers: Sequence[Reader], skipped: int = 0, *, every: int | None = None
) -> str:
    """The page (HTML); a browser loads it again `every` so many seconds, or never. It
    names no skipped file.
    """
    kinds = (
        class_page.stuck,
        class_page.exercises,
        class_page.puzzles,
        class_page.minutes,
        class_page.claims,
    )
    shown: dict[str, Any] = {kind.__name__: kind(readers) for kind in kinds}
    for kind in (class_page.guessed, class_page.machines):
        parts = (
            (part["notebook"], filled(f"{kind.__name__}.html", **part))
            for part in kind(readers)
        )
        shown[kind.__name__] = list(within(parts))
    title = f"Results of {len(readers)} reader{'s' * (len(readers) != 1)}"
    words = class_page.next_words(readers)
    shown |= {
        "readers": readers,
        "skipped": skipped,
        "every": every,
        "now": results.now(),
    }
    return "\n".join(
        map(
            printable,
            filled("pool.html", title=title, next=words, **shown).splitlines(),
        )
    )
