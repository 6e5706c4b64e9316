"""Where the time of a training step went, what limits a training loop, how much of the machine a step uses."""

from labkit.profiling.annotations import PARTS, part
from labkit.profiling.limit import LIMITS, Limit, verdict
from labkit.profiling.mfu import Utilization, counted_flop, utilization
from labkit.profiling.partition import Span
from labkit.profiling.script import as_script
from labkit.profiling.step import Operator, StepProfile, profile_step
from labkit.profiling.timeline import MemoryTimeline, memory_timeline, save_snapshot
from labkit.profiling.tools import Command, ncu_command, nsys_command, nsys_stats_command, recorded_report, report

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
    "counted_flop",
    "memory_timeline",
    "ncu_command",
    "nsys_command",
    "nsys_stats_command",
    "part",
    "profile_step",
    "recorded_report",
    "report",
    "save_snapshot",
    "utilization",
    "verdict",
]
