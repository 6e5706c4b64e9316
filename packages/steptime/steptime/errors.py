"""The errors of steptime: every message says what was expected, what came, and what to
do next.
"""

from __future__ import annotations


class StepTimeError(Exception):
    """Base of every error that steptime raises on purpose."""


class BadArgument(StepTimeError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.
    """


class BadMeasurement(BadArgument):
    """A measurement that can't be what it claims to be, or too little
    of one to judge.
    """


class TraceNotWritten(StepTimeError, OSError):
    """A Chrome trace could not be written to its path."""
