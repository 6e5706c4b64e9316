"""`python -m kerneltrace FILE.py::KERNEL --grid ... --block ...`: trace a kernel, and print what it asks of a GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kerneltrace.command_line import arguments_of, extents, load_kernel, parser
from kerneltrace.errors import KernelTraceError
from kerneltrace.tracing import trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 1 where a mistake was found in the kernel, 2 where it can't be traced."""
    options = parser().parse_args(argv)
    try:
        kernel = load_kernel(options.kernel)
        grid, block = extents("--grid", options.grid), extents("--block", options.block)
        arguments = arguments_of(options.arg, options.seed)
        traced = trace(kernel, grid, block, *arguments, shared_bytes=options.shared_bytes)
        print(traced)
        if options.device:
            full = extents("--full-grid", options.full_grid) if options.full_grid else None
            print(f"\n{traced.estimate(options.device, grid=full, registers=options.registers)}")
    except KernelTraceError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if traced.ok else 1


if __name__ == "__main__":
    sys.exit(main())
