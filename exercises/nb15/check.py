"""Checks of notebook 15, a run on many GPUs."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exercises.answers import mistake
from labkit.core.display import brief_repr
from labkit.core.errors import LabError
from labkit.core.units import DAY_S, HOUR_S, format_bytes, format_seconds
from labkit.lesson.checks import NotYet, as_number, close, mapping, number_close, over_cases
from labkit.plan.cluster import Cluster, Layout, best_layout, model, require_fit, step
from labkit.plan.costs.collectives import Link, all_reduce_s, hierarchical_all_reduce_s
from labkit.plan.costs.failures import checkpoint_interval_s, cluster_mtbf_s
from labkit.plan.costs.money import J_PER_KWH

_BATCH = 512
_SLOWER = 1.10  # the slowest layout accepted, in times of the fastest
_COST_HINTS = {
    "days": "6 FLOP per parameter and token, over gpus x flop_per_s x mfu, are seconds; a day has 86,400.",
    "GPU hours": "Every GPU is busy for the whole run: hours times gpus.",
    "US$": "usd_per_hour is the price of one GPU for an hour.",
    "kWh": "power_w is that of one GPU; W x hours / 1,000.",
}


def two_level(answer: object) -> str:
    """An all-reduce in three phases on two kinds of links, for drawn links and counts."""
    draw = random.Random(1501)
    cases = []
    for nodes, per_node in [(2, 8), (7, 3), (128, 8), (1000, 5), (1, 8), (16, 1), (1, 1)]:
        n_bytes = draw.choice([1e3, 1e6, 1e9, 7e10]) * draw.uniform(1, 2)
        inside = Link(draw.uniform(1, 9) * 1e-6, draw.uniform(1, 9) * 1e11)
        between = Link(draw.uniform(1, 9) * 1e-5, draw.uniform(1, 9) * 1e10)
        cases.append((n_bytes, nodes, per_node, inside, between))
    given = "{n_bytes:.3g} B on {nodes:,} x {per_node} GPUs, links {inside} and {between}"
    over_cases(answer, cases, _two_level_s, close("s", hint=_two_level_hint), given=given)
    return "Right for drawn links and sizes, for one node, for one GPU per node, and for a GPU alone."


def _two_level_s(n_bytes: float, nodes: int, per_node: int, inside: Link, between: Link) -> float:
    return all_reduce_s(n_bytes, per_node, inside) + all_reduce_s(n_bytes / per_node, nodes, between)


def _two_level_hint(value: float, n_bytes: float, nodes: int, per_node: int, inside: Link, between: Link) -> str:
    if nodes == per_node == 1:
        return "A GPU alone has nobody to sum with: 0 s."
    within, across = all_reduce_s(n_bytes, per_node, inside), all_reduce_s(n_bytes / per_node, nodes, between)
    alpha_s = 2 * (per_node - 1) * inside.alpha_s + 2 * (nodes - 1) * between.alpha_s
    wrong = {
        within + all_reduce_s(n_bytes, nodes, between): "After the reduce-scatter a GPU holds 1/per_node of the bytes: "
        "only these travel between the nodes.",
        within / 2 + across: "Inside the node there are two phases: the all-gather comes last.",
        within + across / 2: "Between the nodes the all-reduce is a reduce-scatter and an all-gather too.",
        across: "The two phases inside the node are missing.",
        within: "The phase between the nodes is missing.",
        _two_level_s(n_bytes, nodes, per_node, between, inside): "The links are exchanged.",
        all_reduce_s(n_bytes, nodes * per_node, between): "That is one ring through all GPUs, not two levels.",
        hierarchical_all_reduce_s(n_bytes, nodes, per_node, inside, between): "Between the nodes this takes a tree "
        "where that is faster. Here each phase is a ring.",
        within + across - alpha_s: "Every hop costs alpha_s besides its bytes.",
    }
    otherwise = "Add up: reduce-scatter inside, all-reduce of 1/per_node of the bytes between nodes, all-gather inside."
    return mistake(value, wrong, otherwise)


def place(answer: object) -> str:
    """The order of dimensions with the least time on the wires, for drawn traffic and nodes of several sizes."""
    draw = random.Random(1502)
    # the first: what sends most doesn't fit into a node, so putting it innermost, as a greedy choice would, is slow
    sent, ranks = {"tensor": 9e11, "pipeline": 4e9, "data": 8e11}, {"tensor": 16, "pipeline": 4, "data": 8}
    cases = [(sent, ranks, 8, 2e11, 2e10)]
    for per_node in (8, 8, 4, 72, 1):
        names = draw.sample(["tensor", "pipeline", "data"], 3)
        sent = {name: 10 ** draw.uniform(8, 12) for name in names}
        ranks = {name: draw.choice([1, 2, 4, 8, 16]) for name in names}
        cases.append((sent, ranks, per_node, 2e11, draw.choice([1e10, 4e11])))
    over_cases(answer, {_told(*case): case for case in cases}, _fastest_order, _judge_order)
    return "The fastest order for nodes of 1 to 72 GPUs, also where the one that sends most doesn't fit into a node."


def _told(sent: Mapping[str, float], ranks: Mapping[str, int], per_node: int, inside: float, between: float) -> str:
    n_bytes = {name: f"{value:.3g} B" for name, value in sent.items()}
    return f"sent={n_bytes}, ranks={ranks}, per_node={per_node}, inside={inside:.3g} B/s, between={between:.3g} B/s"


def _fastest_order(
    sent: Mapping[str, float], ranks: Mapping[str, int], per_node: int, inside: float, between: float
) -> tuple[str, ...]:
    return min(itertools.permutations(sent), key=lambda order: _seconds(order, sent, ranks, per_node, inside, between))


def _seconds(
    order: Sequence[str], sent: Mapping[str, float], ranks: Mapping[str, int], per_node: int, *rates: float
) -> float:
    """Time on the wires, whose rates inside and between nodes are in bytes/s; the first of `order` is innermost."""
    products: Iterator[int] = itertools.accumulate((ranks[name] for name in order), operator.mul)
    return sum(sent[name] / rates[product > per_node] for name, product in zip(order, products, strict=True))


def _judge_order(
    got: Any, best: tuple[str, ...], given: str, sent: Mapping[str, float], ranks: Mapping[str, int], *wires: Any
) -> None:
    if not isinstance(got, tuple | list) or sorted(map(str, got)) != sorted(sent):
        raise NotYet(f"For {given}: expected the three names, innermost first, got {brief_repr(got)}.")
    least, own = (_seconds(order, sent, ranks, *wires) for order in (best, got))
    if own <= least * (1 + 1e-9):
        return
    by_bytes, per_node = sorted(sent, key=lambda name: -sent[name]), wires[0]
    if list(got) == by_bytes and ranks[got[0]] > per_node:
        hint = f"{got[0]} sends most and has more ranks than a node: nothing is inside then. What if it comes last?"
    elif list(got) == by_bytes[::-1]:
        hint = "The dimension that sends most is outermost, on the slower wire."
    else:
        hint = "Compare the seconds of all six orders, with the wire that each dimension gets in each."
    raise NotYet(
        f"For {given}: {', '.join(got)}, innermost first, takes {format_seconds(own)}; {', '.join(best)} takes "
        f"{format_seconds(least)}. {hint}"
    )


_FIXED = ("dtype", "optimizer", "overlap", "schedule", "offload", "software")


@functools.cache
def _fastest_step_s() -> float:
    return best_layout(model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64), _BATCH, runners_up=0).step.seconds


def fits(answer: object) -> str:
    """A layout of Llama-2-70B on 64 A100 of 80 GB that fits and is within 10 % of the fastest."""
    if type(answer) is not Layout:
        raise NotYet(f"Expected a lab.cluster.Layout(data=..., tensor=..., ...), got {brief_repr(answer)}.")
    if changed := [name for name in _FIXED if getattr(answer, name) != getattr(Layout(), name)]:
        raise NotYet(f"Expected the default for {', '.join(changed)}: the task is to split, not to shrink.")
    try:
        made = require_fit(step(model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64), answer, _BATCH))
    except LabError as error:
        raise NotYet(str(error)) from error
    times = made.seconds / _fastest_step_s()
    memory = f"{format_bytes(made.memory_bytes)} of {format_bytes(made.capacity_bytes)}"
    if times > _SLOWER:
        parts = sorted(((s, part) for part, s in made.parts.items() if part != "compute"), reverse=True)[:2]
        largest = " and ".join(f"{part} {s / made.seconds:.0%}" for s, part in parts)
        raise NotYet(
            f"It fits: {memory}. But a step takes {format_seconds(made.seconds)}, {times:.2f} times the fastest "
            f"layout's. Besides compute it spends {largest}: which dimension, or what you recompute, would make that "
            "smaller?"
        )
    return (
        f"It fits in {memory}, and a step takes {format_seconds(made.seconds)}: {times:.2f} times the fastest layout's."
    )


def run_cost(answer: object) -> str:
    """Days, GPU hours, US$ and kWh of a run, from drawn numbers."""
    draw = random.Random(1505)
    cases = [(1e12, 2e13, 1, 1e15, 1.0, 0.0, 700.0), (1.0, 1.0, 3, 6.0, 0.5, 1.0, 1000.0)]
    for _ in range(4):
        run = draw.uniform(1, 500) * 1e9, draw.uniform(0.1, 15) * 1e12, draw.choice([8, 100, 1024, 16_384])
        speed = draw.uniform(1e14, 1e15), draw.uniform(0.2, 0.6)
        cases.append((*run, *speed, draw.uniform(0.5, 5), draw.uniform(200, 1000)))
    over_cases(answer, cases, _run_cost, _judge_costs)
    return "Right for one GPU and for thousands, for drawn prices and powers, and where the rent is 0."


def _run_cost(
    params: float, tokens: float, gpus: int, flop_per_s: float, mfu: float, usd_per_hour: float, power_w: float
) -> dict[str, float]:
    seconds = 6 * params * tokens / (gpus * flop_per_s * mfu)
    gpu_hours = gpus * seconds / HOUR_S
    return {
        "days": seconds / DAY_S,
        "GPU hours": gpu_hours,
        "US$": gpu_hours * usd_per_hour,
        "kWh": gpus * power_w * seconds / J_PER_KWH,
    }


def _judge_costs(got: object, expected: dict[str, float], given: str, *case: float) -> None:
    _, _, gpus, _, mfu, _, _ = case
    found = mapping(got, _COST_HINTS, more=True)
    for name, value in expected.items():
        wrong = {
            value
            / 3: "2 FLOP per parameter and token are the forward pass alone; backward takes twice that, 6 in all.",
            value * mfu: "The GPUs reach mfu x flop_per_s: a lower share means a longer run.",
            value * mfu**2: "The GPUs reach mfu x flop_per_s: divide by mfu.",
            value / gpus: "That is one GPU's part.",
            value * gpus: "gpus counts twice.",
        }
        hint = mistake(as_number(found[name], name, given), wrong, _COST_HINTS[name])
        number_close(found[name], value, rel=1e-6, unit=name, given=given, hint=hint)


def best_interval(answer: object) -> str:
    """Young's interval, from drawn times of saving, counts of GPUs and hours between failures."""
    draw = random.Random(1506)
    cases = [(60.0, 1, 50_000.0), (0.0, 1024, 50_000.0)]
    cases += [(draw.uniform(5, 600), draw.choice([8, 1000, 16_384, 100_000]), draw.uniform(1e4, 1e5)) for _ in range(5)]
    over_cases(answer, cases, _best_interval_s, close("s", rel=1e-4, hint=_interval_hint))  # found by trying, too
    return "Right for one GPU and for 100,000, and where saving costs nothing."


