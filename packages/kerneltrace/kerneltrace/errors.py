"""The errors that kerneltrace raises. All but these are ValueErrors and TypeErrors.

ValueError
    KernelError      a kernel that can't be traced, or doesn't take its arguments
    TraceTooLarge    a launch whose trace would need more memory than its budget
    CompileError     a source that a compiler rejects, in its own words
    UnknownDevice    gpufacts has no such GPU, or lacks the rates that are needed
AssertionError
    KernelFault      a mistake in a launch under `simulate`: what fails its test
RuntimeError
    MissingCompiler  a compiler isn't installed: the command that installs it
"""

from __future__ import annotations

from typing import Any

from gpufacts import UnknownDevice

__all__ = [
    "CompileError",
    "KernelError",
    "KernelFault",
    "MissingCompiler",
    "TraceTooLarge",
    "UnknownDevice",
]


class KernelError(ValueError):
    """What the kernel uses or is passed, and the nearest that is supported."""


class TraceTooLarge(ValueError):
    """How much the trace would need, and how to trace less."""


class KernelFault(AssertionError):
    """The kernel, its file, and each mistake of a launch with its line."""

    def __init__(self, words: str, findings: tuple[Any, ...] = ()) -> None:
        super().__init__(words)
        self.findings = findings
        """Each a Finding."""


class CompileError(ValueError):
    """The compiler's message, the line, and what to do."""


class MissingCompiler(RuntimeError):
    """The command that installs the compiler."""
