"""The words of the verdicts on C28 and C32: what combining gives, and whether the
largest models need a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from labkit.core.display import Note
from labkit.lesson.journal import verdict

if TYPE_CHECKING:
    from trainplan.cluster import Step

_LONG = 10  # years


def needs(found: Mapping[str, str], *steps: Step) -> str:
    """What a verdict on steps needs, with what was calculated; empty where published
    runs are like all of them.
    """
    reasons = "; ".join(
        dict.fromkeys(reason for step in steps for reason in step.outside)
    )
    calculated = ", ".join(f"{name}: {value}" for name, value in found.items())
    return (
        f"measured runs, since {reasons}. Calculated alone: {calculated}"
        if reasons
        else ""
    )


def combined(single: Step, several: Step, model: str) -> Note:
    """Judge C28: the best step of several strategies is faster than the best of a
    single one, if their intervals don't overlap and published runs are like both.
    """
    single_s, _ = single.interval_s
    _, several_s = several.interval_s
    calculated = {
        "gain, calculated": f"{single.seconds / several.seconds:.3f}x",
        "best single, at least": f"{single_s:.1f} s",
        "combined, at most": f"{several_s:.1f} s",
    }
    lacking = needs(calculated, single, several)
    return verdict(
        "C28",
        None if lacking else single_s > several_s,
        section="15.4",
        because=calculated,
        when=f"{model} on 64 GPUs, if the intervals of both predictions don't overlap",
        needs=lacking,
    )


def because(
    years_on_one: float, device: str, years: Mapping[str, Sequence[float]]
) -> str:
    """What was calculated: years on one device at its peak, and of each cluster
    (estimate, least, most) in years.
    """
    spans = ", ".join(
        f"{mid:.1f} ({least:.1f} to {most:.1f})" for mid, least, most in years.values()
    )
    return (
        f"calculated: {years_on_one:,.0f} years on one {device} at its peak; on"
        f" {', '.join(years)}: {spans}"
    )


def condition(weak: Sequence[float], outside: Sequence[str] = ()) -> str:
    """What of the claim holds, by the years (estimate, least, most) that four times as
    many weak GPUs would take.

    `outside` is what no published run is like in those years; strong GPUs aren't judged
    then.
    """
    _, least, most = weak
    if outside:
        half = f"whether strong GPUs are isn't judged: {'; '.join(outside)}"
    elif least > _LONG:
        half = "and so are strong GPUs"
    elif most >= _LONG:
        half = "the interval doesn't tell whether strong GPUs are"
    else:
        half = "strong GPUs are not: more will do"
    return f"a trillion parameters, 20 tokens each: a cluster is essential, {half}"
