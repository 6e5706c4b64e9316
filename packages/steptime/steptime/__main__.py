"""`python -m steptime train.py --lr 1e-3` runs a script and prints what limits its
training loop.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from steptime.errors import TooLittleSeen
from steptime.judge.bottleneck import watching

_USAGE = """usage: python -m steptime SCRIPT [ARGUMENT ...]

Run a training script with its arguments, and print once what limits its loop: after
208 steps, or at the end of 31 or more. A step ends with the optimizer's step."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a script as Python would, inside `watching`, and return 0 or 2.

    SystemExit and errors of the script's own are raised as they are. 2 for no script,
    with a sentence on stderr. Too few steps are said, but not of a script that failed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    if not words or not Path(words[0]).is_file():
        got = repr(words[0]) if words else "none"
        print(f"Expected the file of a script, got {got}.\n{_USAGE}", file=sys.stderr)
        return 2
    leaving = None
    has_ended = False
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    try:
        with watching():
            try:
                runpy.run_path(words[0], run_name="__main__")
            except SystemExit as end:  # the page comes first
                leaving = end
            has_ended = True
    except TooLittleSeen as error:
        if not has_ended:
            raise
        if leaving is None or not leaving.code:
            print(f"steptime: {error}", file=sys.stderr)
    if leaving is not None:
        raise leaving
    return 0


if __name__ == "__main__":
    sys.exit(main())
