"""Shapes of networks against counting on a graph, and checkpoints against a simulation of failures."""

import math
import random
from collections import deque
from itertools import product

import pytest

from labkit.core.errors import BadArgument, LayoutError
from labkit.plan.cluster.topologies import compare, fat_tree, rails, ring, torus
from labkit.plan.costs.failures import checkpoint_interval_s, cluster_mtbf_s, goodput


def edges_of(sides):
    made = set()
    for node in product(*(range(side) for side in sides)):
        for axis, side in enumerate(sides):
            other = (*node[:axis], (node[axis] + 1) % side, *node[axis + 1 :])
            made.add(frozenset((node, other)))
    return made


def farthest(edges):
    near = {}
    for edge in edges:
        a, b = tuple(edge)
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    start = next(iter(near))
    seen, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for other in near[node]:
            if other not in seen:
                seen[other] = seen[node] + 1
                queue.append(other)
    return max(seen.values())


@pytest.mark.parametrize("sides", [(8,), (4, 4), (4, 6, 8), (2, 4, 6), (2, 2, 2)])
def test_a_torus_counted_link_by_link(sides):
    edges, made = edges_of(sides), torus(sides, 1.0)
    assert made.links == len(edges)
    assert made.diameter == farthest(edges)
    axis = sides.index(max(sides))
    half = max(sides) // 2
    crossing = sum(1 for a, b in map(tuple, edges) if (a[axis] < half) != (b[axis] < half))
    assert made.bisection_bytes_per_s == crossing
    assert made.links_per_gpu * made.gpus == 2 * made.links


def test_a_ring_is_a_torus_of_one_side():
    one, other = ring(12, 5.0), torus((12,), 5.0)
    assert (one.diameter, one.bisection_bytes_per_s, one.links) == (6, 10.0, 12)
    assert (other.diameter, other.bisection_bytes_per_s, other.links) == (6, 10.0, 12)


def test_a_fat_tree_keeps_every_gpu_s_rate():
    full = fat_tree(1024, 50e9)
    assert full.bisection_per_gpu == pytest.approx(50e9)
    assert (full.diameter, full.switches, full.links) == (4, 32 + 16, 2048)
    assert fat_tree(32, 50e9).diameter == 2
    with pytest.raises(LayoutError, match="at most 2,048 GPUs"):
        fat_tree(2049, 50e9)


def test_rails_reach_as_many_times_further_as_a_node_has_gpus():
    made = rails(2048, 8, 50e9, 450e9)
    assert made.gpus == 16_384
    assert made.bisection_per_gpu == pytest.approx(50e9)
    assert made.switches == 8 * fat_tree(2048, 50e9).switches
    assert "8 rails" in str(compare([made, ring(4, 1.0)]))


@pytest.mark.parametrize("call", [lambda: ring(1, 1.0), lambda: torus((1, 4), 1.0), lambda: fat_tree(8, 0.0)])
def test_networks_that_cannot_be(call):
    with pytest.raises(LayoutError):
        call()


def lived(interval, checkpoint, mtbf, restart, work, seed):
    """Share of work in a run with exponential failures, event by event."""
    draw, clock, done = random.Random(seed), 0.0, 0.0
    fails = draw.expovariate(1 / mtbf)
    while done < work:
        if clock + interval + checkpoint <= fails:
            clock += interval + checkpoint
            done += interval
            continue
        clock = fails
        fails = clock + draw.expovariate(1 / mtbf)
        while fails < clock + restart:
            clock = fails
            fails = clock + draw.expovariate(1 / mtbf)
        clock += restart
    return done / clock


@pytest.mark.parametrize(("checkpoint", "mtbf", "restart"), [(60, 10_800, 300), (5, 600, 20), (300, 3600, 0)])
def test_goodput_is_what_a_simulated_run_reaches_and_the_interval_its_best(checkpoint, mtbf, restart):
    interval = checkpoint_interval_s(checkpoint, mtbf)
    share = goodput(interval, checkpoint, mtbf, restart)
    simulated = lived(interval, checkpoint, mtbf, restart, work=4000 * mtbf, seed=1)
    assert share == pytest.approx(simulated, rel=0.02)
    best = max(goodput(interval * factor / 100, checkpoint, mtbf, restart) for factor in range(20, 500))
    assert share == pytest.approx(best, rel=1e-3)


def test_young_and_daly_agree_where_checkpoints_are_short():
    young = checkpoint_interval_s(1, 1e6, formula="young")
    assert young == pytest.approx(math.sqrt(2e6))
    assert checkpoint_interval_s(1, 1e6) == pytest.approx(young, rel=0.001)
    assert checkpoint_interval_s(100, 40) == 40
    assert cluster_mtbf_s(5e7, 10_000) == 5000
    assert goodput(1e9, 1, 1) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: checkpoint_interval_s(0, 1),
        lambda: checkpoint_interval_s(1, 0),
        lambda: checkpoint_interval_s(1, 1, formula="dally"),
        lambda: goodput(0, 1, 1),
        lambda: goodput(1, -1, 1),
        lambda: cluster_mtbf_s(1, 0),
    ],
)
def test_bad_times_are_named(call):
    with pytest.raises(BadArgument, match="Expected"):
        call()
