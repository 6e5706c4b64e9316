"""The command `python -m labkit progress`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from labkit.core.errors import LabError


def progress(_: argparse.Namespace) -> int:
    """What is done of each notebook and track, and what to do next."""
    from labkit.lesson.progress import progress

    print(progress())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its
    exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m labkit")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "progress", help=(progress.__doc__ or "").rstrip(".")
    ).set_defaults(run=progress)
    return run_command(parser, argv)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Call `run` of the command that the command line names; its exit status, or 1 with
    what an error in words says.
    """
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
