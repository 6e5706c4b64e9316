"""The commands: `python -m labkit doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from labkit.errors import LabError


def doctor() -> int:
    """Print what this machine has, what is missing and what to do; 0 when the CPU path works."""
    from labkit.doctor import examine

    report = examine()
    print(report)
    return 0 if report.works else 1


# A command is a row here: its name, and a function without arguments that returns the exit status.
COMMANDS: dict[str, Callable[[], int]] = {
    "doctor": doctor,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m labkit")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, run in COMMANDS.items():
        commands.add_parser(name, help=(run.__doc__ or "").split("\n")[0].rstrip("."))
    try:
        return COMMANDS[parser.parse_args(argv).command]()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
