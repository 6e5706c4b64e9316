"""The exception tree: every message says what was expected, what came, and what to do
next.
"""

from __future__ import annotations

from gpufacts import UnknownDevice as UnknownDevice, UnknownDtype as UnknownDtype
from kerneltrace.arguments import nearest as nearest
from kerneltrace.errors import (
    CompileError as CompileError,
    KernelError as KernelError,
    KernelTraceError as KernelTraceError,
    MissingCompiler as MissingCompiler,
    TraceTooLarge as TraceTooLarge,
)
from ranks.errors import RankFailed as RankFailed, RanksError as RanksError
from steptime.errors import StepTimeError as StepTimeError  # what lab.profiling raises
from trainplan.errors import (
    LayoutError as LayoutError,
    PlanError as PlanError,
    ScheduleError as ScheduleError,
)


class LabError(Exception):
    """Base of every error that labkit raises on purpose."""


class MissingExtra(LabError):
    """A package the call needs is not installed; the message is the command that
    installs it.
    """


class UnknownExercise(LabError, LookupError):
    """An exercise number that no notebook has; the message lists the
    nearest numbers.
    """


class DataError(LabError):
    """A data file is missing or damaged."""


class GraphCompileError(LabError, CompileError):
    """The compiler of torch's graphs is missing or rejected its input; the message says
    why, and what to do.
    """


class WorkerFailed(LabError):
    """A worker that loads data died, hung or raised; by the time this is raised, no
    worker is left.
    """


class NotFinite(LabError, ArithmeticError):
    """A loss or an output is NaN or infinite; the message says at which step, and what
    to do.
    """


class BadArgument(LabError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.

    Each package beside labkit raises a BadArgument of its own: `except ValueError`
    catches all of them, and `except lab.errors.IN_WORDS` every error whose message is
    written for readers.
    """


class BadMeasurement(BadArgument):
    """A measurement that cannot be what it claims to be, or too little
    of one to judge.
    """


IN_WORDS = (
    LabError,
    KernelTraceError,
    PlanError,
    RanksError,
    StepTimeError,
    UnknownDevice,
    UnknownDtype,
)
"""Bases of the errors whose messages are written for readers: labkit's, and those of
what stands beside it.
"""
