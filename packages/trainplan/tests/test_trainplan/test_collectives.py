"""Collectives: closed forms, the published curves of an A100 and an H200 node, fits,
and bad input.
"""

import statistics

import pytest

from trainplan.cluster.constants import (
    EFA_HOP_S,
    NVLINK3,
    NVLINK4,
    SEND_SHARE,
    SEND_START_S,
)
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
from trainplan_published import table
from trainplan_published.fit_cluster import links, measured, sends

LINK = Link(2e-6, 1e9)


def test_closed_forms_by_hand():
    assert all_reduce_s(4e6, 4, LINK) == pytest.approx(6 * 2e-6 + 1.5 * 4e-3)
    assert all_gather_s(4e6, 4, LINK) == pytest.approx(3 * 2e-6 + 0.75 * 4e-3)
    # it is 3 deep
    assert all_reduce_s(4e6, 5, LINK, "tree") == pytest.approx(6 * 2e-6 + 2 * 4e-3)
    assert point_to_point_s(1e6, LINK) == pytest.approx(2e-6 + 1e-3)
    assert all_reduce_s(4e6, 1, LINK) == all_gather_s(4e6, 1, LINK) == 0
    switched = Link(1, 1, switch=Link(1e-6, 2e9))
    by_switch_s = all_reduce_s(8e6, 4, switched, "nvls")
    assert by_switch_s == pytest.approx(2e-6 + 5 / 4 * 4e-3)
    assert fastest_all_reduce_s(8e6, 4, switched, in_node=True) == by_switch_s
    two_protocols = Link(1e-4, 1e10, low_latency=Link(1e-5, 1e9))
    assert point_to_point_s(10, two_protocols) == pytest.approx(1e-5, rel=0.01)
    assert point_to_point_s(1e9, two_protocols) == pytest.approx(0.1, rel=0.01)


def test_a_hierarchy_of_one_level_is_that_level_and_a_slow_network_gains_by_two():
    slow = Link(1e-5, 1e9)
    fast = Link(1e-6, 1e11)
    assert hierarchical_all_reduce_s(1e8, 1, 8, fast, slow) == pytest.approx(
        all_reduce_s(1e8, 8, fast)
    )
    assert hierarchical_all_reduce_s(1e8, 8, 1, fast, slow) == pytest.approx(
        all_reduce_s(1e8, 8, slow)
    )
    assert (
        hierarchical_all_reduce_s(1e9, 8, 8, fast, slow)
        < all_reduce_s(1e9, 64, slow) / 5
    )


@pytest.mark.parametrize(
    ("algorithm", "hops"), [("tree", 2 * 7), ("ring", 2 * 1023 / 8)]
)
def test_a_tree_crosses_the_network_once_a_level_and_a_ring_once_a_node(
    algorithm, hops
):
    """Of 128 nodes."""
    infiniband_s, efa_s = (
        all_reduce_s(
            1,
            1024,
            group_link(Cluster("H100 SXM5 80GB", 1024, inter=link), 1024, 1),
            algorithm,
        )
        for link in (network(50e9), network(50e9, hop_s=EFA_HOP_S))
    )
    assert efa_s - infiniband_s == pytest.approx(hops * EFA_HOP_S)


def test_two_of_eight_amd_gpus_have_one_link_of_seven_between_them():
    node = Cluster("AMD Instinct MI300X", 8)
    assert group_link(node, 2, 1).bytes_per_s == pytest.approx(
        node.inside.bytes_per_s / 7
    )
    assert group_link(node, 8, 1).bytes_per_s == node.inside.bytes_per_s


@pytest.mark.parametrize(
    ("gpu", "link"), [("A100 SXM", NVLINK3), ("H200 SXM", NVLINK4)]
)
def test_the_published_curves_from_32_kib_to_16_gib(gpu, link):
    points = measured(gpu)
    assert len(points) == 20
    assert min(size for size, _ in points) == 2**15
    assert max(size for size, _ in points) == 2**34
    errors = sorted(
        abs(fastest_all_reduce_s(size, 8, link, in_node=True) / time - 1)
        for size, time in points
    )
    assert statistics.median(errors) <= 0.08
    assert errors[-1] <= 0.25


