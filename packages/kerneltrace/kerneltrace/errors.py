"""The errors of kerneltrace: each says what was expected, what came, and what to do
next.
"""

from __future__ import annotations

from gpufacts import UnknownDevice as UnknownDevice


class KernelTraceError(Exception):
    """Base of every error that kerneltrace raises on purpose."""


class BadArgument(KernelTraceError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.
    """


class KernelError(KernelTraceError, ValueError):
    """A kernel or a launch that can't be traced: what it uses, and the nearest that is
    supported.
    """


class TraceTooLarge(KernelTraceError, MemoryError):
    """A trace that would need more memory than its budget."""


class CompileError(KernelTraceError):
    """A compiler is missing or rejected its input; the message has its own words, the
    line, and what to do.
    """


class MissingCompiler(CompileError):
    """A compiler's library is not installed; the message is the command that installs
    it.
    """
