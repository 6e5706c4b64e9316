"""Collectives: closed forms, the published curves of an A100 and an H200 node, fits, and bad input."""

import statistics

import pytest

from labkit.measure.published import table
from scripts.fit_cluster import links, measured, sends, two_lines
from trainplan.cluster.constants import EFA_HOP_S, HOP_S, LL_HOP_S, NVLINK3, NVLINK4, SEND_SHARE, SEND_START_S
from trainplan.cluster.hardware import Cluster, group_link, network
from trainplan.costs.collectives import (
    Link,
    all_gather_s,
    all_reduce_s,
    fastest_all_reduce_s,
    fit_link,
    hierarchical_all_reduce_s,
    point_to_point_s,
)
from trainplan.errors import BadArgument, PlanError

LINK = Link(2e-6, 1e9)


def bus_bandwidth(n_bytes, seconds, ranks, collective="all-reduce"):
    """Bytes/s on the busiest wire of a ring, as nccl-tests counts it (doc/PERFORMANCE.md)."""
    return n_bytes / seconds * (2 if collective == "all-reduce" else 1) * (ranks - 1) / ranks


@pytest.mark.parametrize("ranks", [2, 3, 7, 64])
def test_a_ring_s_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks):
    assert all_reduce_s(12345, ranks, LINK) == pytest.approx(2 * all_gather_s(12345, ranks, LINK))


def test_closed_forms_by_hand():
    assert all_reduce_s(4e6, 4, LINK) == pytest.approx(6 * 2e-6 + 1.5 * 4e-3)
    assert all_reduce_s(4e6, 8, LINK, "tree") == pytest.approx(6 * 2e-6 + 2 * 4e-3)
    assert all_reduce_s(4e6, 5, LINK, "tree") == pytest.approx(6 * 2e-6 + 2 * 4e-3)  # a tree of 5 is 3 deep
    assert point_to_point_s(1e6, LINK) == pytest.approx(2e-6 + 1e-3)
    assert all_reduce_s(4e6, 1, LINK) == all_gather_s(4e6, 1, LINK) == 0
    switched = Link(1, 1, switch=Link(1e-6, 2e9))
    assert all_reduce_s(8e6, 4, switched, "nvls") == pytest.approx(2e-6 + 5 / 4 * 4e-3)
    assert fastest_all_reduce_s(8e6, 4, switched, in_node=True) == all_reduce_s(8e6, 4, switched, "nvls")


def test_latency_makes_trees_win_where_ranks_are_many_and_bytes_few_and_rings_elsewhere():
    assert all_reduce_s(1e3, 1024, LINK, "tree") < all_reduce_s(1e3, 1024, LINK)
    assert all_reduce_s(1e9, 4, LINK, "tree") > all_reduce_s(1e9, 4, LINK)
    assert fastest_all_reduce_s(1e3, 8, LINK, in_node=True) == all_reduce_s(1e3, 8, LINK)  # a node's links have no tree


def test_a_hierarchy_of_one_level_is_that_level_and_a_slow_network_gains_by_two():
    slow, fast = Link(1e-5, 1e9), Link(1e-6, 1e11)
    assert hierarchical_all_reduce_s(1e8, 1, 8, fast, slow) == pytest.approx(all_reduce_s(1e8, 8, fast))
    assert hierarchical_all_reduce_s(1e8, 8, 1, fast, slow) == pytest.approx(all_reduce_s(1e8, 8, slow))
    assert hierarchical_all_reduce_s(1e9, 8, 8, fast, slow) < all_reduce_s(1e9, 64, slow) / 5


def test_a_collective_starts_once_however_many_ranks():
    """Two ranks take nearly as long as eight where bytes are few."""
    assert all_reduce_s(1, 2, NVLINK4) > 0.8 * all_reduce_s(1, 8, NVLINK4) > 30e-6


def test_a_tree_crosses_the_network_once_a_level_and_a_ring_once_a_node():
    efa = network(50e9, hop_s=EFA_HOP_S)
    near, far = (Cluster("H100 SXM5 80GB", 1024, inter=link) for link in (network(50e9), efa))
    hops = {link: all_reduce_s(1, 1024, group_link(link, 1024, 1), "tree") for link in (near, far)}
    assert hops[far] - hops[near] == pytest.approx(2 * 7 * EFA_HOP_S)  # of 128 nodes
    rings = {link: all_reduce_s(1, 1024, group_link(link, 1024, 1)) for link in (near, far)}
    assert rings[far] - rings[near] == pytest.approx(2 * 1023 / 8 * EFA_HOP_S)
    assert hops[far] < rings[far] / 10


def test_two_of_eight_amd_gpus_have_one_link_of_seven_between_them():
    node = Cluster("AMD Instinct MI300X", 8)
    assert group_link(node, 2, 1).bytes_per_s == pytest.approx(node.inside.bytes_per_s / 7)
    assert group_link(node, 8, 1).bytes_per_s == node.inside.bytes_per_s


def test_the_faster_protocol_is_taken_at_each_size():
    link = Link(1e-4, 1e10, low_latency=Link(1e-5, 1e9))
    assert point_to_point_s(10, link) == pytest.approx(1e-5, rel=0.01)
    assert point_to_point_s(1e9, link) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize(("gpu", "link"), [("A100 SXM", NVLINK3), ("H200 SXM", NVLINK4)])
