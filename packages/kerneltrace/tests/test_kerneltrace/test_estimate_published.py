"""Estimated times, held against published ones."""

import math
import statistics
from itertools import combinations, pairwise

import pytest

from gpufacts import find
from kerneltrace.judge.estimate import (
    CLASSES,
    INTERVALS,
    TESTED_CAPABILITIES,
    TESTED_S,
    l2_kept,
)
from kerneltrace_published.kernel_times import SHARE, intervals
from test_kerneltrace.places import published, validation
from test_kerneltrace.published_cards import CARDS
from test_kerneltrace.published_kernels import LAUNCHES

pytestmark = pytest.mark.slow  # traces large kernels

ROWS = published("kernel_times")
SEEN = [row for row in ROWS if not row["held_out"]]
HELD = [row for row in ROWS if row["held_out"]]
SCALES = {"ms": 1.0, "s": 1e3, "GB/s": 1e9, "GFLOP/s": 1e9, "TFLOP/s": 1e12}


def ratio(row):
    return float(row["published_ms"]) / float(row["calculated_ms"])


def within(rows):
    """The share of rows whose published time is between the bounds of the estimate."""
    bounds = [
        (INTERVALS[CLASSES.get(row["limit"], "arithmetic")], ratio(row)) for row in rows
    ]
    return statistics.mean(low <= actual <= high for (low, high), actual in bounds)


@pytest.mark.parametrize("kernel", sorted({row["kernel"] for row in ROWS}))
def test_the_table_holds_what_is_calculated(kernel):
    launch = LAUNCHES[kernel]
    traced = launch.traced()
    for row in ROWS:
        if row["kernel"] == kernel:
            estimate = launch.estimate(row["device"], traced)
            assert 1e3 * estimate.seconds == pytest.approx(
                float(row["calculated_ms"]), rel=1e-3
            )
            assert estimate.limit == row["limit"]


def sweep_ratios():
    """Published over calculated time of each sweep that is larger than L2.

    The rates of L2 and of memory are the source's own, of its smallest and its largest
    sweep, so that only the part is calculated that L2 keeps.
    """
    rows = published("l2_sweeps")
    for name in dict.fromkeys(row["device"] for row in rows):
        chip = CARDS.get(name) or find(name)
        of_chip = [
            (int(row["kib"]) * 1024, float(row["gb_per_s"]))
            for row in rows
            if row["device"] == name
        ]
        (_, of_l2), *_, (_, of_memory) = of_chip
        for n_bytes, rate in of_chip:
            share = n_bytes / chip.l2_bytes
            if share > 1:
                missed = 1 - l2_kept(share)
                yield max(1 / of_l2, missed / of_memory) * rate


def test_repeated_sweeps_of_one_to_three_times_the_l2_cache():
    errors = sorted(max(ratio, 1 / ratio) for ratio in sweep_ratios())
    assert statistics.median(errors) <= 1.05
    assert errors[math.ceil(0.9 * len(errors)) - 1] <= 1.25
    words = (
        f"Others timed {len(errors)} sweeps over memory that is one to three times as"
        " large as L2: nine in ten are within"
        f" {100 * (errors[math.ceil(0.9 * len(errors)) - 1] - 1):.0f} %, and the worst is"
        f" off by a factor of {errors[-1]:.1f}"
    )
    assert words in validation()


