"""labkit: predict, measure and explain how fast a neural network trains on this machine.

Names load when first used, so that `import labkit` costs milliseconds and no torch. README.md beside this file is the
package's map.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The public names. `as` is how type checkers and editors know that a name is offered to others.
if TYPE_CHECKING:
    from kerneltrace import trace as trace
    from kerneltrace.compiler import compile_cuda as compile_cuda, compile_numba as compile_numba
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
    from labkit.measure.dist import launch as launch
    from labkit.measure.machine import pick as pick, threads as threads
    from labkit.measure.memory import peak_memory as peak_memory
    from labkit.measure.probe import float32_precision as float32_precision
    from labkit.measure.standin import StandIn as StandIn
    from labkit.train import data as data, graphs as graphs, models as models, training as training
    from ranks import report as report
    from trainplan import cluster as cluster, costs as costs, schedule as schedule


def _homes() -> dict[str, str]:
    """Public name -> the module that the imports above take it from."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    lines = [(node, alias) for node in block.body for alias in getattr(node, "names", ())]
    return {alias.name: getattr(node, "module", "") for node, alias in lines}


_HOME_OF = _homes()
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    if (home := _HOME_OF[name]) == "labkit":
        return importlib.import_module(f"labkit.{name}")
    globals()[name] = value = getattr(__import__(home, fromlist=[name]), name)  # which loads a module of that name too
    return value


def __dir__() -> list[str]:
    return __all__
