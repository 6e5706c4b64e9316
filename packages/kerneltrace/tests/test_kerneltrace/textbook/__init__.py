"""Kernels whose counts a textbook gives: derived by hand, compared with lab.trace, and
with a GPU's own counters.
"""

from test_kerneltrace.textbook import (
    arithmetic,
    coalescing,
    cooperation,
    sharing,
    structures,
)
from test_kerneltrace.textbook.entry import Entry, Want

ENTRIES = (
    *coalescing.ENTRIES,
    *sharing.ENTRIES,
    *cooperation.ENTRIES,
    *arithmetic.ENTRIES,
    *structures.ENTRIES,
)

__all__ = ["ENTRIES", "Entry", "Want"]
