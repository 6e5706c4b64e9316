"""Checks of notebook 10, what the graph can do for speed; those of functions of tensors are in tensor_functions."""

from __future__ import annotations

import math
import random

from exercises.answers import parts
from exercises.nb10.tensor_functions import chain, clipped
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, as_number, mapping, number_close, over_cases
from labkit.plan.costs import break_even_steps


def overhead(answer: object) -> str:
    """(overhead in s, elements whose work takes as long) from the times of an operator at two sizes."""
    draw = random.Random(3101)
    cases = []
    for small, large in ((4096, 8192), (10, 11), (1000, 3_000_000), (1, 1_000_000)):
        fixed_s, each_s = draw.uniform(1e-6, 9e-6), 10 ** draw.uniform(-10, -8)
        cases.append((small, fixed_s + small * each_s, large, fixed_s + large * each_s))
    over_cases(answer, [*cases, (1, 3e-6, 64, 3e-6), (1, 3e-6, 64, 2e-6)], _overhead, _judge_overhead)
    return "Right for neighbouring sizes, far ones, and where the work does not show."


def _overhead(small: int, small_s: float, large: int, large_s: float) -> tuple[float, float]:
    each_s = (large_s - small_s) / (large - small)
    if each_s <= 0:
        return small_s, math.inf
    return small_s - small * each_s, small_s / each_s - small


def _judge_overhead(got: object, expected: tuple[float, float], given: str, small: int, *_: float) -> None:
    found_s, found = parts(got, 2, "two numbers, (overhead in s, elements)", given)
    elements = as_number(found, "elements", given)
    if expected[1] == math.inf:
        number_close(found_s, expected[0], rel=1e-6, unit="s of overhead", given=given, hint="All of small_s, then.")
        if elements != math.inf:
            raise NotYet(f"For {given}: the work does not show at all, so elements is math.inf; got {elements:g}.")
        return
    hint = "Not all of small_s is overhead: subtract the time of its own elements." if small > 1 else ""
    number_close(found_s, expected[0], rel=1e-4, unit="s of overhead", given=given, hint=hint)
    hint = "How many elements take as long as the overhead? Divide it by the seconds per element."
    number_close(elements, expected[1], rel=1e-4, unit="elements", given=given, hint=hint)


def break_even(answer: object) -> str:
    """Steps until compiling has paid off, with the cases in which it never does."""
    draw = random.Random(3106)
    exact = [(8.0, 0.5, 0.25), (1.0, 0.75, 0.5), (0.25, 1.0, 0.5)]  # binary fractions: no rounding in them
    never = [(8.0, 0.25, 0.25), (8.0, 0.25, 0.5), (1e-9, 0.25, 0.25)]
    free = [(0.0, 0.5, 0.25), (0.0, 0.5, 0.5)]
    drawn = [(draw.uniform(1, 60), draw.uniform(0.02, 0.05), draw.uniform(0.001, 0.019)) for _ in range(5)]
    over_cases(answer, exact + drawn + never + free, break_even_steps, _judge_steps)
    return "Right where it pays off at once, later and never, and in whole steps."


def _judge_steps(got: object, expected: float, given: str, compile_s: float, eager_s: float, compiled_s: float) -> None:
    steps = as_number(got, "steps", given)
    if steps == expected:
        return
    if math.isinf(expected):
        raise NotYet(f"For {given}: a step that is no faster never pays back what was spent: math.inf, got {steps:g}.")
    if not math.isfinite(steps):
        raise NotYet(f"For {given}: expected {expected:,.0f} steps, got {steps}. Is there a cost to pay back at all?")
    if eager_s > compiled_s and math.isclose(steps, compile_s / (eager_s - compiled_s), rel_tol=1e-6):
        raise NotYet(f"For {given}: {steps:.6g} is right but no whole number: after which whole step has it paid off?")
    hint = (
        "One step earlier the cost isn't paid back yet; if the division leaves no remainder, no step more is needed."
        if abs(steps - expected) == 1
        else "Each step saves eager_s - compiled_s."
    )
    raise NotYet(f"For {given}: expected {expected:,.0f} steps, got {steps:,.6g}. {hint}")


_SCENARIOS = {"class": "a lesson", "sweep": "200 short runs", "night": "a long run that waits for its data"}
# scenario -> (compile?, steps after which it has paid off), from the numbers in the notebook, and a hint
_DECISIONS = {
    "class": (
        (False, break_even_steps(2 * 18, 0.015, 0.012)),
        "How often is it compiled, with a last batch of another size? And how many steps are 5 passes of 23?",
    ),
    "sweep": (
        (True, break_even_steps(40 + 199 * 5, 0.030, 0.020)),
        "The first run compiles for 40 s, each of the other 199 for 5 s; together they make 400,000 steps.",
    ),
    "night": (
        (False, math.inf),
        "A batch is ready every 100 ms, whatever the GPU does: how long does a step take, before and after?",
    ),
}


def decide(answer: object) -> str:
    """Whether to compile in three scenarios, and after how many steps it has paid off."""
    for name, value in mapping(answer, _SCENARIOS).items():
        (wanted, steps), why = _DECISIONS[name]
        compiled, found = parts(value, 2, f"a pair for {name}, (True or False, steps)")
        if compiled is ... or found is ...:
            raise Todo(f"Still open: {name}.")
        number = as_number(found, "steps", name)
        if number != steps and not abs(number - steps) <= 1:
            raise NotYet(f"{name}: {number:g} is not the number of steps after which it pays off. {why}")
        if str(compiled) not in ("True", "False"):  # np.True_ and torch's bools count
            raise NotYet(f"{name}: expected True, to compile, or False first, got {brief_repr(compiled)}.")
        if bool(compiled) != wanted:
            raise NotYet(f"{name}: the steps are right; compare them with the number of steps in the run. {why}")
    return "Three right decisions, each for its own reason."


CHECKS = {
    "10.1": overhead,
    "10.2": chain,
    "10.3": clipped,
    "10.6a": break_even,
    "10.6b": decide,
}
