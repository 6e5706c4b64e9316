"""`python -m trainplan llama3-70b --gpus 512xH100`: the layouts of a training step,
calculated.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from trainplan._tables import Table
from trainplan.command import Plan, asked
from trainplan.figures import save_steps


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan that the command line asks for, its sentences as wide as the
    terminal, and return 0.

    2 for a plan that doesn't fit in memory or keep to the days and dollars, and with a
    sentence on stderr for what can't be planned.
    """
    try:
        try:
            return _answer(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # whoever reads it has stopped; nor must Python's last flush complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _answer(argv: Sequence[str] | None) -> int:
    try:
        plan = asked(argv)
        _show(plan)
        if plan.picture is not None:
            save_steps(plan.steps, plan.picture)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if plan.holds else 2


def _show(plan: Plan) -> None:
    tables = [plan.table()]
    if plan.differences is not None:
        tables.append(plan.differences.table())
    texts = [_text(table) for table in tables]
    configuration = plan.configuration
    if configuration:
        texts.append(configuration)
    print(*texts, sep="\n\n")


def _text(table: Table) -> str:
    """A table whose sentences are no wider than the terminal."""
    title, *notes = [_filled(text) for text in (table.title, *table.notes)]
    return str(replace(table, title=title, notes=tuple(notes)))


def _filled(text: str) -> str:
    """A text whose lines are no wider than the terminal."""
    width = max(shutil.get_terminal_size().columns, 40)
    lines = [
        textwrap.fill(line, width, break_on_hyphens=False) for line in text.splitlines()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
