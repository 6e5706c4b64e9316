"""What steptime raises, besides the errors of your own step. Every message says what
was expected, what came, and what to do next.

    TypeError, ValueError       an argument that a function can't take
    OSError                     a trace that can't be written to its path
    RuntimeError
        TooLittleSeen           too little to judge
"""

from __future__ import annotations


class TooLittleSeen(RuntimeError):
    """Too little was seen to judge: a loop that ended early, or a step that called no
    operator.

    It has a class of its own since a step may raise RuntimeErrors too.
    """


def stood_still(what: str) -> TooLittleSeen:
    """The error for readings of 0 s: other programs had the core all the time."""
    return TooLittleSeen(
        f"Expected {what} to take time, measured 0 s: the clock leaves out what other"
        " programs take. End some of them, or pass a step that does more."
    )
