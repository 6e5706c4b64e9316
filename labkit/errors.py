"""The exception tree. Every message says what was expected, what came, and what to do next.

LabError
+-- MissingExtra       a package the call needs is not installed
+-- UnknownDevice      a device name that is not in the catalogue (also a LookupError)
+-- UnknownExercise    an exercise number that no notebook has (also a LookupError)
+-- DataError          a data file is missing, damaged or cannot be fetched
+-- CompileError       a compiler rejected a kernel; its own message and line
+-- BadMeasurement     numbers that cannot be what they claim to be (also a ValueError)
+-- KernelError        a kernel or a launch that can't be traced (also a ValueError)
+-- TraceTooLarge      a trace that would need more memory than its budget (also a MemoryError)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """Base of every error that labkit raises on purpose."""


class MissingExtra(LabError):
    """A package the call needs is not installed; the message is the command that installs it."""


class UnknownDevice(LabError, LookupError):
    """A device name that is not in the catalogue; the message lists the nearest names."""


class UnknownExercise(LabError, LookupError):
    """An exercise number that no notebook has; the message lists the nearest numbers."""


class DataError(LabError):
    """A data file is missing, damaged or cannot be fetched."""


class CompileError(LabError):
    """A compiler rejected a kernel; the message has the compiler's own words, the line, and what to do."""


class BadMeasurement(LabError, ValueError):
    """A measurement that cannot be what it claims to be, or too little of one to judge."""


class KernelError(LabError, ValueError):
    """A kernel or a launch that can't be traced: what it uses, and the nearest that is supported."""


class TraceTooLarge(LabError, MemoryError):
    """A trace that would need more memory than its budget."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The `n` known names most like `name`, best first, ignoring case; never empty while `known` is not."""
    names = list(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=n, cutoff=0.0)
    return [folded[c] for c in close]
