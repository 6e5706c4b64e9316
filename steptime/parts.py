"""The parts of a step's time, and how they are marked in a trace."""

from __future__ import annotations

# Gaps: the GPU is idle while the CPU works. Other: no operator runs.
PARTS = ("input", "copies", "forward", "backward", "optimizer", "gaps", "communication", "other")
NAMED = ("input", "copies", "forward", "backward", "optimizer", "communication")
PREFIX = "steptime: "  # of the names that this package gives to ranges of a trace
