"""The errors that kerneltrace raises. All but these are ValueErrors and TypeErrors.

ValueError
    KernelError      a kernel that can't be traced, or doesn't take its arguments
    UnknownDevice    gpufacts has no such GPU, or lacks the rates that are needed
MemoryError
    TraceTooLarge    a trace that would need more memory than its budget
RuntimeError
    CompileError     a compiler rejected its input, in its own words
        MissingCompiler  its library isn't installed: the command that installs it
"""

from __future__ import annotations

from gpufacts import UnknownDevice

__all__ = [
    "CompileError",
    "KernelError",
    "MissingCompiler",
    "TraceTooLarge",
    "UnknownDevice",
]


class KernelError(ValueError):
    """What the kernel uses or is passed, and the nearest that is supported."""


class TraceTooLarge(MemoryError):
    """How much the trace would need, and how to trace less."""


class CompileError(RuntimeError):
    """The compiler's message, the line, and what to do."""


class MissingCompiler(CompileError):
    """The command that installs the compiler."""
