"""The commands: `python -m labkit doctor`, `record`, `claims`, `progress`, `report` and `pool`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.core.errors import IN_WORDS


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


def claims(_: argparse.Namespace) -> int:
    """What became of each claim: here, on recorded machines, in published measurements, and what is missing."""
    from labkit.lesson import course

    print(course.claims())
    return 0


def progress(_: argparse.Namespace) -> int:
    """What is done of each notebook and track, and what to do next."""
    from labkit.lesson.progress import progress

    print(progress())
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Write all that you guessed and measured to one HTML file, with pictures and the table of claims."""
    from labkit.lesson.report_page import write_page

    try:
        write_page(arguments.file)
    except OSError as error:
        print(f"{arguments.file} can't be written ({error.strerror}).", file=sys.stderr)
        return 1
    print(f"{arguments.file} is written. Open it in a browser; it needs no network.")
    return 0


def pool(arguments: argparse.Namespace) -> int:
    """Write the results of a class, or of recorded runs, to one HTML file: guesses, machines, claims, exercises."""
    from labkit.lesson.pool import write_page

    for sentence in write_page(arguments.paths, arguments.output, names=arguments.names):
        print(sentence, file=sys.stderr)
    print(f"{arguments.output} is written. Open it in a browser; it needs no network.")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the command line, without the program) names; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m labkit")
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (doctor, record, claims, progress, report, pool):
        command = commands.add_parser(run.__name__, help=(run.__doc__ or "").rstrip("."))
        command.set_defaults(run=run)
        if run is record:
            command.add_argument("--only", default="", metavar="NN", help="only the notebooks whose name starts so")
        if run is pool:
            command.add_argument("paths", nargs="+", type=Path, help="results files (.jsonl), or folders of them")
            command.add_argument("-o", "--output", type=Path, default=Path("pool.html"), help="default: pool.html")
            command.add_argument("--names", action="store_true", help="call readers by their files' names, not p1, p2")
        if run is report:
            command.add_argument("file", nargs="?", type=Path, default=Path("report.html"), help="default: report.html")
    return run_command(parser, argv)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Call `run` of the command that the command line names; its exit status, or 1 with what one of IN_WORDS says."""
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except IN_WORDS as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
