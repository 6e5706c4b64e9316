"""The commands: `python -m labkit doctor`, `record` and `report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from labkit.core.errors import LabError


def doctor(_: argparse.Namespace) -> int:
    """What this machine has, what is missing and what to do; exit status 0 when the CPU path works."""
    from labkit.lesson.doctor import examine

    report = examine()
    print(report)
    return 0 if report.works else 1


def record(arguments: argparse.Namespace) -> int:
    """Run the notebooks at full size and keep what they measure in data/recorded."""
    from labkit.lesson.record_runs import record

    record(lambda line: print(line, flush=True), only=arguments.only)
    return 0


def report(_: argparse.Namespace) -> int:
    """Your predictions beside your measurements, and the verdicts on the claims, notebook by notebook."""
    from labkit.core import results
    from labkit.lesson import journal, record_runs

    log = results.results()
    for path in record_runs.paths():
        summary = journal.summary(path.name[:2])
        if summary.rows or summary.verdicts:
            print(f"{path.stem}\n{summary}\n")
    print(f"From {log.path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m labkit")
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (doctor, record, report):
        command = commands.add_parser(run.__name__, help=(run.__doc__ or "").rstrip("."))
        command.set_defaults(run=run)
        if run is record:
            command.add_argument("--only", default="", metavar="NN", help="only the notebooks whose name starts so")
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
