"""labkit: predict, measure and explain how fast a neural network trains on this
machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch.
README.md beside this file is the package's map.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

# `as` is how type checkers and editors know that a name is offered to others
if TYPE_CHECKING:
    from kerneltrace.compiler.cplusplus import compile_cuda as compile_cuda
    from kerneltrace.judge.occupancy import occupancy as occupancy
    from kerneltrace.tracing import trace as trace
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
    from ranks.inside.rank_context import report as report
    from trainplan import cluster as cluster, costs as costs, schedule as schedule


# Each public name, and what it is imported from above: a module that has it, or a
# package with a module of that name.
_HOME_OF = {
    alias.asname: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    home = importlib.import_module(_HOME_OF[name])
    value = (
        importlib.import_module(f"{home.__name__}.{name}")
        if hasattr(home, "__path__")
        else getattr(home, name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
