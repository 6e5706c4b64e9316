"""`python -m kerneltrace FILE::KERNEL --grid ... --block ...`: trace a kernel, and
print what it asks of a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from gpufacts import find
from kerneltrace._tables import Table
from kerneltrace.command_line import arguments_of, extents, load_kernel, parser
from kerneltrace.errors import MissingCompiler
from kerneltrace.judge.estimate import capability, rates
from kerneltrace.judge.occupancy import occupancy
from kerneltrace.machine.grid import MAX_BLOCK, MAX_GRID, as_dim3
from kerneltrace.tracing import trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 1 where a mistake was found in the kernel, 2
    where it can't be traced.
    """
    options = parser().parse_args(argv)
    status = 0
    try:
        grid = extents("--grid", options.grid)
        block = extents("--block", options.block)
        estimate_options = _estimate_asked(options, block)
        kernel = load_kernel(options.kernel)
        arguments = arguments_of(options.arg, options.seed)
        file, _, name = options.kernel.rpartition("::")
        name = name if file.endswith(".cu") else ""  # of Python the kernel is found
        traced = trace(
            kernel,
            grid,
            block,
            *arguments,
            shared_bytes=options.shared_bytes,
            name=name,
        )
        status = 0 if traced.ok else 1
        print(_wrapped(traced.table()))
        if estimate_options:
            print(f"\n{_wrapped(traced.estimate(**estimate_options).table())}")
    except (TypeError, ValueError, MissingCompiler) as error:
        print(error, file=sys.stderr)
        return status or 2
    return status


def _estimate_asked(
    options: argparse.Namespace, block: tuple[int, ...]
) -> dict[str, Any]:
    """The arguments of the estimate, judged as far as they can be before the trace;
    none where no GPU is named.
    """
    if options.device is None:
        if options.full_grid is not None or options.registers is not None:
            raise ValueError(
                "Expected --device beside --full-grid and --registers, got none. Name a"
                " GPU."
            )
        return {}
    chip = find(options.device)
    rates(chip)  # or UnknownDevice
    occupancy(
        as_dim3("block", block, MAX_BLOCK),
        registers=1 if options.registers is None else options.registers,
        shared_bytes=options.shared_bytes,
        compute_capability=capability(chip),
    )
    grid = None
    if options.full_grid is not None:
        full_grid = extents("--full-grid", options.full_grid)
        grid = as_dim3("--full-grid", full_grid, MAX_GRID)
    return {"device": chip, "grid": grid, "registers": options.registers}


def _wrapped(table: Table) -> str:
    """A table's text with the notes below it in lines that fit a terminal; elsewhere
    each stays one line.
    """
    width = max(40, shutil.get_terminal_size((10**6, 24)).columns)
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return str(dataclasses.replace(table, notes=tuple(map(wrap.fill, table.notes))))


if __name__ == "__main__":
    sys.exit(main())