def test_published_bus_bandwidths_of_4_to_8_gpus_with_and_without_the_switch():
    rows = [
        row
        for row in table("collectives_busbw_a100_h200")
        if row["algorithm"]
        and not row["time_us"]
        and float(row["payload_bytes"] or 0) > 1e9
    ]
    assert len(rows) == 15
    for row in rows:
        n_bytes = float(row["payload_bytes"])
        ranks = int(row["gpus"])
        # bytes/s on the busiest wire of a ring, as nccl-tests counts it
        # (doc/PERFORMANCE.md)
        of_wire = (ranks - 1) / ranks
        if row["collective"] == "all-reduce":
            algorithm = "nvls" if row["algorithm"] == "NVLS" else "ring"
            bus_bytes_per_s = (
                2 * of_wire * n_bytes / all_reduce_s(n_bytes, ranks, NVLINK4, algorithm)
            )
        else:
            bus_bytes_per_s = of_wire * n_bytes / all_gather_s(n_bytes, ranks, NVLINK4)
        assert bus_bytes_per_s == pytest.approx(
            1e9 * float(row["busbw_gbs"]), rel=0.03
        ), row


def test_a_send_takes_what_was_profiled_between_pipeline_stages():
    assert sends() == pytest.approx((SEND_START_S, SEND_SHARE), rel=0.01)


def fitted_pairs():
    """Each link in use, and its switch, with what the script fits."""
    for fitted, used in zip(links().values(), (NVLINK3, NVLINK4), strict=True):
        yield used, fitted
        assert (used.switch is None) == (fitted.switch is None)
        if used.switch is not None:
            yield used.switch, fitted.switch


def test_the_links_in_use_are_those_that_the_script_fits():
    for used, fitted in fitted_pairs():
        for ours, theirs in ((used, fitted), (used.low_latency, fitted.low_latency)):
            assert ours.alpha_s == pytest.approx(theirs.alpha_s, rel=0.01)
            assert ours.bytes_per_s == pytest.approx(theirs.bytes_per_s, rel=0.01)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls"])
def test_a_fit_finds_the_link_that_made_the_times(algorithm):
    true = Link(3e-6, 5e9)
    timed = Link(1, 1, switch=true) if algorithm == "nvls" else true
    sizes = [4.0**i for i in range(3, 16)]
    times_s = [all_reduce_s(size, 6, timed, algorithm) for size in sizes]
    fitted = fit_link(sizes, times_s, 6, algorithm=algorithm)
    assert (fitted.alpha_s, fitted.bytes_per_s) == pytest.approx((3e-6, 5e9))


def test_a_fit_never_gives_a_negative_start():
    fitted = fit_link([1e6, 2e6, 4e6], [1e-3, 2.2e-3, 4.6e-3], 2)
    assert fitted.alpha_s == 0
    assert fitted.bytes_per_s > 0
    flat = fit_link([1e3, 2e3, 4e3], [1e-3, 1e-3, 0.99e-3], 2)
    assert all_reduce_s(2e3, 2, flat) == pytest.approx(1e-3, rel=0.02)


def test_a_fit_forgives_one_slow_moment_but_not_lists_in_opposite_order():
    assert (
        fit_link(
            [2**10, 2**14, 2**16, 2**20], [3.6e-3, 2.5e-4, 3e-4, 8.8e-4], 2
        ).bytes_per_s
        > 0
    )
    with pytest.raises(ValueError, match="same order"):
        fit_link([2**10, 2**14, 2**16, 2**20], [8.8e-4, 3e-4, 2.5e-4, 2e-4], 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: all_reduce_s(1, 4, LINK, "rnig"), "The nearest is 'ring'"),
        (lambda: all_reduce_s(1, 4, LINK, "nvls"), "switch"),
        (lambda: all_reduce_s(-1, 4, LINK), "n_bytes"),
        # two equal sizes make no line
        (lambda: fit_link([1e3, 1e3], [1.0, 1.1], 2), "Expected"),
        (lambda: Link(1, 0), "bytes_per_s"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_link_says_what_it_is():
    assert repr(Link(2e-6, 3e11, name="NVLink")) == "NVLink: 2.00 µs a hop, 300 GB/s"
