"""labkit: predict, measure and explain how fast a neural network trains on this machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch. README.md beside this file is the
package's map.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` is how type checkers and editors know that a name is offered to others
    from kerneltrace import trace as trace
    from kerneltrace.compiler import compile_cuda as compile_cuda
    from kerneltrace.judge.occupancy import occupancy as occupancy
    from labkit import plot as plot
    from labkit.core import errors as errors, units as units
    from labkit.core.display import Table as Table
    from labkit.lesson.boards import Curves as Curves, SpeedBoard as SpeedBoard
    from labkit.lesson.cards import cards as cards
    from labkit.lesson.checks import check as check, hint as hint, solution as solution
    from labkit.lesson.explorer import Explorer as Explorer
    from labkit.lesson.guesses import predict as predict
    from labkit.lesson.journal import record as record, summary as summary, verdict as verdict
    from labkit.lesson.notebook import start as start
    from labkit.lesson.progress import progress as progress
    from labkit.lesson.review import review as review
    from labkit.lesson.stepper import Stepper as Stepper
    from labkit.measure import (
        catalog as catalog,
        dist as dist,
        profiling as profiling,
        published as published,
        simulated as simulated,
    )
    from labkit.measure.bench import Timing as Timing, compare as compare, speedup as speedup, time_call as time_call
    from labkit.measure.ceilings import measure_ceilings as measure_ceilings
    from labkit.measure.diagnosis import diagnose as diagnose
    from labkit.measure.dist import launch as launch
    from labkit.measure.machine import pick as pick, threads as threads
    from labkit.measure.memory import peak_memory as peak_memory
    from labkit.measure.probe import float32_precision as float32_precision
    from labkit.measure.standin import StandIn as StandIn
    from labkit.train import data as data, graphs as graphs, models as models, training as training
    from ranks import report as report
    from trainplan import cluster as cluster, costs as costs, schedule as schedule


# The module that holds each public name.
_NAMES = {
    "kerneltrace": ("trace",),
    "kerneltrace.compiler": ("compile_cuda",),
    "kerneltrace.judge.occupancy": ("occupancy",),
    "ranks": ("report",),
    "labkit.core.display": ("Table",),
    "labkit.lesson.boards": ("Curves", "SpeedBoard"),
    "labkit.lesson.cards": ("cards",),
    "labkit.lesson.checks": ("check", "hint", "solution"),
    "labkit.lesson.explorer": ("Explorer",),
    "labkit.lesson.guesses": ("predict",),
    "labkit.lesson.journal": ("record", "summary", "verdict"),
    "labkit.lesson.notebook": ("start",),
    "labkit.lesson.progress": ("progress",),
    "labkit.lesson.review": ("review",),
    "labkit.lesson.stepper": ("Stepper",),
    "labkit.measure.bench": ("Timing", "compare", "speedup", "time_call"),
    "labkit.measure.ceilings": ("measure_ceilings",),
    "labkit.measure.diagnosis": ("diagnose",),
    "labkit.measure.dist": ("launch",),
    "labkit.measure.machine": ("pick", "threads"),
    "labkit.measure.memory": ("peak_memory",),
    "labkit.measure.probe": ("float32_precision",),
    "labkit.measure.standin": ("StandIn",),
}
# The rooms that notebooks use by name, and where each stands.
_ROOMS = {
    "labkit.core": ("errors", "units"),
    "labkit.measure": ("catalog", "dist", "profiling", "published", "simulated"),
    "labkit.train": ("data", "graphs", "models", "training"),
    "labkit": ("plot",),
    "trainplan": ("cluster", "costs", "schedule"),
}
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULE_OF = {name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names}
__all__ = sorted([*_HOME_OF, *_MODULE_OF])  # from the tables above, in which each name stands once


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    module = importlib.import_module(_HOME_OF.get(name) or _MODULE_OF[name])
    value = getattr(module, name) if name in _HOME_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
