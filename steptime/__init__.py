"""Where a training step's time and memory go, what limits its loop, and how much of the machine it uses."""

from labkit.measure.chrome_trace import quiet_profiler as quiet_profiler
from steptime.annotations import PARTS as PARTS, part as part
from steptime.bottleneck import Limit as Limit, find_bottleneck as find_bottleneck
from steptime.host_waits import wait_lines as wait_lines
from steptime.memory_by_category import (
    MemoryTimeline as MemoryTimeline,
    memory_timeline as memory_timeline,
    saved_activation_bytes as saved_activation_bytes,
)
from steptime.mfu import Utilization as Utilization, utilization as utilization
from steptime.operator_timing import counted_flop as counted_flop
from steptime.partition import PartSpan as PartSpan
from steptime.step import StepProfile as StepProfile, profile_step as profile_step
from steptime.step_overhead import StepOverhead as StepOverhead, step_overhead as step_overhead
