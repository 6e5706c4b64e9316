"""Where the time of a training step went, what limits a training loop, how much of the machine a step uses."""

from labkit.measure.profiling.annotations import PARTS, part
from labkit.measure.profiling.bottleneck import LIMITS, Limit, find_bottleneck
from labkit.measure.profiling.memory_by_category import MemoryTimeline, memory_timeline
from labkit.measure.profiling.mfu import Utilization, utilization
from labkit.measure.profiling.partition import Span
from labkit.measure.profiling.saved_activations import saved_activation_bytes
from labkit.measure.profiling.standalone_script import as_script
from labkit.measure.profiling.step import Operator, StepProfile, profile_step
from labkit.measure.profiling.tools import (
    Command,
    ncu_command,
    nsys_command,
    nsys_stats_command,
    recorded_report,
    report,
)

__all__ = [
    "LIMITS",
    "PARTS",
    "Command",
    "Limit",
    "MemoryTimeline",
    "Operator",
    "Span",
    "StepProfile",
    "Utilization",
    "as_script",
    "find_bottleneck",
    "memory_timeline",
    "ncu_command",
    "nsys_command",
    "nsys_stats_command",
    "part",
    "profile_step",
    "recorded_report",
    "report",
    "saved_activation_bytes",
    "utilization",
]
