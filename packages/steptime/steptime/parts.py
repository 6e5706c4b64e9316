"""The parts of a step's time, how they are marked in a trace, and what else takes time
in a loop.
"""

from __future__ import annotations

# Gaps: the GPU is idle while the CPU works. Other: no operator runs.
PARTS = (
    "input",
    "copies",
    "forward",
    "backward",
    "optimizer",
    "gaps",
    "communication",
    "other",
)
NAMED = ("input", "copies", "forward", "backward", "optimizer", "communication")
PREFIX = "steptime: "  # of the names that this package gives to ranges of a trace

# What happens in some steps only, or limits them from outside.
FIRST_EPOCH = "first epoch"
OCCASIONAL = "occasional work"
COMPILING = "compiling"
HOST = "other host work"
COLLECTING = "garbage collection"
FAULTS = "page faults"
RANKS = "other ranks"
THREADS = "too many threads"
