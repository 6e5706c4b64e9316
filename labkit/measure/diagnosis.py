"""One call on a loop of your own: what limits it, what a change gains, and which
sections treat that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import steptime
from labkit.core.parameters import Positive, checked
from labkit.measure import profiling, turns
from labkit.measure.ceilings import MachineCeilings

SECTIONS = {  # limit -> those that treat it best, in half an hour
    "input": "08.1, 08.2",
    "launch overhead": "07.3, 10.1, 10.2",
    "memory bandwidth": "06.1, 06.4",
    "arithmetic": "07.4, 09.6",
    "communication": "12.1",
    "other ranks": "12.5, 14.6",
    "page faults": "02.3, 06.4",
    "garbage collection": "07.5",
    "compiling": "10.6",
    "occasional work": "07.5",
    "first epoch": "02.2, 08.5",
    "too many threads": "08.3",
    "other host work": "07.2",
    "unknown": "07.1, 07.5",
}


def _with_sections(limit: steptime.Limit) -> steptime.Limit:
    advice = f"Read on in sections {SECTIONS[limit.largest]}."
    return replace(limit, evidence=(*limit.evidence, advice))


@checked
def diagnose(
    loop: Callable[..., object],
    batches: object = None,
    *,
    budget_s: Positive = 8.0,
    steps: int = 200,
    ceilings: MachineCeilings | None = None,
) -> steptime.Limit:
    """What limits a training loop, what the changes gain that `steptime.diagnose`
    tries, and where to read on.

    `loop` is a step(batch) for `batches`, tried for about `budget_s` seconds, or a
    whole training without arguments, as `trainer.train`, left after `steps` steps.
    Afterwards it is as before. `watch` watches a script's own loop, and
    `compare(before, after)` says what moved between two pages of the same step.
    """
    options: dict[str, Any] = profiling.on_this_machine(ceilings)
    if batches is None:
        options["steps"] = steps
    else:
        options |= {"budget_s": budget_s, "path": profiling.trace_path()}
    with turns.turn():
        return _with_sections(steptime.diagnose(loop, batches, **options))


def watch(
    batches: Any, *, steps: int = 200, say: Callable[[steptime.Limit], object] = print
) -> Any:
    """`steptime.watch` with this machine's ceilings: `loader =
    lab.diagnose.watch(loader)` in a script.
    """

    def say_with_sections(limit: steptime.Limit) -> None:
        say(_with_sections(limit))

    return steptime.watch(
        batches, steps=steps, say=say_with_sections, **profiling.on_this_machine()
    )


# one name to know for a loop of one's own, and for two of its pages: lab.diagnose
vars(diagnose)["watch"] = watch
vars(diagnose)["compare"] = steptime.compare