def test_what_l2_keeps_falls_with_what_is_swept():
    kept = [l2_kept(share) for share in (0, 0.25, 0.5, 1, 1.5, 3, 1e9)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 1
    assert 0.4 < kept[3] < 0.5  # a half of the sets has more lines than the mean
    assert kept[-2:] == [0, 0]


def test_every_published_time_follows_from_the_number_that_its_source_prints():
    for row in ROWS:
        printed = float(row["printed"])
        scale = SCALES[row["unit"]]
        assert bool(row["work"]) == ("/s" in row["unit"]), row
        milliseconds = printed * scale
        if row["work"]:
            milliseconds = 1e3 * float(row["work"]) / (printed * scale)
        assert float(row["published_ms"]) == pytest.approx(milliseconds, rel=1e-5), row


def test_a_third_of_the_rows_is_held_out_by_device_and_by_kind():
    assert len(ROWS) >= 100
    assert len(HELD) >= len(ROWS) / 3
    assert {row["device"] for row in HELD} - {row["device"] for row in SEEN}
    assert {row["kind"] for row in HELD} - {row["kind"] for row in SEEN}
    assert not {(row["device"], row["kind"]) for row in HELD} & {
        (row["device"], row["kind"]) for row in SEEN
    }


@pytest.mark.parametrize("rows", [SEEN, HELD], ids=["fitted to", "held out"])
def test_half_of_the_times_are_within_a_quarter_and_nine_in_ten_within_a_factor_of_two(
    rows,
):
    errors = sorted(abs(math.log(ratio(row))) for row in rows)
    assert math.exp(statistics.median(errors)) <= 1.25
    assert math.exp(errors[math.ceil(0.9 * len(errors)) - 1]) <= 2
    assert math.exp(errors[-1]) <= 4


def test_the_pages_say_what_the_rows_that_are_held_out_give():
    errors = sorted(max(ratio(row), 1 / ratio(row)) for row in HELD)
    half = statistics.median(errors) - 1
    most = errors[math.ceil(0.9 * len(errors)) - 1] - 1
    said = validation()
    for words in (
        f"{len(ROWS)} times that others published", f"of which {len(HELD)} were held out",
        f"half are within {100 * half:.0f} % and nine in ten within {100 * most:.0f} %",
        f"one is off by a factor of {errors[-1]:.1f}; {round(within(HELD) * len(HELD))} are inside their interval",
    ):  # fmt: skip
        assert words in said


def test_the_interval_is_what_rows_left_out_by_source_support():
    assert intervals(ROWS) == INTERVALS
    assert within(SEEN) >= SHARE


def test_what_counts_as_tested_is_what_the_rows_cover():
    capabilities = {find(row["device"]).compute_capability for row in SEEN}
    assert capabilities == set(TESTED_CAPABILITIES)
    assert (
        TESTED_S
        <= min(float(row["published_ms"]) for row in SEEN) / 1e3
        <= 1.1 * TESTED_S
    )


def groups(rows):
    """Rows by source, device and kind."""
    actual = {}
    for row in rows:
        actual.setdefault((row["who"], row["device"], row["kind"]), []).append(row)
    return actual


def agreement(rows):
    """Kendall's tau: pairs of rows that come in the published order less those that
    don't, of all; None without any.
    """
    pairs = combinations(
        [(float(row["published_ms"]), float(row["calculated_ms"])) for row in rows], 2
    )
    signs = [
        1 if (a[0] < b[0]) == (a[1] < b[1]) else -1 for a, b in pairs if a[0] != b[0]
    ]
    return statistics.mean(signs) if signs else None


OUT_OF_ORDER = {
    ("Fan 2020", "Tesla V100 SXM2 16/32GB", "copy and transpose"): 0.82,
    ("R100001 convolution", "GeForce RTX 3080 10GB", "convolution"): 0.8,
    ("R100001 matrix times vector", "GeForce RTX 3080 10GB", "matrix times vector"): -1,
    ("R100001 matrix times vector", "GeForce RTX 3060 12GB", "matrix times vector"): -1,
    ("R100001 integer matmul", "GeForce RTX 2060", "integer matmul"): 0.87,
    ("R100001 matrix times vector", "GeForce RTX 2060", "matrix times vector"): -1,
    ("R100001 matrix times vector", "GeForce RTX 3060 Ti", "matrix times vector"): -1,
    ("R100001 matrix times vector", "GeForce RTX 3070 Ti", "matrix times vector"): -1,
}
"""Known shortfalls, all held out: groups of a source, a device and a kind whose order
is not the published one.
"""


def test_the_kernels_of_each_group_come_in_the_published_order():
    actual = {key: agreement(rows) for key, rows in groups(ROWS).items()}
    assert len(actual) == 46
    # a single row each
    assert [key[0] for key, tau in actual.items() if tau is None] == 2 * [
        "ml-engineering"
    ]
    low = {
        key: round(tau, 2)
        for key, tau in actual.items()
        if tau is not None and tau < 0.9
    }
    assert low == OUT_OF_ORDER
    ordered = len(actual) - 2
    assert f"{len(low)} of {ordered} groups" in validation()


def steps(rows):
    """Pairs of neighboring rows of a group: the same work, before and after a change,
    on numbers of one type.
    """
    for key, members in groups(rows).items():
        kinds = {row["kernel"].split()[0] for row in members} & {
            "float32",
            "float64",
        } or {""}
        for dtype in sorted(kinds):
            same = [row for row in members if row["kernel"].startswith(dtype)]
            for slow, fast in pairwise(same):
                if slow["size"] == fast["size"] and key[2] not in (
                    "elementwise",
                    "convolution",
                ):
                    yield key[1], slow, fast


MISSED_GAINS = {
    ("H100 SXM5 80GB", "histogram of bytes, shared atomics"): 0.68,
    ("Tesla V100 SXM2 16/32GB", "float32 transpose, coalesced reads"): 0.79,
    ("Tesla V100 SXM2 16/32GB", "float32 transpose in shared memory"): 1.53,
    ("Tesla V100 SXM2 16/32GB", "float64 transpose, coalesced writes"): 0.79,
    ("GeForce RTX 3080 10GB", "uint32 sum, 2 loads a thread"): 1.4,
    ("GeForce RTX 3080 10GB", "histogram of zeros, shared atomics"): 1.27,
    ("GeForce RTX 3080 10GB", "uint32 matmul, tiles of 8"): 0.7,
    ("GeForce RTX 3060 12GB", "uint32 sum, 2 loads a thread"): 1.4,
    ("GeForce RTX 3060 12GB", "uint32 matmul, tiles of 8"): 0.66,
    ("GeForce RTX 2060", "histogram of zeros, shared atomics"): 1.3,
    ("GeForce RTX 2060", "uint32 matmul, tiles of 16, half the size"): 0.74,
    ("GeForce RTX 3060 Ti", "uint32 sum, 2 loads a thread"): 1.41,
    ("GeForce RTX 3060 Ti", "uint32 matmul, tiles of 8"): 0.66,
    ("GeForce RTX 3070 Ti", "uint32 sum, 2 loads a thread"): 1.43,
    ("GeForce RTX 3070 Ti", "histogram of zeros, shared atomics"): 1.27,
    ("GeForce RTX 3070 Ti", "uint32 matmul, tiles of 8"): 0.67,
}
"""Known shortfalls: steps whose calculated gain is off by more than a quarter, and
calculated over published gain.

The coalesced reads of the V100, held out, came in when L2 began to merge the stores of
a block, and 13 others went. The last seven are of cards that were held out afterwards.
"""


def test_each_step_gains_what_it_gains_in_its_source():
    actual = {}
    for device, slow, fast in steps(ROWS):
        actual[device, fast["kernel"]] = ratio(fast) / ratio(slow)
    missed = {
        key: round(gain, 2)
        for key, gain in actual.items()
        if not 1 / 1.25 <= gain <= 1.25
    }
    assert len(actual) == 100
    assert missed == MISSED_GAINS
    assert f"{len(missed)} of {len(actual)} steps" in validation()
