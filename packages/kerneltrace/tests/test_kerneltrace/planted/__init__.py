"""Kernels with a planted mistake, and correct ones that look as if they had one: what
the tracer has to tell apart.
"""

from test_kerneltrace.planted import (
    between_blocks,
    correct,
    handed_on,
    in_a_block,
    left_behind,
)
from test_kerneltrace.planted.case import Case

MISTAKES: dict[str, Case] = {
    **in_a_block.CASES.found,
    **between_blocks.CASES.found,
    **left_behind.CASES.found,
}
CORRECT: dict[str, Case] = {**correct.CASES.found, **handed_on.CASES.found}

__all__ = ["CORRECT", "MISTAKES", "Case"]
