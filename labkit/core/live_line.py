"""A line of output that says how far a long cell is, written over itself."""

from __future__ import annotations

import sys

_WIDTH = 78


def tell(sentence: str) -> None:
    """Replace the line."""
    sys.stdout.write(f"\r{sentence:{_WIDTH}}")
    sys.stdout.flush()


def end() -> None:
    """Leave the line as it is."""
    sys.stdout.write("\n")
