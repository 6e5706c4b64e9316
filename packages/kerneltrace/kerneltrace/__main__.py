"""`python -m kerneltrace FILE::KERNEL --grid ... --block ...`: trace a kernel, and
print what it asks of a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from gpufacts import find
from kerneltrace._tables import Table
from kerneltrace.command_line import (
    LoadedKernel,
    arguments_of,
    as_declared,
    constants_of,
    extents,
    launch_texts,
    load_kernel,
    parser,
)
from kerneltrace.errors import KernelError, MissingCompiler
from kerneltrace.json_report import plain, trace_fields
from kerneltrace.judge.estimate import capability, rates
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.kernel_trace import Trace
from kerneltrace.judge.occupancy import occupancy
from kerneltrace.machine.grid import MAX_BLOCK, MAX_GRID, WARP, as_dim3
from kerneltrace.tiles.tile_trace import TileTrace, trace as trace_tiles
from kerneltrace.tracing import trace

Report = dict[str, Any]
"""What --json prints."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 1 where a mistake was found in the kernel, 2
    where it can't be traced.
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
    options = parser().parse_args(argv)
    report: Report = {"estimate": None, "review": None, "error": None}
    status = 0
    try:
        on_device = _device_options(options)
        loaded = load_kernel(options.kernel, options.option)
        traced = _traced(options, loaded)
        status = 0 if traced.ok else 1
        left_out = []
        if loaded.left_out:
            left_out.append(Finding("left out", 0, loaded.left_out, mistake=False))
        report.update(trace_fields(traced, left_out))
        if not options.json:
            print("\n".join([_wrapped(traced.table()), *map(str, left_out)]))
        _judge(options, traced, on_device, report)
    except (TypeError, ValueError, MissingCompiler) as error:
        print(error, file=sys.stderr)
        report["error"] = str(error)
        status = status or 2
    if options.json:
        print(json.dumps(report, indent=2, default=str))
    return status


def _traced(options: argparse.Namespace, loaded: LoadedKernel) -> Trace | TileTrace:
    grid = extents("--grid", options.grid)
    block = extents("--block", options.block) if options.block else ()
    blocks = options.blocks
    if blocks is not None and blocks.isdecimal():
        blocks = int(blocks)
    constants = constants_of(options.constant, options.seed)
    texts = launch_texts(loaded, options.arg, constants)
    arguments = as_declared(loaded.signatures, arguments_of(texts, options.seed))
    run: Callable[[], Trace | TileTrace]
    if options.tiles or (loaded.is_triton and not block):
        constants["programs"] = blocks
        if block:
            constants.setdefault("num_warps", max(math.prod(block) // WARP, 1))
        run = functools.partial(
            trace_tiles, loaded.kernel, grid, *arguments, **constants
        )
        hint = "With --block 128 it runs as the PTX that Triton compiles."
    elif not block:
        raise ValueError("Expected --block, the threads of a block, such as 256.")
    else:
        run = functools.partial(
            trace,
            loaded.kernel,
            grid,
            block,
            *arguments,
            shared_bytes=options.shared_bytes,
            blocks=blocks,
            name=loaded.name,
            constants=constants,
        )
        hint = "With --tiles it runs tile by tile." if loaded.is_triton else ""
    try:
        return run()
    except KernelError as error:
        words = filter(None, [str(error), loaded.left_out, hint])
        raise KernelError(" ".join(words)) from error


def _judge(
    options: argparse.Namespace,
    traced: Trace | TileTrace,
    on_device: dict[str, Any],
    report: Report,
) -> None:
    """The estimate and the review that were asked for."""
    if isinstance(traced, TileTrace):
        on_device.pop("registers", None)
    for kind, device in ("estimate", options.device), ("review", options.review):
        if device is None:
            continue
        judged = getattr(traced, kind)(find(device), **on_device)
        report[kind] = plain(judged)
        shown = judged if kind == "review" else _wrapped(judged.table())
        if not options.json:
            print(f"\n{shown}")


def _device_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of an estimate and a review, judged as far as they can be before
    the trace.
    """
    devices = [name for name in (options.device, options.review) if name is not None]
    if not devices and (options.full_grid is not None or options.registers is not None):
        raise ValueError(
            "Expected --device beside --full-grid and --registers, got none. Name a"
            " GPU."
        )
    for name in devices:
        chip = find(name)
        rates(chip)  # or UnknownDevice
        occupancy(
            as_dim3("block", extents("--block", options.block or "1"), MAX_BLOCK),
            registers=1 if options.registers is None else options.registers,
            shared_bytes=options.shared_bytes,
            compute_capability=capability(chip),
        )
    grid = None
    if options.full_grid is not None:
        full_grid = extents("--full-grid", options.full_grid)
        grid = as_dim3("--full-grid", full_grid, MAX_GRID)
    return {"grid": grid, "registers": options.registers}


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
