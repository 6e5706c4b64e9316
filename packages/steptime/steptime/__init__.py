"""Where a training step's time and memory go, what limits its loop, and how much of the
machine it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from steptime import errors as errors

if TYPE_CHECKING:
    from steptime.annotations import part as part
    from steptime.bottleneck import (
        diagnose as diagnose,
        find_bottleneck as find_bottleneck,
        watch as watch,
    )
    from steptime.ceilings import (
        Ceilings as Ceilings,
        measure_ceilings as measure_ceilings,
    )
    from steptime.chrome_trace import quiet_profiler as quiet_profiler
    from steptime.host_waits import wait_lines as wait_lines
    from steptime.limits import Gain as Gain, Limit as Limit
    from steptime.memory_by_category import (
        MemoryTimeline as MemoryTimeline,
        memory_timeline as memory_timeline,
        saved_activation_bytes as saved_activation_bytes,
    )
    from steptime.mfu import Utilization as Utilization, utilization as utilization
    from steptime.operator_timing import counted_flop as counted_flop
    from steptime.partition import PartSpan as PartSpan
    from steptime.parts import PARTS as PARTS
    from steptime.step import StepProfile as StepProfile, profile_step as profile_step
    from steptime.unchanged import unchanged as unchanged

_HOME_OF = {
    "Ceilings": "ceilings",
    "Gain": "limits",
    "Limit": "limits",
    "MemoryTimeline": "memory_by_category",
    "PARTS": "parts",
    "PartSpan": "partition",
    "StepProfile": "step",
    "Utilization": "mfu",
    "counted_flop": "operator_timing",
    "diagnose": "bottleneck",
    "find_bottleneck": "bottleneck",
    "measure_ceilings": "ceilings",
    "memory_timeline": "memory_by_category",
    "part": "annotations",
    "profile_step": "step",
    "quiet_profiler": "chrome_trace",
    "saved_activation_bytes": "memory_by_category",
    "unchanged": "unchanged",
    "utilization": "mfu",
    "wait_lines": "host_waits",
    "watch": "bottleneck",
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'steptime' has no attribute {name!r}")
    return getattr(importlib.import_module(f"steptime.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
