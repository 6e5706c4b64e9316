"""Plausible wrong answers of notebook 15: number -> (answer, words the check must say)."""

import itertools
import math

from labkit.plan.cluster import Layout
from labkit.plan.costs import checkpoint_interval_s, hierarchical_all_reduce_s


def half_ring(n, size, link, *, alpha=True):
    return (n - 1) * link.alpha_s * alpha + (n - 1) / n * size / link.bytes_per_s


def levels(inner=2, outer=2, whole=False, alpha=True, swap=False):
    def two_level_s(n_bytes, nodes, per_node, inside, between):
        if swap:
            inside, between = between, inside
        part = n_bytes if whole else n_bytes / per_node
        within = inner * half_ring(per_node, n_bytes, inside, alpha=alpha)
        return within + outer * half_ring(nodes, part, between, alpha=alpha)

    return two_level_s


def one_ring(n_bytes, nodes, per_node, inside, between):
    return 2 * half_ring(nodes * per_node, n_bytes, between)


def without_edges(n_bytes, nodes, per_node, inside, between):
    within = 2 * (inside.alpha_s * (per_node - 1) + n_bytes / inside.bytes_per_s)
    return within + 2 * (between.alpha_s * (nodes - 1) + n_bytes / per_node / between.bytes_per_s)


def for_eight(n_bytes, nodes, per_node, inside, between):
    return levels()(n_bytes, nodes, 8, inside, between)


def in_milliseconds(*given):
    return 1e3 * levels()(*given)


def both_at_once(n_bytes, nodes, per_node, inside, between):
    within = levels(outer=0)(n_bytes, nodes, per_node, inside, between)
    return max(within, levels(inner=0)(n_bytes, nodes, per_node, inside, between))


def most_first(sent, ranks, per_node, inside, between):
    return sorted(sent, key=lambda name: -sent[name])


def least_first(sent, ranks, per_node, inside, between):
    return sorted(sent, key=lambda name: sent[name])


def always(sent, ranks, per_node, inside, between):
    return "tensor", "pipeline", "data"


def a_dimension_alone(sent, ranks, per_node, inside, between):
    def seconds(order):
        return sum(sent[name] / (inside if ranks[name] <= per_node else between) for name in order)

    return min(itertools.permutations(sent), key=seconds)


def slowest(sent, ranks, per_node, inside, between):
    def seconds(order):
        total, product = 0.0, 1
        for name in order:
            product *= ranks[name]
            total += sent[name] / (inside if product <= per_node else between)
        return total

    return max(itertools.permutations(sent), key=seconds)


def by_seconds(sent, ranks, per_node, inside, between, own=1):
    def seconds(order):
        within = [math.prod(ranks[name] for name in order[: i + own]) <= per_node for i in range(len(order))]
        return sum(sent[name] / (inside if near else between) for name, near in zip(order, within, strict=True))

    return min(itertools.permutations(sent), key=seconds)


def always_of_eight(sent, ranks, per_node, inside, between):
    return by_seconds(sent, ranks, 8, inside, between)


def without_its_own(*given):
    return by_seconds(*given, own=0)


def that_fit(sent, ranks, per_node, inside, between):
    inner, product = [], 1
    for name in sorted(sent, key=lambda name: -sent[name]):
        if product * ranks[name] <= per_node:
            inner.append(name)
            product *= ranks[name]
    return inner + [name for name in sent if name not in inner]


def least_ranks(sent, ranks, per_node, inside, between):
    return sorted(sent, key=lambda name: ranks[name])


def only_inside(sent, ranks, per_node, inside, between):
    return [name for name in sent if ranks[name] <= per_node]


def costs(flop=6, reached=lambda mfu: mfu, gpus_in_hours=True, kilo=1000, days=24):
    def run_cost(params, tokens, gpus, flop_per_s, mfu, usd_per_hour, power_w):
        hours = flop * params * tokens / (gpus * flop_per_s * reached(mfu)) / 3600
        gpu_hours = hours * gpus if gpus_in_hours else hours
        return {
            "days": hours / days,
            "GPU hours": gpu_hours,
            "US$": gpu_hours * usd_per_hour,
            "kWh": gpu_hours * power_w / kilo,
        }

    return run_cost


def a_tuple(*given):
    return tuple(costs()(*given).values())


def rent_of_one(*given):
    found = costs()(*given)
    return found | {"US$": found["US$"] / given[2]}


def no_energy(*given):
    return {name: value for name, value in costs()(*given).items() if name != "kWh"}


def daly(save_s, gpus, gpu_hours_between):
    between_s = gpu_hours_between * 3600 / gpus
    return checkpoint_interval_s(save_s, between_s) if save_s else 0.0


