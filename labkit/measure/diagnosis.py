"""One call on a loop of your own: what limits it, what a change gains, and which sections treat that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import steptime
from labkit.core.kinds import Number
from labkit.core.parameters import Positive, checked
from labkit.measure import profiling, turns
from labkit.measure.ceilings import Ceilings
from labkit.measure.machine import machine

# limit -> the sections that treat it
SECTIONS = {
    "input": ("08.1", "08.2", "08.3", "08.5"),
    "launch overhead": ("07.3", "10.1", "10.2"),
    "memory bandwidth": ("06.1", "06.4", "10.2"),
    "arithmetic": ("07.4", "09.6"),
    "communication": ("12.1", "12.4", "12.6"),
    "other ranks": ("12.5", "14.6"),
    "page faults": ("02.3", "06.4"),
    "garbage collection": ("07.5",),
    "compiling": ("10.4", "10.6"),
    "occasional work": ("07.5", "07.6"),
    "first epoch": ("02.2", "08.5"),
    "too many threads": ("08.3",),
    "other host work": ("07.2", "07.6"),
    "unknown": ("07.1", "07.5"),
}
Steps = Annotated[int, Number(least=2, most=100_000)]


def _read_on(limit: steptime.Limit) -> steptime.Limit:
    """With one more sentence: the sections that treat the largest limit."""
    return replace(limit, evidence=(*limit.evidence, f"Read on in sections {', '.join(SECTIONS[limit.largest])}."))


@checked
def diagnose(
    loop: Callable[..., object],
    batches: object = None,
    *,
    budget_s: Positive = 8.0,
    steps: Steps = 200,
    ceilings: Ceilings | None = None,
) -> steptime.Limit:
    """What limits a training loop, how much the changes gain that `steptime.diagnose` tries, and where to read on.

    `loop` is a step(batch), with `batches` for it: experiments take about `budget_s` seconds. Or it is a whole training
    without arguments, such as `trainer.train`, which is left after `steps` steps. The training is afterwards as it was
    before. `diagnose.watch(loader)`, put in place of a loader in a script, watches the loop there as it runs.
    """
    rates = profiling.rates_of(ceilings)
    common: dict[str, Any] = {"ceilings": rates, "device": machine().device, "watch": profiling.watch_others}
    if batches is not None:
        common |= {"budget_s": budget_s, "path": profiling.trace_path()}
    else:
        common["steps"] = steps
    with turns.turn():
        return _read_on(steptime.diagnose(loop, batches, **common))


def watch(batches: Any, *, steps: int = 200, say: Callable[[steptime.Limit], object] = print) -> Any:
    """`steptime.watch` with this machine's ceilings: `loader = lab.diagnose.watch(loader)` in a script."""
    rates, device = profiling.rates_of(None), machine().device
    return steptime.watch(
        batches,
        steps=steps,
        ceilings=rates,
        device=device,
        watch=profiling.watch_others,
        say=lambda found: say(_read_on(found)),
    )


diagnose.watch = watch  # type: ignore[attr-defined]
