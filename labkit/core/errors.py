"""The exception tree: every message says what was expected, what came, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from steptime.errors import StepTimeError as StepTimeError  # what lab.profiling raises


class LabError(Exception):
    """Base of every error that labkit raises on purpose."""


class MissingExtra(LabError):
    """A package the call needs is not installed; the message is the command that installs it."""


class UnknownDevice(LabError, LookupError):
    """A device name that is not in the catalogue; the message lists the nearest names."""


class UnknownExercise(LabError, LookupError):
    """An exercise number that no notebook has; the message lists the nearest numbers."""


class DataError(LabError):
    """A data file is missing or damaged."""


class CompileError(LabError):
    """A compiler is missing or rejected its input; the message has its own words, the line, and what to do."""


class WorkerFailed(LabError):
    """A worker that loads data died, hung or raised; by the time this is raised, no worker is left."""


class RankFailed(LabError):
    """A rank of a launch raised, died or hung: the first for its own reason is named; no rank is left running."""


class ScheduleError(LabError, ValueError):
    """A schedule that can't run: ranks that wait for each other in a circle, or work in an impossible order."""


class LayoutError(LabError, ValueError):
    """A layout that can't be: what doesn't divide or fit, by how much, and the nearest that does."""


class NotFinite(LabError, ArithmeticError):
    """A loss or an output is NaN or infinite; the message says at which step, and what to do."""


class BadArgument(LabError, ValueError):
    """A value that a function can't take; the message says what it expects and what it got."""


class BadMeasurement(BadArgument):
    """A measurement that cannot be what it claims to be, or too little of one to judge."""


class KernelError(LabError, ValueError):
    """A kernel or a launch that can't be traced: what it uses, and the nearest that is supported."""


class TraceTooLarge(LabError, MemoryError):
    """A trace that would need more memory than its budget."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The `n` known names most like `name`, best first, ignoring case; never empty while `known` is not."""
    names = list(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name[:200].casefold(), list(folded), n=n, cutoff=0.0)
    return [folded[c] for c in close]
