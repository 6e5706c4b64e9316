"""Plausible wrong answers of notebook 15: number -> (answer, words the check must say)."""

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


def hops(inner, outer):
    def two_level_s(n_bytes, nodes, per_node, inside, between):
        right_s = levels()(n_bytes, nodes, per_node, inside, between)
        return right_s + 2 * (inner(per_node) * inside.alpha_s + outer(nodes) * between.alpha_s)

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
        (hops(lambda n: 1 - n, lambda n: 0), "inside the node costs alpha_s"),
        (hops(lambda n: 0, lambda n: 1 - n), "between the nodes costs alpha_s"),
        (hops(lambda n: 1, lambda n: 1), "n - 1 hops"),
        (levels(swap=True), "The links are exchanged"),
        (one_ring, "one ring through all GPUs"),
        (without_edges, "Add up"),
        (for_eight, "x what we expect"),
        (hierarchical_all_reduce_s, "each phase is a ring"),
        (in_milliseconds, "Add up"),
        (both_at_once, "the times of all three add up"),
        (lambda n_bytes, nodes, per_node, inside, between: n_bytes / inside.bytes_per_s, "s "),
    ],
    "15.4": [
        (Layout(data=64), "split it, and ZeRO"),
        (Layout(tensor=16, data=4, zero=1), "tensor communication"),
        (Layout(data=8, tensor=4, pipeline=2, zero=3), "data communication"),
        (Layout(pipeline=64), "kept for the backward pass"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, sequence_parallel=False), "kept for the backward pass"),
        (Layout(data=64, zero=1), "split it, and ZeRO"),
        (Layout(data=64, zero=3, micro_batch=2, recompute="full"), "times the fastest layout's"),
        (Layout(tensor=8, pipeline=8), "times the fastest layout's"),
        (Layout(data=32, tensor=2, pipeline=1), "split it, and ZeRO"),
        (Layout(data=8, tensor=8, pipeline=2), "Expected data x tensor x pipeline = 64 GPUs"),
        (Layout(data=4, tensor=4, pipeline=4, zero=1, micro_batch=3), "Expected a batch that"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, dtype="float32"), "Expected the default for dtype"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, optimizer="sgd"), "Expected the default for optimizer"),
        (Layout(data=8, tensor=4, pipeline=2, zero=1, schedule="ZB-V"), "Expected the default for schedule"),
        (OneMicroBatch(data=8, tensor=4, pipeline=2, zero=1), "Expected a lab.cluster.Layout"),
        ((8, 4, 2), "Expected a lab.cluster.Layout"),
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