def interval(factor=2.0, gpus_count=True, seconds=3600.0, root=True):
    def best_interval_s(save_s, gpus, gpu_hours_between):
        between_s = gpu_hours_between * seconds / (gpus if gpus_count else 1)
        found = factor * save_s * between_s
        return math.sqrt(found) if root else found

    return best_interval_s


class OneMicroBatch(Layout):
    def microbatches(self, batch):
        return 1


WRONG = {
    "15.1": [
        (levels(whole=True), "only these travel between the nodes"),
        (levels(inner=1), "the all-gather comes last"),
        (levels(outer=1), "a reduce-scatter and an all-gather too"),
        (levels(inner=0), "inside the node are missing"),
        (levels(outer=0), "between the nodes is missing"),
        (levels(alpha=False), "Every hop costs alpha_s"),
        (levels(swap=True), "The links are exchanged"),
        (one_ring, "one ring through all GPUs"),
        (without_edges, "Add up"),
        (for_eight, "x what we expect"),
        (hierarchical_all_reduce_s, "each phase is a ring"),
        (in_milliseconds, "Add up"),
        (both_at_once, "inside the node are missing"),
        (lambda n_bytes, nodes, per_node, inside, between: n_bytes / inside.bytes_per_s, "s "),
    ],
    "15.2": [
        (most_first, "What if it comes last?"),
        (least_first, "on the slower wire"),
        (always, "takes"),
        (a_dimension_alone, "takes"),
        (slowest, "takes"),
        (that_fit, "takes"),
        (least_ranks, "takes"),
        (without_its_own, "takes"),
        (always_of_eight, "takes"),
        (only_inside, "expected the three names"),
        (lambda sent, *rest: "tensor", "expected the three names"),
        (lambda sent, *rest: {"tensor": 0, "pipeline": 1, "data": 2}, "expected the three names"),
        (lambda sent, ranks, per_node, inside, between: sorted(sent, key=lambda name: -ranks[name]), "takes"),
    ],
    "15.4": [
        (Layout(data=64), "The nearest that fits"),
        (Layout(tensor=16, data=4, zero=1), "tensor communication"),
        (Layout(data=8, tensor=4, pipeline=2, zero=3), "data communication"),
        (Layout(pipeline=64), "kept for the backward pass"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, sequence_parallel=False), "kept for the backward pass"),
        (Layout(data=64, zero=1), "The nearest that fits"),
        (Layout(data=64, zero=3, micro_batch=2, recompute="full"), "times the fastest layout's"),
        (Layout(tensor=8, pipeline=8), "times the fastest layout's"),
        (Layout(data=32, tensor=2, pipeline=1), "The nearest that fits"),
        (Layout(data=8, tensor=8, pipeline=2), "Expected data x tensor x pipeline = 64 GPUs"),
        (Layout(data=4, tensor=4, pipeline=4, zero=1, micro_batch=3), "Expected a batch that"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, dtype="float32"), "Expected the default for dtype"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, optimizer="sgd"), "Expected the default for optimizer"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, schedule="ZB-V"), "Expected the default for schedule"),
        (OneMicroBatch(data=8, tensor=4, pipeline=2, zero=1), "Expected a lab.cluster.Layout"),
        ((8, 4, 2), "Expected a lab.cluster.Layout"),
    ],
    "15.5": [
        (costs(flop=2), "6 in all"),
        (costs(reached=lambda mfu: 1.0), "a lower share means a longer run"),
        (costs(reached=lambda mfu: 1 / mfu), "divide by mfu"),
        (costs(gpus_in_hours=False), "one GPU's part"),
        (costs(kilo=1), "W x hours / 1,000"),
        (costs(days=1), "a day has 86,400"),
        (a_tuple, "Expected a dict with the keys"),
        (rent_of_one, "one GPU's part"),
        (no_energy, "missing ['kWh']"),
        (lambda *given: dict.fromkeys(("days", "GPU hours", "US$", "kWh"), 1.0), "x what we expect"),
    ],
    "15.6": [
        (interval(gpus_count=False), "failures come more often"),
        (interval(seconds=1.0), "is in hours, the rest in seconds"),
        (daly, "That is Daly's formula"),
        (lambda *given: interval()(*given) + given[0], "the save itself isn't work"),
        (interval(factor=1.0), "where is the 2?"),
        (interval(factor=0.5), "Set the derivative to 0"),
        (interval(root=False), "take the root"),
        (lambda save_s, gpus, hours: hours * 3600 / gpus, "Saving that rarely"),
        (lambda save_s, gpus, hours: 600.0, "x what we expect"),
        (lambda save_s, gpus, hours: math.sqrt(2 * save_s * hours * 3600 * gpus), "not more rarely"),
    ],
}