def test_the_published_curves_from_32_kib_to_16_gib(gpu, link):
    points = measured(gpu)
    assert len(points) == 20
    assert min(size for size, _ in points) == 2**15
    assert max(size for size, _ in points) == 2**34
    errors = sorted(abs(fastest_all_reduce_s(size, 8, link, in_node=True) / time - 1) for size, time in points)
    assert statistics.median(errors) <= 0.08
    assert errors[-1] <= 0.25


def test_published_bus_bandwidths_of_4_to_8_gpus_with_and_without_the_switch():
    rows = [row for row in table("collectives_busbw_a100_h200") if row["payload_bytes"] and not row["time_us"]]
    rows = [row for row in rows if row["algorithm"] and int(row["payload_bytes"]) > 1e9]
    assert len(rows) == 15
    for row in rows:
        n_bytes, ranks, collective = float(row["payload_bytes"]), int(row["gpus"]), row["collective"]
        if collective == "all-reduce":
            algorithm = "nvls" if row["algorithm"] == "NVLS" else "ring"
            seconds = all_reduce_s(n_bytes, ranks, NVLINK4, algorithm)
        else:
            seconds = all_gather_s(n_bytes, ranks, NVLINK4)
        predicted = bus_bandwidth(n_bytes, seconds, ranks, collective)
        assert predicted == pytest.approx(1e9 * float(row["busbw_gbs"]), rel=0.03), row


def test_bus_bandwidth_counts_as_the_published_table_does():
    rows = [row for row in table("collectives_busbw_a100_h200") if row["time_us"]]
    for row in rows:
        counted = bus_bandwidth(float(row["payload_bytes"]), 1e-6 * float(row["time_us"]), int(row["gpus"]))
        assert counted == pytest.approx(1e9 * float(row["busbw_gbs"]), rel=0.01, abs=1e7)


def test_a_send_takes_what_was_profiled_between_pipeline_stages():
    assert sends() == pytest.approx((SEND_START_S, SEND_SHARE), rel=0.01)


def test_the_links_in_use_are_those_that_the_script_fits():
    def numbers(link):
        return None if link is None else (link.alpha_s, link.bytes_per_s, numbers(link.low_latency))

    for fitted, used in zip(links().values(), (NVLINK3, NVLINK4), strict=True):
        for ours, theirs in ((fitted, used), (fitted.switch, used.switch)):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert numbers(theirs)[:2] == pytest.approx(numbers(ours)[:2], rel=0.01)
                assert numbers(theirs)[2][:2] == pytest.approx(numbers(ours)[2][:2], rel=0.01)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls"])
def test_a_fit_finds_the_link_that_made_the_times(algorithm):
    true = Link(3e-6, 5e9)
    given = Link(1, 1, switch=true) if algorithm == "nvls" else true
    sizes = [4.0**i for i in range(3, 16)]
    found = fit_link(sizes, [all_reduce_s(size, 6, given, algorithm) for size in sizes], 6, algorithm=algorithm)
    assert (found.alpha_s, found.bytes_per_s) == pytest.approx((3e-6, 5e9))


def test_a_fit_of_two_protocols_finds_both():
    true = Link(HOP_S, 5e9, low_latency=Link(LL_HOP_S, 1e8, start_s=2e-5), start_s=4e-4)
    sizes = [2.0**i for i in range(8, 31)]
    found = two_lines([(size, all_reduce_s(size, 8, true)) for size in sizes], "ring")
    assert (found.start_s, found.bytes_per_s) == pytest.approx((4e-4, 5e9), rel=1e-3)
    assert (found.low_latency.start_s, found.low_latency.bytes_per_s) == pytest.approx((2e-5, 1e8), rel=1e-3)


def test_a_fit_never_gives_a_negative_start():
    found = fit_link([1e6, 2e6, 4e6], [1e-3, 2.2e-3, 4.6e-3], 2)
    assert found.alpha_s == 0
    assert found.bytes_per_s > 0
    flat = fit_link([1e3, 2e3, 4e3], [1e-3, 1e-3, 0.99e-3], 2)
    assert all_reduce_s(2e3, 2, flat) == pytest.approx(1e-3, rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: all_reduce_s(1, 4, LINK, "rnig"), "The nearest is 'ring'"),
        (lambda: all_reduce_s(1, 4, LINK, "nvls"), "switch"),
        (lambda: all_reduce_s(-1, 4, LINK), "n_bytes"),
        (lambda: all_reduce_s(1, 0, LINK), "ranks"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(PlanError, match=words):
        call()


@pytest.mark.parametrize(
    ("sizes", "seconds", "ranks"), [([1e3], [1.0], 2), ([1e3, 1e3], [1.0, 1.1], 2), ([1e3, 2e3], [1.0, 0.0], 2)]
)
def test_too_little_to_fit(sizes, seconds, ranks):
    with pytest.raises(BadArgument):
        fit_link(sizes, seconds, ranks)


def test_a_fit_forgives_one_slow_moment_but_not_lists_in_opposite_order():
    assert fit_link([2**10, 2**14, 2**16, 2**20], [3.6e-3, 2.5e-4, 3e-4, 8.8e-4], 2).bytes_per_s > 0
    with pytest.raises(BadArgument, match="same order"):
        fit_link([2**10, 2**14, 2**16, 2**20], [8.8e-4, 3e-4, 2.5e-4, 2e-4], 2)


def test_a_link_says_what_it_is():
    assert repr(Link(2e-6, 3e11, name="NVLink")) == "NVLink: 2.00 µs a hop, 300 GB/s"
    with pytest.raises(BadArgument, match="bytes_per_s"):
        Link(1, 0)
