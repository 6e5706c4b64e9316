"""Plausible wrong answers of notebook 15: number -> (answer, words the check must say, misconception)."""

import math

from trainplan.cluster import Layout, goodput
from trainplan.costs import hierarchical_all_reduce_s


def half_ring(n, size, link):
    return (n - 1) * link.alpha_s + (n - 1) / n * size / link.bytes_per_s


def levels(inner=2, outer=2, swap=False):
    def two_level_s(n_bytes, nodes, per_node, inside, between):
        if swap:
            inside, between = between, inside
        within = inner * half_ring(per_node, n_bytes, inside)
        return within + outer * half_ring(nodes, n_bytes / per_node, between)

    return two_level_s


def hops(inner, outer):
    def two_level_s(n_bytes, nodes, per_node, inside, between):
        right_s = levels()(n_bytes, nodes, per_node, inside, between)
        return right_s + 2 * (inner(per_node) * inside.alpha_s + outer(nodes) * between.alpha_s)

    return two_level_s


def whole_tensor_between(n_bytes, nodes, per_node, inside, between):
    within = (per_node - 1) * inside.alpha_s + (
        per_node - 1
    ) / per_node * n_bytes / inside.bytes_per_s
    across = (nodes - 1) * between.alpha_s + (nodes - 1) / nodes * n_bytes / between.bytes_per_s
    return 2 * within + 2 * across


def without_the_all_gather(n_bytes, nodes, per_node, inside, between):
    part = n_bytes / per_node
    within = (per_node - 1) * inside.alpha_s + (
        per_node - 1
    ) / per_node * n_bytes / inside.bytes_per_s
    across = (nodes - 1) * between.alpha_s + (nodes - 1) / nodes * part / between.bytes_per_s
    return within + 2 * across


def bytes_alone(n_bytes, nodes, per_node, inside, between):
    within = (per_node - 1) / per_node * n_bytes / inside.bytes_per_s
    return 2 * within + 2 * (nodes - 1) / nodes * n_bytes / per_node / between.bytes_per_s


def one_ring(n_bytes, nodes, per_node, inside, between):
    return 2 * half_ring(nodes * per_node, n_bytes, between)


def without_edges(n_bytes, nodes, per_node, inside, between):
    within = 2 * (inside.alpha_s * (per_node - 1) + n_bytes / inside.bytes_per_s)
    return within + 2 * (
        between.alpha_s * (nodes - 1) + n_bytes / per_node / between.bytes_per_s
    )


def for_eight(n_bytes, nodes, per_node, inside, between):
    return levels()(n_bytes, nodes, 8, inside, between)


def in_milliseconds(*given):
    return 1e3 * levels()(*given)


def both_at_once(n_bytes, nodes, per_node, inside, between):
    within = levels(outer=0)(n_bytes, nodes, per_node, inside, between)
    return max(within, levels(inner=0)(n_bytes, nodes, per_node, inside, between))


def daly(save_s, gpus, gpu_hours_between):
    return goodput(gpus, gpu_hours_between, save_s=save_s).interval_s if save_s else 0.0


def interval(factor=2.0, root=True):
    def best_interval_s(save_s, gpus, gpu_hours_between):
        found = factor * save_s * gpu_hours_between * 3600 / gpus
        return math.sqrt(found) if root else found

    return best_interval_s


def as_if_one_gpu(save_s, gpus, gpu_hours_between):
    return math.sqrt(2 * save_s * gpu_hours_between * 3600)


def hours_for_seconds(save_s, gpus, gpu_hours_between):
    return math.sqrt(2 * save_s * gpu_hours_between / gpus)


class OneMicroBatch(Layout):
    def microbatches(self, batch):
        return 1


