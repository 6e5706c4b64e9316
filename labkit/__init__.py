"""labkit: predict, measure and explain how fast a neural network trains on this machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit import (
        catalog,
        cluster,
        costs,
        data,
        formats,
        graphs,
        models,
        plot,
        profiling,
        published,
        ranks,
        schedule,
        simulated,
        training,
    )
    from labkit.bands import Bands
    from labkit.bench import compare, speedup, time_call
    from labkit.ceilings import measure_ceilings
    from labkit.checks import check, hint, solution
    from labkit.cluster import best_layout
    from labkit.compiler import compile_cuda, compile_numba
    from labkit.explorer import Explorer
    from labkit.gpu_race import race
    from labkit.journal import predict, record, summary, verdict
    from labkit.live import Curves, SpeedBoard
    from labkit.machine import pick, threads
    from labkit.memory import peak_memory
    from labkit.notebook import start
    from labkit.probe import float32_precision
    from labkit.ranks import StandIn, as_script, launch, report
    from labkit.records import recorded
    from labkit.residency import occupancy
    from labkit.simt import trace

__all__ = [
    "Bands",
    "Curves",
    "Explorer",
    "SpeedBoard",
    "StandIn",
    "as_script",
    "best_layout",
    "catalog",
    "check",
    "cluster",
    "compare",
    "compile_cuda",
    "compile_numba",
    "costs",
    "data",
    "float32_precision",
    "formats",
    "graphs",
    "hint",
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
    "ranks",
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
    "verdict",
]

# The module that holds each public name which is not a module itself.
_HOMES = {
    "bands": ("Bands",),
    "bench": ("compare", "speedup", "time_call"),
    "ceilings": ("measure_ceilings",),
    "checks": ("check", "hint", "solution"),
    "cluster": ("best_layout",),
    "compiler": ("compile_cuda", "compile_numba"),
    "explorer": ("Explorer",),
    "gpu_race": ("race",),
    "journal": ("predict", "record", "summary", "verdict"),
    "live": ("Curves", "SpeedBoard"),
    "machine": ("pick", "threads"),
    "memory": ("peak_memory",),
    "notebook": ("start",),
    "probe": ("float32_precision",),
    "ranks": ("StandIn", "as_script", "launch", "report"),
    "records": ("recorded",),
    "residency": ("occupancy",),
    "simt": ("trace",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    module = importlib.import_module(f"labkit.{_HOME_OF.get(name, name)}")
    value = getattr(module, name) if name in _HOME_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
