"""The commands for teachers; `python -m teaching` lists them. A subcommand is the
module of that name.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence

from labkit.__main__ import run_command

# Each has add_arguments(parser) and run(arguments), which returns the exit status.
SUBCOMMANDS = (
    "anki",
    "docs",
    "exam",
    "handout",
    "items",
    "nbgrader",
    "otter",
    "path",
    "pool",
    "quiz",
    "record",
    "report",
    "slides",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its
    exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m teaching",
        description="Commands for teachers; `python -m teaching NAME -h` explains one.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in SUBCOMMANDS:
        try:
            module = importlib.import_module(f"teaching.{name}")
        except ModuleNotFoundError as error:
            print(
                f"{sys.executable} has no {error.name}. These commands need the Python"
                " that `make setup` makes: run `source .venv/bin/activate` in the"
                " workbook's folder, then the same command.",
                file=sys.stderr,
            )
            return 1
        words = (module.__doc__ or "").strip()
        # the list shows what stands before the first colon, semicolon or full stop
        summary = re.split(r"[.;:]\s", " ".join(words.split()) + " ")[0]
        command = commands.add_parser(name, help=summary, description=words)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return run_command(parser, argv)


if __name__ == "__main__":
    sys.exit(main())
