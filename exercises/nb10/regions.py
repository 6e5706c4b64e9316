"""What it costs to compile a network whole, or in regions, in a process that has
compiled nothing yet.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from labkit.measure.bench import Timing
from labkit.train import graphs

WAYS = ("whole", "whole, again", "whole, cached", "by blocks", "nested")
_STEPS = 40
_UNSETTLED = 5  # steps after the first that may still compile

StepAs = Callable[..., Callable[[], Any]]


def compile_times(step_as: StepAs, ways: Sequence[str], *data: Any) -> list[Timing]:
    """For each way, how long later steps take, and as `first_s` the time from compiling
    to the end of the first step.

    step_as(way, *data) returns a training step that returns its loss. An eager step
    runs before all, so that what any first step waits for isn't counted. A way with
    "cached" in its name finds the code that the one before it compiled.
    """
    step_as("eager", *data)().item()
    return [_timed(step_as, way, data) for way in ways]


def _timed(step_as: StepAs, way: str, data: Sequence[Any]) -> Timing:
    if "cached" in way:
        graphs.forget_compiled()  # as a new process that finds the folder
    else:
        graphs.fresh_cache()
    clock_s = [time.perf_counter()]
    step = step_as(way, *data)
    for _ in range(_STEPS):
        step().item()  # waits for a GPU
        clock_s.append(time.perf_counter())
    taken_s = [end_s - start_s for start_s, end_s in itertools.pairwise(clock_s)]
    return Timing(way, taken_s[0], tuple(taken_s[1 + _UNSETTLED :]))
