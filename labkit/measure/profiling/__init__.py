"""Where a training step's time and memory go, what limits its loop, and how much of the machine it uses."""

from labkit.measure.chrome_trace import quiet_profiler as quiet_profiler
from labkit.measure.profiling.annotations import PARTS as PARTS, part as part
from labkit.measure.profiling.bottleneck import Limit as Limit, find_bottleneck as find_bottleneck
from labkit.measure.profiling.host_waits import wait_lines as wait_lines
from labkit.measure.profiling.memory_by_category import (
    MemoryTimeline as MemoryTimeline,
    memory_timeline as memory_timeline,
    saved_activation_bytes as saved_activation_bytes,
)
from labkit.measure.profiling.mfu import Utilization as Utilization, utilization as utilization
from labkit.measure.profiling.operator_timing import counted_flop as counted_flop
from labkit.measure.profiling.partition import PartSpan as PartSpan
from labkit.measure.profiling.step import StepProfile as StepProfile, profile_step as profile_step
from labkit.measure.profiling.step_overhead import StepOverhead as StepOverhead, step_overhead as step_overhead
