"""labkit: predict, measure and explain how fast a neural network trains on this machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch. README.md beside this file is the
package's map.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit import dist, plot
    from labkit.core import errors, units
    from labkit.core.display import Table
    from labkit.core.results import recorded
    from labkit.dist import StandIn, launch, report
    from labkit.gpu import kernels
    from labkit.gpu.compiler import compile_cuda, compile_numba
    from labkit.gpu.occupancy import occupancy
    from labkit.gpu.trace import trace
    from labkit.lesson.boards import Curves, SpeedBoard
    from labkit.lesson.checks import check, hint, solution
    from labkit.lesson.explorer import Explorer
    from labkit.lesson.gpu_race import race
    from labkit.lesson.journal import predict, record, summary, verdict
    from labkit.lesson.notebook import start
    from labkit.lesson.seed_curves import SeedCurves
    from labkit.measure import catalog, profiling, simulated
    from labkit.measure.bench import Timing, compare, speedup, time_call
    from labkit.measure.ceilings import measure_ceilings
    from labkit.measure.machine import pick, threads
    from labkit.measure.memory import peak_memory
    from labkit.measure.probe import float32_precision
    from labkit.plan import cluster, costs, published, schedule
    from labkit.plan.cluster import best_layout
    from labkit.train import data, formats, graphs, models, training

__all__ = [
    "Curves",
    "Explorer",
    "SeedCurves",
    "SpeedBoard",
    "StandIn",
    "Table",
    "Timing",
    "best_layout",
    "catalog",
    "check",
    "cluster",
    "compare",
    "compile_cuda",
    "compile_numba",
    "costs",
    "data",
    "dist",
    "errors",
    "float32_precision",
    "formats",
    "graphs",
    "hint",
    "kernels",
    "launch",
    "measure_ceilings",
    "models",
    "occupancy",
    "peak_memory",
    "pick",
    "plot",
    "predict",
    "profiling",
    "published",
    "race",
    "record",
    "recorded",
    "report",
    "schedule",
    "simulated",
    "solution",
    "speedup",
    "start",
    "summary",
    "threads",
    "time_call",
    "trace",
    "training",
    "units",
    "verdict",
]

# The module that holds each public name.
_NAMES = {
    "core.display": ("Table",),
    "core.results": ("recorded",),
    "dist": ("StandIn", "launch", "report"),
    "gpu.compiler": ("compile_cuda", "compile_numba"),
    "gpu.occupancy": ("occupancy",),
    "gpu.trace": ("trace",),
    "lesson.boards": ("Curves", "SpeedBoard"),
    "lesson.checks": ("check", "hint", "solution"),
    "lesson.explorer": ("Explorer",),
    "lesson.gpu_race": ("race",),
    "lesson.journal": ("predict", "record", "summary", "verdict"),
    "lesson.notebook": ("start",),
    "lesson.seed_curves": ("SeedCurves",),
    "measure.bench": ("Timing", "compare", "speedup", "time_call"),
    "measure.ceilings": ("measure_ceilings",),
    "measure.machine": ("pick", "threads"),
    "measure.memory": ("peak_memory",),
    "measure.probe": ("float32_precision",),
    "plan.cluster": ("best_layout",),
}
# The rooms that notebooks use by name, and where each stands.
_ROOMS = {
    "core": ("errors", "units"),
    "gpu": ("kernels",),
    "measure": ("catalog", "profiling", "simulated"),
    "plan": ("cluster", "costs", "published", "schedule"),
    "train": ("data", "formats", "graphs", "models", "training"),
}
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULE_OF = {name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names} | {
    "dist": "dist",
    "plot": "plot",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    module = importlib.import_module(f"labkit.{_HOME_OF.get(name) or _MODULE_OF[name]}")
    value = getattr(module, name) if name in _HOME_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