WRONG = {
    "15.1": [
        (whole_tensor_between, "only these travel between the nodes", "whole-tensor-travels"),
        (without_the_all_gather, "the all-gather comes last", "one-trip-is-enough"),
        (levels(outer=1), "a reduce-scatter and an all-gather too", "one-trip-is-enough"),
        (levels(inner=0), "inside the node are missing", "other-formula"),
        (levels(outer=0), "between the nodes is missing", "other-formula"),
        (bytes_alone, "Every hop costs alpha_s", "latency-is-free"),
        (
            hops(lambda n: 1 - n, lambda n: 0),
            "inside the node costs alpha_s",
            "latency-is-free",
        ),
        (
            hops(lambda n: 0, lambda n: 1 - n),
            "between the nodes costs alpha_s",
            "latency-is-free",
        ),
        (hops(lambda n: 1, lambda n: 1), "n - 1 hops", "off-by-one"),
        (levels(swap=True), "The links are exchanged", "other-formula"),
        (one_ring, "one ring through all GPUs", "whole-tensor-travels"),
        (without_edges, "Add up", "other-formula"),
        (for_eight, "x what we expect", "right-for-one-case"),
        (hierarchical_all_reduce_s, "each phase is a ring", "other-formula"),
        (in_milliseconds, "Add up", "wrong-unit"),
        (both_at_once, "the times of all three add up", "in-turn-or-at-once"),
        (
            lambda n_bytes, nodes, per_node, inside, between: n_bytes / inside.bytes_per_s,
            "s ",
            "other-formula",
        ),
    ],
    "15.4": [
        (Layout(data=64), "split it, and ZeRO", "it-will-fit"),
        (
            Layout(tensor=16, data=4, zero=1),
            "tensor communication",
            "any-link-carries-anything",
        ),
        (
            Layout(data=8, tensor=4, pipeline=2, zero=3),
            "data communication",
            "any-link-carries-anything",
        ),
        (Layout(pipeline=64), "kept for the backward pass", "it-will-fit"),
        (
            Layout(data=8, tensor=4, pipeline=2, zero=1, sequence_parallel=False),
            "kept for the backward pass",
            "it-will-fit",
        ),
        (Layout(data=64, zero=1), "split it, and ZeRO", "it-will-fit"),
        (
            Layout(data=64, zero=3, micro_batch=2, recompute="full"),
            "times the fastest layout's",
            "other-formula",
        ),
        (Layout(tensor=8, pipeline=8), "times the fastest layout's", "other-formula"),
        (Layout(data=32, tensor=2, pipeline=1), "split it, and ZeRO", "it-will-fit"),
        (
            Layout(data=8, tensor=8, pipeline=2),
            "Expected data x tensor x pipeline = 64 GPUs",
            "result-of-another-kind",
        ),
        (
            Layout(data=4, tensor=4, pipeline=4, zero=1, micro_batch=3),
            "Expected a batch that",
            "result-of-another-kind",
        ),
        (
            Layout(data=8, tensor=4, pipeline=2, zero=1, dtype="float32"),
            "Expected the default for dtype",
            "result-of-another-kind",
        ),
        (
            Layout(data=8, tensor=4, pipeline=2, zero=1, optimizer="sgd"),
            "Expected the default for optimizer",
            "result-of-another-kind",
        ),
        (
            Layout(data=8, tensor=4, pipeline=2, zero=1, schedule="ZB-V"),
            "Expected the default for schedule",
            "result-of-another-kind",
        ),
        (
            OneMicroBatch(data=8, tensor=4, pipeline=2, zero=1),
            "Expected a lab.cluster.Layout",
            "goes-round-the-tool",
        ),
        ((8, 4, 2), "Expected a lab.cluster.Layout", "result-of-another-kind"),
    ],
    "15.6": [
        (as_if_one_gpu, "failures come more often", "failures-dont-add-up"),
        (hours_for_seconds, "is in hours, the rest in seconds", "wrong-unit"),
        (daly, "That is Daly's formula", "other-formula"),
        (
            lambda *given: interval()(*given) + given[0],
            "the save itself isn't work",
            "other-formula",
        ),
        (interval(factor=1.0), "where is the 2?", "other-formula"),
        (interval(factor=0.5), "Set the derivative to 0", "other-formula"),
        (interval(root=False), "take the root", "other-formula"),
        (
            lambda save_s, gpus, hours: hours * 3600 / gpus,
            "Saving that rarely",
            "other-formula",
        ),
        (lambda save_s, gpus, hours: 600.0, "x what we expect", "hard-coded"),
        (
            lambda save_s, gpus, hours: math.sqrt(2 * save_s * hours * 3600 * gpus),
            "not more rarely",
            "failures-dont-add-up",
        ),
    ],
}
