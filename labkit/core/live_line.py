"""A line of output that says how far a long cell is, written over itself."""

from __future__ import annotations

_WIDTH = 78


def tell(sentence: str) -> None:
    """Replace the line."""
    print(f"\r{sentence:{_WIDTH}}", end="", flush=True)


def end() -> None:
    """Leave the line as it is."""
    print()
