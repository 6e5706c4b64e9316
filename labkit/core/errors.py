"""The errors that labkit raises.

Every message says what was expected, what came, and what to do next. The tree::

    LabError                       what the command line shows without a traceback
        BadArgument                a value that a function can't take; a ValueError
            BadMeasurement         what can't be what it claims to be, or too little
        UnknownExercise            a number that no notebook has; a ValueError
        DataError                  a data file is missing or damaged; the rest are
        GraphCompileError          RuntimeErrors
        MissingExtra
        NotFinite
        WorkerFailed
"""

from __future__ import annotations

from gpufacts import UnknownDevice  # what lab.catalog raises
from labkit.core.text import printable

__all__ = [
    "BadArgument",
    "BadMeasurement",
    "DataError",
    "GraphCompileError",
    "LabError",
    "MissingExtra",
    "NotFinite",
    "UnknownDevice",
    "UnknownExercise",
    "WorkerFailed",
]


class LabError(Exception):
    """Base of every error that labkit raises on purpose. Its words are printable,
    whatever a value or a name in them holds.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class BadArgument(LabError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.
    """


class BadMeasurement(BadArgument):
    """A measurement that cannot be what it claims to be, or too little
    of one to judge.
    """


class UnknownExercise(LabError, ValueError):
    """An exercise number that no notebook has; the message lists the
    nearest numbers.
    """


class DataError(LabError, RuntimeError):
    """A data file is missing or damaged."""


class GraphCompileError(LabError, RuntimeError):
    """The compiler of torch's graphs is missing or rejected its input; the message says
    why, and what to do.
    """


class MissingExtra(LabError, RuntimeError):
    """A package the call needs is not installed; the message is the command that
    installs it.
    """


class NotFinite(LabError, RuntimeError):
    """A loss or an output is NaN or infinite; the message says at which step, and what
    to do.
    """


class WorkerFailed(LabError, RuntimeError):
    """A worker that loads data died, hung or raised; by the time this is raised, no
    worker is left.
    """
