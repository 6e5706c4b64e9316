"""Where a training step's time and memory go, what limits its loop, and how much of the
machine it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from steptime import errors as errors

if TYPE_CHECKING:
    from steptime.comparison import (
        LoopComparison as LoopComparison,
        compare as compare,
        load as load,
    )
    from steptime.judge.bottleneck import (
        diagnose as diagnose,
        find_bottleneck as find_bottleneck,
        watch as watch,
        watching as watching,
    )
    from steptime.limits import LIMITS as LIMITS, Gain as Gain, Limit as Limit
    from steptime.loop.script_loop import WatchedBatches as WatchedBatches
    from steptime.measure.ceilings import (
        Ceilings as Ceilings,
        measure_ceilings as measure_ceilings,
    )
    from steptime.measure.clock import Clock as Clock
    from steptime.measure.operator_hooks import EachOperator as EachOperator
    from steptime.measure.operator_timing import counted_flop as counted_flop
    from steptime.measure.training_state import unchanged as unchanged
    from steptime.profile.allocations import (
        MEMORY_CATEGORIES as MEMORY_CATEGORIES,
        Phase as Phase,
    )
    from steptime.profile.chrome_trace import (
        quiet_profiler as quiet_profiler,
        trace_events as trace_events,
    )
    from steptime.profile.gpu_waits import (
        each_read as each_read,
        wait_lines as wait_lines,
    )
    from steptime.profile.memory_timeline import (
        MemoryTimeline as MemoryTimeline,
        memory_timeline as memory_timeline,
        saved_activation_bytes as saved_activation_bytes,
    )
    from steptime.profile.part_spans import PartSpan as PartSpan
    from steptime.profile.parts import PARTS as PARTS, part as part
    from steptime.profile.step_profile import (
        OperatorTime as OperatorTime,
        StepProfile as StepProfile,
        profile_step as profile_step,
    )
    from steptime.profile.utilization import (
        Utilization as Utilization,
        utilization as utilization,
    )

_HOME_OF = {
    "MEMORY_CATEGORIES": "profile.allocations",
    "Ceilings": "measure.ceilings",
    "Clock": "measure.clock",
    "LoopComparison": "comparison",
    "EachOperator": "measure.operator_hooks",
    "Gain": "limits",
    "LIMITS": "limits",
    "Limit": "limits",
    "MemoryTimeline": "profile.memory_timeline",
    "OperatorTime": "profile.step_profile",
    "PARTS": "profile.parts",
    "PartSpan": "profile.part_spans",
    "Phase": "profile.allocations",
    "StepProfile": "profile.step_profile",
    "Utilization": "profile.utilization",
    "WatchedBatches": "loop.script_loop",
    "compare": "comparison",
    "counted_flop": "measure.operator_timing",
    "diagnose": "judge.bottleneck",
    "each_read": "profile.gpu_waits",
    "find_bottleneck": "judge.bottleneck",
    "load": "comparison",
    "measure_ceilings": "measure.ceilings",
    "memory_timeline": "profile.memory_timeline",
    "part": "profile.parts",
    "profile_step": "profile.step_profile",
    "quiet_profiler": "profile.chrome_trace",
    "saved_activation_bytes": "profile.memory_timeline",
    "trace_events": "profile.chrome_trace",
    "unchanged": "measure.training_state",
    "utilization": "profile.utilization",
    "wait_lines": "profile.gpu_waits",
    "watch": "judge.bottleneck",
    "watching": "judge.bottleneck",
}
# each imports its framework
_FRAMEWORKS = ("hf", "keras", "lightning")
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _FRAMEWORKS:
        return importlib.import_module(f"steptime.frameworks.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'steptime' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"steptime.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
