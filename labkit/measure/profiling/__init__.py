"""Where a training step's time and memory go, what limits its loop, and how much of the machine it uses."""

from labkit.measure.chrome_trace import quiet_profiler
from labkit.measure.profiling.annotations import PARTS, part
from labkit.measure.profiling.bottleneck import Limit, find_bottleneck
from labkit.measure.profiling.host_waits import wait_lines
from labkit.measure.profiling.memory_by_category import MemoryTimeline, memory_timeline
from labkit.measure.profiling.mfu import Utilization, utilization
from labkit.measure.profiling.nsight import (
    Command,
    ncu_command,
    nsys_command,
    nsys_stats_command,
    read_report,
    recorded_report,
)
from labkit.measure.profiling.operator_timing import counted_flop
from labkit.measure.profiling.partition import PartSpan
from labkit.measure.profiling.saved_activations import saved_activation_bytes
from labkit.measure.profiling.standalone_script import as_script
from labkit.measure.profiling.step import StepProfile, profile_step
from labkit.measure.profiling.step_overhead import StepOverhead, step_overhead

__all__ = [
    "PARTS",
    "Command",
    "Limit",
    "MemoryTimeline",
    "PartSpan",
    "StepOverhead",
    "StepProfile",
    "Utilization",
    "as_script",
    "counted_flop",
    "find_bottleneck",
    "memory_timeline",
    "ncu_command",
    "nsys_command",
    "nsys_stats_command",
    "part",
    "profile_step",
    "quiet_profiler",
    "read_report",
    "recorded_report",
    "saved_activation_bytes",
    "step_overhead",
    "utilization",
    "wait_lines",
]
