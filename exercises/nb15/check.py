"""Checks of notebook 15, a run on many GPUs."""

from __future__ import annotations

import dataclasses
import functools
import math
import random

from labkit.core.display import brief_repr
from labkit.core.units import HOUR_S, format_bytes, format_seconds
from labkit.lesson.answers import mistake
from labkit.lesson.checks import NotYet, close, over_cases
from trainplan.cluster import (
    SOFTWARE,
    BestLayout,
    Cluster,
    Layout,
    Software,
    best_layout,
    goodput,
    model,
    require_fit,
    step,
)
from trainplan.costs import Link, all_reduce_s, hierarchical_all_reduce_s
from trainplan.errors import LayoutError

_BATCH = 512
_SLOWER = 1.10  # the slowest layout accepted, in times of the fastest


def two_level(answer: object) -> str:
    """An all-reduce in three phases on two kinds of links, for drawn
    links and counts.
    """
    draw = random.Random(1501)
    cases = []
    # in the first, hops and bytes take about equally long, so that a mistake in either
    # is seen
    sizes = [
        (1e7, 2, 8),
        (1e9, 7, 3),
        (7e10, 128, 8),
        (1e3, 1000, 5),
        (1e6, 1, 8),
        (1e6, 16, 1),
        (1e9, 1, 1),
    ]
    for least, nodes, per_node in sizes:
        n_bytes = least * draw.uniform(1, 2)
        inside = Link(draw.uniform(1, 9) * 1e-6, draw.uniform(1, 9) * 1e11)
        between = Link(draw.uniform(1, 9) * 1e-5, draw.uniform(1, 9) * 1e10)
        cases.append((n_bytes, nodes, per_node, inside, between))
    template = (
        "{n_bytes:.3g} B on {nodes:,} x {per_node} GPUs, links {inside} and {between}"
    )
    over_cases(
        answer, cases, _two_level_s, close("s", hint=_two_level_hint), given=template
    )
    return (
        "Right for drawn links and sizes, for one node, for one GPU per node, and for a"
        " GPU alone."
    )


def _two_level_s(
    n_bytes: float, nodes: int, per_node: int, inside: Link, between: Link
) -> float:
    return all_reduce_s(n_bytes, per_node, inside) + all_reduce_s(
        n_bytes / per_node, nodes, between
    )


def _two_level_hint(
    value: float, n_bytes: float, nodes: int, per_node: int, inside: Link, between: Link
) -> str:
    if nodes == per_node == 1:
        return "A GPU alone has nobody to sum with: 0 s."
    within = all_reduce_s(n_bytes, per_node, inside)
    across = all_reduce_s(n_bytes / per_node, nodes, between)
    start_s = 2 * (per_node - 1) * inside.alpha_s
    far_start_s = 2 * (nodes - 1) * between.alpha_s
    wrong = {
        within + all_reduce_s(n_bytes, nodes, between): (
            "After the reduce-scatter a GPU holds 1/per_node of the bytes: "
            "only these travel between the nodes."
        ),
        within / 2 + across: (
            "Inside the node there are two phases: the all-gather comes last."
        ),
        within + across / 2: (
            "Between the nodes the all-reduce is a reduce-scatter and an all-gather"
            " too."
        ),
        across: (
            "The two phases inside the node are missing: the times of all three add up."
        ),
        within: (
            "The phase between the nodes is missing: the times of all three add up."
        ),
        _two_level_s(
            n_bytes, nodes, per_node, between, inside
        ): "The links are exchanged.",
        all_reduce_s(
            n_bytes, nodes * per_node, between
        ): "That is one ring through all GPUs, not two levels.",
        hierarchical_all_reduce_s(n_bytes, nodes, per_node, inside, between): (
            "Between the nodes this takes a tree "
            "where that is faster. Here each phase is a ring."
        ),
        within + across - start_s - far_start_s: (
            "Every hop costs alpha_s besides its bytes."
        ),
        within + across - start_s: "Every hop inside the node costs alpha_s too.",
        within + across - far_start_s: "Every hop between the nodes costs alpha_s too.",
        within
        + across
        + 2
        * (
            inside.alpha_s + between.alpha_s
        ): "A ring of n makes n - 1 hops in each phase.",
    }
    otherwise = (
        "Add up: reduce-scatter inside, all-reduce of 1/per_node of the bytes between"
        " nodes, all-gather inside."
    )
    return mistake(value, wrong, otherwise)


_FIXED = ("dtype", "optimizer", "overlap", "schedule", "offload")


@functools.cache
def _searched(software: Software) -> BestLayout:
    """What the planner's search finds with these habits."""
    cluster = Cluster("A100 SXM4 80GB", 64)
    return best_layout(
        model("Llama-2-70B"), cluster, _BATCH, software=software, runners_up=0
    )


