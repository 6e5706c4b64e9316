"""The errors of this package: every message says what was expected, what came, and what
to do next.
"""

from __future__ import annotations


class RanksError(Exception):
    """Base of every error that this package raises on purpose."""


class RankFailed(RanksError):
    """A rank of a launch raised, died or hung: the first for its own reason is named;
    no rank is left running.
    """


class BadArgument(RanksError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.
    """
