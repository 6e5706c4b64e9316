"""After how many steps compiling has paid for itself."""

from __future__ import annotations

import math

from trainplan.arguments import NonNegative, Positive, checked


@checked
def break_even_steps(
    compile_s: NonNegative, eager_s: Positive, compiled_s: Positive
) -> float:
    """The least whole number of steps after which compiling costs no more time than not
    compiling.

    `compile_s` are spent once, `eager_s` and `compiled_s` a step, all in seconds. inf
    where a compiled step is no faster and compiling costs time; 0 where compiling costs
    none and the step is at least as fast. From n * eager_s >= compile_s + n *
    compiled_s. Raises ValueError for negative numbers, and steps of no time.
    """
    saved_s = eager_s - compiled_s
    if saved_s > 0:
        return math.ceil(compile_s / saved_s)
    is_free = compile_s == saved_s == 0
    return 0 if is_free else math.inf
