"""The tracer's counts against counts by hand, for the kernels of every textbook on
GPUs.
"""

import inspect

import numpy as np
import pytest
from numba import cuda, float64

from kerneltrace import trace
from test_kerneltrace.textbook import ENTRIES, Want, sharing
from test_kerneltrace.tracing import made_in_a_cell

pytestmark = pytest.mark.slow  # traces every kernel of the textbook

FIELDS = ("requests", "sectors", "wavefronts", "ways", "collisions")


def traced(entry):
    return trace(
        entry.kernel, entry.grid, entry.block, *entry.args(lambda array: array)
    )


def counted(done, array, kind):
    counts = done.count(array, kind=kind)
    return Want(*(getattr(counts, field) for field in FIELDS))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_counts_are_those_derived_by_hand_and_their_sums_agree(entry):
    outcome = traced(entry)
    got = {
        f"{array} {kind}": counted(outcome, array, kind)
        for array in outcome.arrays
        for kind in ("load", "store", "atomic")
    }
    assert {key: want for key, want in got.items() if want.requests} == entry.want
    branches = outcome.branches()
    assert (branches.total, branches.divergent) == entry.branches
    assert outcome.flop == entry.flop
    of_global = outcome.count(space="global")
    assert of_global.reads / outcome.threads == pytest.approx(entry.reads_per_thread)
    assert of_global.writes / outcome.threads == pytest.approx(entry.writes_per_thread)
    assert outcome.findings == ()
    assert not [
        array for array in outcome.arrays if outcome.count(array).efficiency > 1
    ]
    sums_agree(outcome, entry)


def sums_agree(done, entry):
    """The counts of arrays, kinds, spaces and lines add up to those of the whole
    launch.
    """
    every = done.count()
    parts = {
        "arrays": [done.count(array) for array in done.arrays],
        "kinds": [done.count(kind=kind) for kind in ("load", "store", "atomic")],
        "spaces": [
            done.count(space=space) for space in ("global", "shared", "constant")
        ],
    }
    if "device function" not in entry.name:  # whose lines don't belong to the kernel
        parts["lines"] = [done.count(line=line) for line in lines_of(entry.kernel)]
    for name, counts in parts.items():
        for field in (
            "requests",
            "reads",
            "writes",
            "sectors",
            "wavefronts",
            "bytes_asked",
        ):
            assert sum(getattr(part, field) for part in counts) == getattr(
                every, field
            ), (name, field)


def lines_of(kernel):
    lines, first = inspect.getsourcelines(kernel)
    return range(first, first + len(lines))


def entry_named(name):
    return next(entry for entry in ENTRIES if entry.name == name)


@pytest.mark.parametrize(
    ("name", "array", "efficiency", "per_request"),
    [
        ("stride 1", "x", 1, 4),
        ("stride 2", "x", 1 / 2, 8),
        ("stride 32", "x", 1 / 8, 32),
        ("misaligned by 4 bytes", "x", 4 / 5, 5),
        # 32 lanes ask for the same 4 of the 32 bytes moved
        ("broadcast", "x", 1 / 8, 1),
        ("one field of a struct", "p", 1 / 4, 16),
        ("matmul, naive", "a", 1 / 8, 1),
    ],
)
def test_efficiency_is_bytes_asked_for_by_bytes_moved(
    name, array, efficiency, per_request
):
    counts = traced(entry_named(name)).count(array, kind="load")
    assert counts.efficiency == pytest.approx(efficiency)
    assert counts.sectors_per_request == per_request


def test_footprint_counts_a_sector_once():
    counts = traced(entry_named("matmul, naive"))
    assert (
        counts.count("a").footprint_bytes
        == counts.count("b").footprint_bytes
        == 32 * 32 * 4
    )
    # 1,028 bytes
    assert (
        traced(entry_named("misaligned by 4 bytes")).count("x").footprint_bytes
        == 33 * 32
    )


def test_a_tile_takes_the_shared_memory_its_shape_needs():
    assert traced(entry_named("transpose, tile unpadded")).shared_bytes == 32 * 32 * 4
    assert traced(entry_named("transpose, tile padded")).shared_bytes == 32 * 33 * 4
    assert traced(entry_named("matmul, tiled")).shared_bytes == 2 * 16 * 16 * 4


def test_a_request_shows_its_lanes_and_addresses():
    outcome = traced(entry_named("stride 2"))
    request = outcome.request("x", warp=1, kind="load")
    assert request.lanes.tolist() == list(range(32))
    assert ((request.addresses - request.base) // 4).tolist() == list(range(64, 128, 2))
    assert (request.size, request.array, request.space) == (4, "x", "global")


def test_paths_are_what_each_lane_did_at_each_branch():
    labels, paths = traced(entry_named("partial last warp")).paths(warp=3)
    assert [label.split(": ")[1] for label in labels] == ["i < y.size"]
    assert paths.tolist() == [[1] * 4 + [0] * 28]


def test_integer_work_is_not_counted_as_floating_point():
    outcome = traced(entry_named("reverse order"))
    assert (outcome.flop, outcome.integer_operations) == (0, 2 * 256)
    assert np.isnan(traced(entry_named("shared broadcast")).count("s").efficiency)


@pytest.mark.parametrize("entry", sharing.ENTRIES, ids=lambda entry: entry.name)
def test_nothing_is_found_in_any_order_of_threads(entry):
    traced = trace(
        entry.kernel,
        entry.grid,
        entry.block,
        *entry.args(lambda array: array),
        schedules=3,
    )
    assert traced.findings == ()


# -- what belongs to which array and line


def copy(x, y):
    i = cuda.grid(1)
    y[i] = x[i]


def add(x, y, out):
    i = cuda.grid(1)
    out[i] = x[i] + y[i]


def test_views_of_tensors_lie_where_they_lie():
    torch = pytest.importorskip("torch")
    traced = trace(copy, 1, 32, torch.arange(33.0)[1:], torch.zeros(32))
    assert traced.count("x").sectors == 5


def test_lines_of_two_cells_are_told_apart():
    device = made_in_a_cell(
        "@cuda.jit(device=True)\ndef k(x, i):\n    return x[i] * 2\n"
    )
    source = (
        "def k(x, y):\n    z = x[cuda.grid(1)]\n    y[cuda.grid(1)] = device(x,"
        " cuda.grid(1)) + z\n"
    )
    traced = trace(
        made_in_a_cell(source, device=device), 1, 32, np.ones(32), np.ones(32)
    )
    assert traced.count(line=2).requests == 1


def test_halves_of_a_warp_are_its_own_in_blocks_of_any_size():
    """Lanes 0 to 15 write 16 doubles, 24 to 31 and 16 to 23 the next 16: each half
    finds 32 banks.
    """

    def k(y):
        s = cuda.shared.array(64, float64)
        t = cuda.threadIdx.x
        lane = t % 32
        s[t // 32 * 32 + (lane if lane < 16 else 16 + (lane + 8) % 16)] = 1
        y[cuda.grid(1)] = 1

    traced = trace(k, 2, 40, np.zeros(80))
    assert (traced.count("s").wavefronts, traced.count("s").ways) == (2 * (2 + 1), 1)
