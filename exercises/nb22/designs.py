"""The hardware that notebook 22 describes, from its own cells: what its wrong answers and recorded reports build on."""

from __future__ import annotations

from typing import Any

from exercises.tagged_cells import tagged_cells


def designs() -> dict[str, Any]:
    """The names that the notebook's cells tagged `design` define: Module, Signal, ProcessingElement, ..."""
    return tagged_cells("22", "design")