def _best_interval_s(save_s: float, gpus: int, gpu_hours_between: float) -> float:
    between_s = cluster_mtbf_s(gpu_hours_between * HOUR_S, gpus)
    return checkpoint_interval_s(save_s, between_s, formula="young") if save_s else 0.0


def _interval_hint(value: float, save_s: float, gpus: int, hours: float) -> str:
    if not save_s:
        return "Saving costs nothing, so save all the time: 0 s."
    between_s = cluster_mtbf_s(hours * HOUR_S, gpus)
    right = _best_interval_s(save_s, gpus, hours)
    wrong = {
        right * math.sqrt(gpus): "Any one GPU ends the run: with more GPUs, failures come more often.",
        right / math.sqrt(HOUR_S): "The time between failures is in hours, the rest in seconds.",
        right / math.sqrt(2): "On average half an interval is lost, and not all of it: where is the 2?",
        right**2: "The derivative of save_s / interval has the interval squared: take the root.",
        right * gpus: "With more GPUs failures come more often, not more rarely.",
        right / 2: "Set the derivative to 0: save_s / interval^2 = 1 / (2 between_s).",
        checkpoint_interval_s(save_s, between_s): "That is Daly's formula. The sum of both shares is least at Young's.",
        right + save_s: "The seconds are those of work; the save itself isn't work.",
        between_s: "That is the time between failures. Saving that rarely would lose half of the run.",
    }
    return mistake(value, wrong, "save_s / interval + interval / 2 / between_s is smallest where its derivative is 0.")


CHECKS = {"15.1": two_level, "15.2": place, "15.4": fits, "15.5": run_cost, "15.6": best_interval}
