"""The commands: `python -m labkit doctor` and `progress`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from labkit.core.errors import IN_WORDS


def doctor(_: argparse.Namespace) -> int:
    """What this machine has, what is missing and what to do; exit status 0 when the CPU path works."""
    from labkit.lesson.doctor import examine

    report = examine()
    print(report)
    return 0 if report.works else 1


def progress(_: argparse.Namespace) -> int:
    """What is done of each notebook and track, and what to do next."""
    from labkit.lesson.progress import progress

    print(progress())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m labkit")
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (doctor, progress):
        command = commands.add_parser(run.__name__, help=(run.__doc__ or "").rstrip("."))
        command.set_defaults(run=run)
    return run_command(parser, argv)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Call `run` of the command that the command line names; its exit status, or 1 with what an error in words says."""
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except IN_WORDS as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
