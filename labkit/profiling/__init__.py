"""Where the time of a training step went, what limits a training loop, how much of the machine a step uses."""

from labkit.profiling.annotations import PARTS, part
from labkit.profiling.limit import LIMITS, Limit, verdict
from labkit.profiling.partition import Span
from labkit.profiling.step import Operator, StepProfile, profile_step

__all__ = ["LIMITS", "PARTS", "Limit", "Operator", "Span", "StepProfile", "part", "profile_step", "verdict"]
