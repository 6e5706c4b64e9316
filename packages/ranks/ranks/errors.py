"""What this package raises: Python's own errors, and one of its own.

TypeError           an argument of a wrong type, or that can't be sent to a rank
ValueError          an argument of a wrong value
RuntimeError        a call at a wrong place, such as a launch inside a rank
    RankFailed      a rank of a launch failed
"""

from __future__ import annotations


class RankFailed(RuntimeError):
    """A rank of a launch raised, died or hung: the first for its own reason is named;
    no rank is left running.
    """
