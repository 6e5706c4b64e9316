"""Checks of notebook 10, what the graph can do for speed. Those on functions of tensors are in breaks10."""

from __future__ import annotations

import math
import random
from typing import Any

from exercises.nb10.breaks import chain, clipped
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, as_number, call, function, mapping, number_close
from labkit.plan.costs import break_even_steps


def overhead(answer: object) -> str:
    """(overhead in s, elements whose work takes as long) from the times of an operator at two sizes."""
    fn = function(answer, 1, 4e-6, 1_000_000, 5e-4)
    draw = random.Random(3101)
    for small, large in ((4096, 8192), (10, 11), (1000, 3_000_000), (1, 1_000_000)):
        fixed_s, each_s = draw.uniform(1e-6, 9e-6), 10 ** draw.uniform(-10, -8)
        small_s, large_s = (fixed_s + n * each_s for n in (small, large))
        given = f"small={small:,} in {small_s:.3g} s, large={large:,} in {large_s:.3g} s"
        found_s, elements = _pair(call(fn, small, small_s, large, large_s), given)
        hint = "Not all of small_s is overhead: take the time of its own elements off." if small > 1 else ""
        number_close(found_s, fixed_s, rel=1e-4, unit="s of overhead", given=given, hint=hint)
        hint = "How many elements take as long as the overhead? Seconds over seconds an element."
        number_close(elements, fixed_s / each_s, rel=1e-4, unit="elements", given=given, hint=hint)
    for large_s, what in ((3e-6, "as long as"), (2e-6, "less than")):
        given = f"a large call that takes {what} the small one"
        found_s, elements = _pair(call(fn, 1, 3e-6, 64, large_s), given)
        number_close(found_s, 3e-6, rel=1e-6, unit="s of overhead", given=given, hint="All of small_s, then.")
        if elements != math.inf:
            raise NotYet(f"For {given}: the work does not show at all, so elements is math.inf; got {elements:g}.")
    return "Right for neighbouring sizes, far ones, and where the work does not show."


def _pair(got: Any, given: str) -> tuple[float, float]:
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet(f"For {given}: expected two numbers, (overhead in s, elements), got {brief_repr(got)}.")
    return as_number(got[0], "s", given), as_number(got[1], "elements", given)


def break_even(answer: object) -> str:
    """Steps until compiling has paid, with the cases in which it never does."""
    fn = function(answer, 8.0, 0.5, 0.25)
    draw = random.Random(3106)
    exact = [(8.0, 0.5, 0.25), (1.0, 0.75, 0.5), (0.25, 1.0, 0.5)]  # binary fractions: no rounding in them
    never = [(8.0, 0.25, 0.25), (8.0, 0.25, 0.5), (1e-9, 0.25, 0.25)]
    free = [(0.0, 0.5, 0.25), (0.0, 0.5, 0.5)]
    drawn = [(draw.uniform(1, 60), draw.uniform(0.02, 0.05), draw.uniform(0.001, 0.019)) for _ in range(5)]
    for compile_s, eager_s, compiled_s in exact + drawn + never + free:
        expected = break_even_steps(compile_s, eager_s, compiled_s)
        given = f"compile_s={compile_s:.4g}, eager_s={eager_s:.3g}, compiled_s={compiled_s:.3g}"
        steps = as_number(call(fn, compile_s, eager_s, compiled_s), "steps", given)
        _judge_steps(steps, expected, compile_s / (eager_s - compiled_s) if eager_s > compiled_s else math.inf, given)
    return "Right where it pays at once, later and never, and in whole steps."


def _judge_steps(steps: float, expected: float, unrounded: float, given: str) -> None:
    if steps == expected:
        return
    if math.isinf(expected):
        raise NotYet(f"For {given}: a step that is no faster never pays back what was spent: math.inf, got {steps:g}.")
    if not math.isfinite(steps):
        raise NotYet(
            f"For {given}: {expected:,.0f} steps were expected, got {steps}. Is there a cost to pay back at all?"
        )
    if abs(steps - unrounded) < 1e-6 * unrounded:
        raise NotYet(f"For {given}: {steps:.6g} is right but no whole number: after which whole step has it paid?")
    if abs(steps - expected) == 1:
        hint = "A step too early the cost is not back yet; where the division comes out even, no step more is needed."
        raise NotYet(f"For {given}: {expected:,.0f} steps were expected, got {steps:,.0f}. {hint}")
    raise NotYet(
        f"For {given}: {expected:,.0f} steps were expected, got {steps:,.6g}. Each step saves eager_s - compiled_s."
    )


_SCENARIOS = {"class": "a lesson", "sweep": "200 short runs", "night": "a long run that waits for its data"}
# Scenario -> (compile?, steps after which it has paid), from the numbers in the notebook.
_DECISIONS = {
    "class": (False, break_even_steps(2 * 18, 0.015, 0.012)),
    "sweep": (True, break_even_steps(40 + 199 * 5, 0.030, 0.020)),
    "night": (False, math.inf),
}
_WHY = {
    "class": "How often is it compiled, with a last batch of another size? And how many steps are 5 passes of 23?",
    "sweep": "The first run compiles for 40 s, each of the other 199 for 5 s; together they make 400,000 steps.",
    "night": "A batch is ready every 100 ms, whatever the GPU does: how long does a step take, before and after?",
}


def decide(answer: object) -> str:
    """Whether to compile in three scenarios, and after how many steps it has paid."""
    for name, value in mapping(answer, _SCENARIOS).items():
        wanted, steps = _DECISIONS[name]
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise NotYet(f"{name}: expected a pair, (True or False, steps), got {brief_repr(value)}.")
        if any(part is ... for part in value):
            raise Todo(f"Still open: {name}.")
        found = as_number(value[1], "steps", name)
        if not (found == steps or abs(found - steps) <= 1):
            raise NotYet(f"{name}: {found:g} is not the number of steps after which it pays. {_WHY[name]}")
        if str(value[0]) not in ("True", "False"):
            raise NotYet(f"{name}: expected True, to compile, or False first, got {brief_repr(value[0])}.")
        if bool(value[0]) != wanted:
            raise NotYet(f"{name}: the steps are right; compare them with the steps that there are. {_WHY[name]}")
    return "Three right decisions, each for its own reason."


CHECKS = {
    "10.1": overhead,
    "10.2": chain,
    "10.3": clipped,
    "10.6a": break_even,
    "10.6b": decide,
}
