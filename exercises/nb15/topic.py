"""Checks of notebook 15 on links and layouts: an all-reduce on two levels, a dimension's wire, 70B on 64 GPUs."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.errors import LabError
from labkit.core.units import format_bytes, format_seconds
from labkit.lesson.checks import NotYet, Todo, as_number, call, function, number_close
from labkit.plan.cluster import Cluster, Layout, Step, best_layout, model, require_fit, step
from labkit.plan.costs.collectives import Link, all_reduce_s, hierarchical_all_reduce_s

BATCH = 512
SLOWER = 1.10  # times the fastest layout that is accepted


def two_level(answer: object) -> str:
    """An all-reduce in three phases on two kinds of links, for drawn links and counts."""
    fn = function(answer, 1e9, 2, 8, Link(1e-6, 2e11), Link(1e-5, 2e10))
    draw = random.Random(1501)
    counts = [(2, 8), (7, 3), (128, 8), (1000, 5), (1, 8), (16, 1), (1, 1)]
    for nodes, per_node in counts:
        n_bytes = draw.choice([1e3, 1e6, 1e9, 7e10]) * draw.uniform(1, 2)
        inside = Link(draw.uniform(1, 9) * 1e-6, draw.uniform(1, 9) * 1e11)
        between = Link(draw.uniform(1, 9) * 1e-5, draw.uniform(1, 9) * 1e10)
        expected = all_reduce_s(n_bytes, per_node, inside) + all_reduce_s(n_bytes / per_node, nodes, between)
        given = f"{n_bytes:.3g} B on {nodes:,} x {per_node} GPUs, links {inside} and {between}"
        value = as_number(call(fn, n_bytes, nodes, per_node, inside, between), "s", given)
        if expected == 0 and value != 0:
            raise NotYet(f"For {given}: a GPU alone has nobody to sum with: 0 s, got {brief_repr(value)}.")
        hint = _ring_hint(value, n_bytes, nodes, per_node, inside, between)
        number_close(value, expected, rel=1e-6, unit="s", given=given, hint=hint)
    return "Right for drawn links and sizes, for one node, for one GPU a node, and for a GPU alone."


def _ring_hint(value: float, n_bytes: float, nodes: int, per_node: int, inside: Link, between: Link) -> str:
    part, whole = n_bytes / per_node, n_bytes
    within = all_reduce_s(whole, per_node, inside)
    alpha = 2 * (per_node - 1) * inside.alpha_s + 2 * (nodes - 1) * between.alpha_s
    wrong = {
        within + all_reduce_s(whole, nodes, between): "After the reduce-scatter a GPU holds 1/per_node of the bytes: "
        "only these travel between the nodes.",
        within / 2 + all_reduce_s(part, nodes, between): "RankContext there are two phases: the all-gather comes last.",
        within + all_reduce_s(part, nodes, between) / 2: "Between the nodes the all-reduce is a reduce-scatter and an "
        "all-gather too.",
        all_reduce_s(part, nodes, between): "The two phases inside the node are missing.",
        within: "The phase between the nodes is missing.",
        all_reduce_s(whole, per_node, between) + all_reduce_s(part, nodes, inside): "The links are exchanged.",
        all_reduce_s(whole, nodes * per_node, between): "That is one ring through all GPUs, not two levels.",
        hierarchical_all_reduce_s(whole, nodes, per_node, inside, between): "Between the nodes this takes a tree where "
        "that is faster. Here each phase is a ring.",
        within + all_reduce_s(part, nodes, between) - alpha: "Every hop costs alpha_s besides its bytes.",
    }
    for seconds, words in wrong.items():
        if value and math.isclose(value, seconds, rel_tol=1e-6):
            return words
    return "Add up: reduce-scatter inside, all-reduce of 1/per_node of the bytes between nodes, all-gather inside."


def place(answer: object) -> str:
    """The order of dimensions with the least time on the wires, for drawn traffic and nodes of several sizes."""
    fn = function(
        answer, {"tensor": 3e11, "pipeline": 1e9, "data": 4e9}, {"tensor": 8, "pipeline": 8, "data": 16}, 8, 2e11, 2e10
    )
    draw = random.Random(1502)
    greedy_fails = (
        {"tensor": 9e11, "pipeline": 4e9, "data": 8e11},
        {"tensor": 16, "pipeline": 4, "data": 8},
        8,
        2e11,
        2e10,
    )
    cases: list[tuple[dict[str, float], dict[str, int], int, float, float]] = [greedy_fails]
    for per_node in (8, 8, 4, 72, 1):
        names = draw.sample(["tensor", "pipeline", "data"], 3)
        sent = {name: 10 ** draw.uniform(8, 12) for name in names}
        cases.append(
            (sent, {name: draw.choice([1, 2, 4, 8, 16]) for name in names}, per_node, 2e11, draw.choice([1e10, 4e11]))
        )
    for sent, ranks, per_node, inside, between in cases:
        given = f"sent={ {name: f'{n:.3g} B' for name, n in sent.items()} }, ranks={ranks}, per_node={per_node}"
        got = call(fn, dict(sent), dict(ranks), per_node, inside, between)
        if not isinstance(got, tuple | list) or sorted(map(str, got)) != sorted(sent):
            raise NotYet(f"For {given}: expected the three names, innermost first, got {brief_repr(got)}.")
        best = min(
            itertools.permutations(sent), key=lambda order: _seconds(order, *(sent, ranks, per_node, inside, between))
        )
        least, own = (_seconds(order, sent, ranks, per_node, inside, between) for order in (best, got))
        if own > least * (1 + 1e-9):
            raise NotYet(
                f"For {given}, {inside:.0e} B/s inside and {between:.0e} B/s between: {' '.join(got)} from the inside "
                f"takes {format_seconds(own)}, {' '.join(best)} {format_seconds(least)}. "
                f"{_order_hint(list(got), sent, ranks, per_node)}"
            )
    return "The fastest order for nodes of 1 to 72 GPUs, also where the one that sends most doesn't fit into a node."


def _seconds(
    order: Sequence[str],
    sent: Mapping[str, float],
    ranks: Mapping[str, int],
    per_node: int,
    inside: float,
    between: float,
) -> float:
    total, product = 0.0, 1
    for name in order:
        product *= ranks[name]
        total += sent[name] / (inside if product <= per_node else between)
    return total


def _order_hint(got: list[str], sent: Mapping[str, float], ranks: Mapping[str, int], per_node: int) -> str:
    by_bytes = sorted(sent, key=lambda name: -sent[name])
    if got == by_bytes and ranks[got[0]] > per_node:
        return f"{got[0]} sends most and has more ranks than a node: nothing is inside then. What if it comes last?"
    if got == by_bytes[::-1]:
        return "The dimension that sends most is outermost, on the slower wire."
    if got == list(sent):
        return "The order is the dict's own. Compare the orders by their seconds."
    return "Compare the seconds of all six orders, with the wire that each dimension gets in each."


@functools.cache
def _best() -> Step:
    return best_layout(*_task(), BATCH, runners_up=0).step


@functools.cache
def _task() -> tuple[Any, Cluster]:
    return model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64)


def fits(answer: object) -> str:
    """A layout of Llama-2-70B on 64 A100 of 80 GB that fits and is within 10 % of the fastest."""
    if isinstance(answer, dict) and ... in answer.values():
        raise Todo("Replace the dots with a layout.")
    if not isinstance(answer, Layout):
        raise NotYet(f"Expected a lab.cluster.Layout(data=..., tensor=..., ...), got {brief_repr(answer)}.")
    if (answer.dtype, answer.optimizer, answer.overlap) != ("mixed bfloat16", "adam", True):
        raise NotYet("Expected the defaults for dtype, optimizer and overlap: the task is to split, not to shrink.")
    network, cluster = _task()
    try:
        made = require_fit(step(network, cluster, answer, BATCH))
    except LabError as error:
        raise NotYet(str(error)) from error
    times = made.seconds / _best().seconds
    if times > SLOWER:
        parts = sorted(((s, part) for part, s in made.parts.items() if part != "compute"), reverse=True)[:2]
        told = " and ".join(f"{part} {s / made.seconds:.0%}" for s, part in parts)
        raise NotYet(
            f"It fits: {format_bytes(made.memory_bytes)} of {format_bytes(made.capacity_bytes)}. But a step takes "
            f"{format_seconds(made.seconds)}, {times:.2f} times the fastest layout's. Beside compute it spends {told}: "
            "which dimension, or what you recompute, would make that smaller?"
        )
    return (
        f"It fits in {format_bytes(made.memory_bytes)} of {format_bytes(made.capacity_bytes)}, and a step takes "
        f"{format_seconds(made.seconds)}: {times:.2f} times the fastest layout's."
    )
