"""Section 2's sliders: one batch under five schedules, on 2 to 8 stages."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes

from labkit import plot
from labkit.core.parameters import Positive, checked
from trainplan.schedule import (
    Timetable,
    gpipe,
    interleaved,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_v,
)

ORDERS = ("GPipe", "1F1B", "interleaved", "ZB-H1", "ZB-V")
STAGES = (4, 2, 3, 5, 6, 7, 8)  # sliders begin with the first
MICROBATCHES = (1, 2, 4, 8, 16, 32)


@checked
def one_batch(one_device_s: Positive) -> Callable[..., str]:
    """What lab.Explorer draws: a batch that takes one device `one_device_s`, split into
    stages and micro-batches.
    """

    def draw(axes: Axes, order: str, stages: int, micro_batches: int) -> str:
        plan = _plan(order, stages, micro_batches, one_device_s)
        plot.gantt.on(axes, plan, title="One batch", until_s=one_device_s, rows=8)
        held = max(plan.peak_activations) / micro_batches
        return (
            f"{one_device_s / plan.makespan_s:.1f} times as fast as one device, bubble"
            f" {plan.bubble:.0%}. A rank holds activations of at most {held:.0%} of the"
            " batch."
        )

    return draw


def _plan(order: str, stages: int, microbatches: int, one_device_s: float) -> Timetable:
    """A schedule by its name, with a backward of two forwards and free transfers."""
    both_s = one_device_s / stages / microbatches  # of a micro-batch on a stage
    forward_s = both_s / 3
    backward_s = 2 * both_s / 3
    if order == "ZB-V":
        steps = zb_v(stages, microbatches)
        return simulate(steps, forward_s, backward_s, placement="v")
    if order == "interleaved":
        return simulate(interleaved(stages, microbatches, 2), forward_s, backward_s)
    schedule_of = {"GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1}[order]
    return simulate(schedule_of(stages, microbatches), forward_s, backward_s)