def _shrunk(answer: Layout, searched: BestLayout) -> list[str]:
    """The fields of a layout that are neither as by default nor as the search chooses
    them for its library, such as the library's own dtype.
    """
    plain = (Layout(), searched.layout, searched.fastest.layout)
    return [
        name
        for name in _FIXED
        if getattr(answer, name) not in [getattr(layout, name) for layout in plain]
    ]


def fits(answer: object) -> str:
    """A layout of Llama-2-70B on 64 A100 of 80 GB that fits and is within 10 % of the
    fastest.
    """
    if type(answer) is not Layout:
        raise NotYet(
            "Expected a lab.cluster.Layout(data=..., tensor=..., ...), got"
            f" {brief_repr(answer)}."
        )
    # a search decides whether ZeRO-3 gives the weights up between micro-batches
    reshard = answer.software.reshard
    presets = [dataclasses.replace(made, reshard=reshard) for made in SOFTWARE.values()]
    changed = ["software"] if answer.software not in presets else []
    searched = _searched(SOFTWARE["torch"] if changed else answer.software)
    changed = _shrunk(answer, searched) + changed
    if changed:
        raise NotYet(
            f"Expected the default for {', '.join(changed)}: the task is to split, not"
            " to shrink."
        )
    try:
        made = require_fit(
            step(model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64), answer, _BATCH)
        )
    except LayoutError as error:
        raise NotYet(str(error)) from error
    fastest_s = searched.fastest.seconds
    times = made.seconds / fastest_s
    memory = f"{format_bytes(made.memory_bytes)} of {format_bytes(made.capacity_bytes)}"
    # the search's own choice may be a little slower, and surer
    if made.seconds > max(_SLOWER * fastest_s, searched.step.seconds):
        parts = sorted(
            ((s, part) for part, s in made.parts.items() if part != "compute"),
            reverse=True,
        )[:2]
        largest = " and ".join(f"{part} {s / made.seconds:.0%}" for s, part in parts)
        raise NotYet(
            f"It fits: {memory}. But a step takes {format_seconds(made.seconds)},"
            f" {times:.2f} times the fastest layout's. Besides compute it spends"
            f" {largest}: which dimension, or what you recompute, would make that"
            " smaller?"
        )
    return (
        f"It fits in {memory}, and a step takes {format_seconds(made.seconds)}:"
        f" {times:.2f} times the fastest layout's."
    )


def best_interval(answer: object) -> str:
    """Young's interval within 1 %, from drawn times of saving, counts of GPUs and hours
    between failures.

    Whoever tries out intervals, second by second, comes that close, and loses no more
    than who differentiates.
    """
    draw = random.Random(1506)
    cases = [(60.0, 1, 50_000.0)]
    cases += [
        (
            draw.uniform(5, 600),
            draw.choice([8, 1000, 16_384, 100_000]),
            draw.uniform(1e4, 1e5),
        )
        for _ in range(5)
    ]
    over_cases(
        answer, cases, _best_interval_s, close("s", rel=0.01, hint=_interval_hint)
    )
    return "Right for one GPU and for 100,000."


def _best_interval_s(save_s: float, gpus: int, gpu_hours_between: float) -> float:
    """Young 1974, A first order approximation to the optimum checkpoint interval."""
    return math.sqrt(2 * save_s * gpu_hours_between * HOUR_S / gpus)


def _interval_hint(value: float, save_s: float, gpus: int, hours: float) -> str:
    between_s = hours * HOUR_S / gpus
    right = _best_interval_s(save_s, gpus, hours)
    daly_s = goodput(gpus, hours, save_s=save_s).interval_s
    wrong = {
        right
        * math.sqrt(
            gpus
        ): "Any one GPU ends the run: with more GPUs, failures come more often.",
        right
        / math.sqrt(
            HOUR_S
        ): "The time between failures is in hours, the rest in seconds.",
        right
        / math.sqrt(
            2
        ): "On average half an interval is lost, and not all of it: where is the 2?",
        right**2: (
            "The derivative of save_s / interval has the interval squared: take the"
            " root."
        ),
        right * gpus: "With more GPUs failures come more often, not more rarely.",
        right / 2: "Set the derivative to 0: save_s / interval^2 = 1 / (2 between_s).",
        daly_s: "That is Daly's formula. Both shares together are least at Young's.",
        right + save_s: "The seconds are those of work; the save itself isn't work.",
        between_s: (
            "That is the time between failures. Saving that rarely would lose half of"
            " the run."
        ),
    }
    return mistake(
        value,
        wrong,
        "save_s / interval + interval / 2 / between_s is smallest where its derivative"
        " is 0.",
    )


CHECKS = {"15.1": two_level, "15.4": fits, "15.6": best_interval}
