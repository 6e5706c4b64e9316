"""labkit: predict, measure and explain how fast a neural network trains on this
machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch.
README.md beside this file is the package's map.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from labkit.core.paths import IMPORT_FOLDERS

# Colab and graders import labkit from a clone in which nothing is installed.
if importlib.util.find_spec("kerneltrace") is None:
    sys.path.extend(str(folder) for folder in IMPORT_FOLDERS)

# `as` is how type checkers and editors know that a name is offered to others
if TYPE_CHECKING:
    from kerneltrace import (
        compile_cuda as compile_cuda,
        occupancy as occupancy,
        trace as trace,
    )
    from labkit import plot as plot
    from labkit.core import errors as errors, units as units
    from labkit.core.display import Table as Table
    from labkit.lesson.boards import Curves as Curves, SpeedBoard as SpeedBoard
    from labkit.lesson.cards import cards as cards
    from labkit.lesson.checks import check as check, hint as hint, solution as solution
    from labkit.lesson.explorer import Explorer as Explorer
    from labkit.lesson.guesses import predict as predict
    from labkit.lesson.journal import (
        record as record,
        summary as summary,
        verdict as verdict,
    )
    from labkit.lesson.moving import Moving as Moving
    from labkit.lesson.notebook import start as start
    from labkit.lesson.progress import progress as progress
    from labkit.lesson.stepper import Stepper as Stepper
    from labkit.measure import (
        catalog as catalog,
        dist as dist,
        profiling as profiling,
        published as published,
        simulated as simulated,
    )
    from labkit.measure.bench import (
        Timing as Timing,
        compare as compare,
        speedup as speedup,
        time_call as time_call,
    )
    from labkit.measure.ceilings import measure_ceilings as measure_ceilings
    from labkit.measure.diagnosis import diagnose as diagnose
    from labkit.measure.dist import launch as launch
    from labkit.measure.machine import pick as pick, threads as threads
    from labkit.measure.memory import peak_memory as peak_memory
    from labkit.measure.probe import float32_precision as float32_precision
    from labkit.measure.standin import StandIn as StandIn
    from labkit.train import (
        data as data,
        graphs as graphs,
        models as models,
        training as training,
    )
    from ranks import report as report
    from trainplan import cluster as cluster, costs as costs, schedule as schedule

# Each public name, and the module that has it; then those that are modules themselves.
_HOME_OF = {
    "Curves": "labkit.lesson.boards",
    "Explorer": "labkit.lesson.explorer",
    "Moving": "labkit.lesson.moving",
    "SpeedBoard": "labkit.lesson.boards",
    "StandIn": "labkit.measure.standin",
    "Stepper": "labkit.lesson.stepper",
    "Table": "labkit.core.display",
    "Timing": "labkit.measure.bench",
    "cards": "labkit.lesson.cards",
    "check": "labkit.lesson.checks",
    "compare": "labkit.measure.bench",
    "compile_cuda": "kerneltrace",
    "diagnose": "labkit.measure.diagnosis",
    "float32_precision": "labkit.measure.probe",
    "hint": "labkit.lesson.checks",
    "launch": "labkit.measure.dist",
    "measure_ceilings": "labkit.measure.ceilings",
    "occupancy": "kerneltrace",
    "peak_memory": "labkit.measure.memory",
    "pick": "labkit.measure.machine",
    "predict": "labkit.lesson.guesses",
    "progress": "labkit.lesson.progress",
    "record": "labkit.lesson.journal",
    "report": "ranks",
    "solution": "labkit.lesson.checks",
    "speedup": "labkit.measure.bench",
    "start": "labkit.lesson.notebook",
    "summary": "labkit.lesson.journal",
    "threads": "labkit.measure.machine",
    "time_call": "labkit.measure.bench",
    "trace": "kerneltrace",
    "verdict": "labkit.lesson.journal",
}
_MODULES = {
    "catalog": "labkit.measure.catalog",
    "cluster": "trainplan.cluster",
    "costs": "trainplan.costs",
    "data": "labkit.train.data",
    "dist": "labkit.measure.dist",
    "errors": "labkit.core.errors",
    "graphs": "labkit.train.graphs",
    "models": "labkit.train.models",
    "plot": "labkit.plot",
    "profiling": "labkit.measure.profiling",
    "published": "labkit.measure.published",
    "schedule": "trainplan.schedule",
    "simulated": "labkit.measure.simulated",
    "training": "labkit.train.training",
    "units": "labkit.core.units",
}
__all__ = sorted({**_HOME_OF, **_MODULES})


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
