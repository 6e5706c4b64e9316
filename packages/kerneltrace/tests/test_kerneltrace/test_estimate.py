"""Estimated times: what is certain about a few small kernels.
test_estimate_published.py has published ones.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from numba import cuda, float32, float64

from gpufacts import find
from kerneltrace import trace
from kerneltrace.errors import UnknownDevice
from kerneltrace.judge.estimate import (
    DEPENDENT_CLOCKS,
    MEMORY_CLOCKS,
    tensor_clocks,
    throughput,
)
from test_kerneltrace.cplusplus.matrices import CASES
from test_kerneltrace.published_kernels import LAUNCHES
from test_kerneltrace.published_memory import copied, transposed
from test_kerneltrace.tracing import not_on_macos

pytestmark = pytest.mark.slow  # traces large kernels


def test_a_copy_takes_its_bytes_over_the_bandwidth_and_twice_the_blocks_take_twice_as_long():
    x = np.ones(1024, np.float32)
    traced = trace(copied, 8, 128, x, x.copy())
    each, two = (
        traced.estimate("A100 SXM4 80GB", grid=blocks) for blocks in (2**20, 2**21)
    )
    assert each.limit == "memory"
    assert each.parts["memory"] == pytest.approx(
        2**20 * 128 * 8 / (0.91 * 2039e9), rel=1e-3
    )
    assert each.seconds == pytest.approx(each.parts["memory"], rel=0.05)
    assert two.seconds == pytest.approx(2 * each.seconds, rel=0.01)


def test_strides_and_conflicts_cost_what_the_counts_say():
    a = np.ones((64, 64), np.float32)

    def tiled(apart):
        @cuda.jit
        def kernel(a, out):
            tile = cuda.shared.array((32, apart), float32)
            x = cuda.threadIdx.x
            y = cuda.threadIdx.y
            tile[y, x] = a[cuda.blockIdx.y * 32 + y, cuda.blockIdx.x * 32 + x]
            cuda.syncthreads()
            out[cuda.blockIdx.x * 32 + y, cuda.blockIdx.y * 32 + x] = tile[x, y]

        return trace(kernel, (2, 2), (32, 32), a, a.copy()).estimate(
            "T4", grid=(256, 256)
        )

    naive = trace(transposed, (2, 2), (32, 32), a, a.copy()).estimate(
        "T4", grid=(256, 256)
    )
    conflicts = tiled(32)
    padded = tiled(33)
    assert naive.seconds > conflicts.seconds > padded.seconds
    # 32 rounds of 2 clocks each, for each warp: a T4's shared memory gives 64 bytes a
    # clock
    warps_an_sm = 256 * 256 * 32 / 40
    extra_s = conflicts.parts["load and store"] - padded.parts["load and store"]
    assert extra_s == pytest.approx(warps_an_sm * 31 * 2 / 1590e6, rel=0.02)


def test_a_chain_of_dependent_operations_waits_for_each():
    @cuda.jit
    def chain(x):
        value = x[0]
        for _ in range(256):
            value = value * value
        x[0] = value

    estimate = trace(chain, 1, 1, np.ones(1, np.float32)).estimate("A100 SXM4 80GB")
    assert estimate.parts["latency"] >= 256 * DEPENDENT_CLOCKS / 1410e6
    assert 0.73e-6 < estimate.seconds < 4e-6
    assert estimate.occupancy == pytest.approx(1 / (108 * 64))


CHASE = 64
STRIDE = 512


@cuda.jit
def chased(following, out):
    i = cuda.grid(1)
    for _ in range(CHASE):
        i = following[i]
    out[cuda.grid(1)] = i


@cuda.jit
def gathered(following, out):
    i = cuda.grid(1)
    total = 0
    for k in range(CHASE):
        total += following[i + STRIDE * k]
    out[i] = total


def test_a_load_that_needs_the_one_before_waits_for_it_and_others_go_together():
    following = ((np.arange(CHASE * STRIDE) + STRIDE) % (CHASE * STRIDE)).astype(
        np.int32
    )
    out = np.zeros(32, np.int32)
    traces = (trace(kernel, 1, 32, following, out) for kernel in (chased, gathered))
    chain, apart = (traced.estimate("A100 SXM4 80GB") for traced in traces)
    assert chain.parts["latency"] == pytest.approx(
        CHASE * MEMORY_CLOCKS / 1410e6, rel=0.05
    )
    assert chain.seconds > 3 * apart.seconds


PLAIN = ("copy", "float32 sum, shared tree", "uint32 matmul")


@pytest.mark.parametrize("name", PLAIN)
def test_no_estimate_is_faster_with_more_to_do_or_than_the_hardware_can_be(name):
    launch = LAUNCHES[name]
    chip = find("A100 SXM4 80GB")
    traced = trace(
        launch.kernel,
        launch.grid,
        launch.block,
        *(array.copy() for array in launch.arrays),
    )
    of_blocks = [
        traced.estimate(chip, grid=blocks).seconds
        for blocks in (108, 109, 1000, 10**5, 10**6)
    ]
    assert of_blocks == sorted(of_blocks)
    large = traced.estimate(chip, grid=launch.full_grid, longer=launch.longer)
    for change in ({"boost_hz": 2}, {"bandwidth_bytes_per_s": 2}, {"sms": 2}):
        ((fact, factor),) = change.items()
        better = replace(chip, **{fact: factor * getattr(chip, fact)})
        seconds = traced.estimate(
            better, grid=launch.full_grid, longer=launch.longer
        ).seconds
        assert large.seconds / factor * 0.999 <= seconds <= large.seconds * 1.001
    asks = traced._asks(launch.longer, None)[0]
    blocks = (
        math.prod(launch.full_grid)
        if isinstance(launch.full_grid, tuple)
        else launch.full_grid
    )
    assert large.seconds >= large.parts["memory"] * 0.91
    assert large.seconds >= blocks * asks.arithmetic * 32 / (108 * 64 * 1410e6)


def test_tensor_cores_take_their_rate_and_an_unknown_one_is_refused():
    a100 = find("A100 SXM4 80GB")
    # 1,024 products a clock
    assert tensor_clocks(2 * 16 * 8 * 16, "bfloat16", a100) == pytest.approx(
        2, rel=0.01
    )
    with pytest.raises(UnknownDevice, match="float8"):
        tensor_clocks(1, "float8", a100)


@pytest.mark.parametrize(
    ("gpu", "flop_per_clock"),
    [
        ("A100 SXM4 80GB", 19.5e12 / 108 / 1410e6),  # its tensor cores have float64
        ("T4", 2 * 2),  # two units of float64 an SM, a product and a sum each
    ],
)
def test_matrices_of_float64_take_the_rate_of_float64(gpu, flop_per_clock):
    case = CASES.found["wmma of double"]
    arrays = [array.copy() for array in case.args]
    estimate = trace(case.source, case.grid, case.block, *arrays).estimate(gpu)
    device = find(gpu)
    flop = 2 * 8 * 8 * 4
    seconds = flop / flop_per_clock / device.boost_hz
    assert estimate.parts["tensor cores"] == pytest.approx(seconds, rel=0.01)


def test_a_warm_launch_finds_in_the_l2_cache_what_fits_there():
    x = np.ones(1024, np.float32)
    traced = trace(copied, 8, 128, x, x.copy())
    small, large = (
        [traced.estimate("T4", grid=n, warm=warm) for warm in (False, True)]
        for n in (2**9, 2**18)
    )
    assert small[1].seconds < small[0].seconds
    assert "memory" not in small[1].parts
    assert large[0].seconds == large[1].seconds
    with pytest.raises(TypeError, match="warm"):
        traced.estimate("T4", warm="yes")


@cuda.jit
def stored_to_float32(x, y, out):
    out[cuda.grid(1)] = x[cuda.grid(1)] * float64(3)


@cuda.jit
def all_in_float64(x, y, out):
    y[cuda.grid(1)] += y[cuda.grid(1)] * float64(3)


@cuda.jit
def all_in_float32(x, y, out):
    out[cuda.grid(1)] = x[cuda.grid(1)] * float32(3)


@cuda.jit
def copied_to_float64(x, y, out):
    y[cuda.grid(1)] = x[cuda.grid(1)]


@cuda.jit
def clamped(x, y, out):
    out[cuda.grid(1)] = min(max(x[cuda.grid(1)], float64(0)), float64(1))


@pytest.mark.parametrize(
    ("kernel", "instructions"),
    [
        (stored_to_float32, 3),  # two conversions and a product
        (all_in_float64, 1),  # fused
        (all_in_float32, 0),
        (copied_to_float64, 1),
        (clamped, 4),
    ],
)
def test_conversions_from_and_to_float64_take_its_units(kernel, instructions):
    x = np.ones(256, np.float32)
    traced = trace(kernel, 2, 128, x, x.astype(float), x.copy())
    asks, _ = traced._asks(1.0, None)
    assert asks.double == instructions * asks.warps


SPILLS = """__global__ void spills(const float* x, float* y) {
    float v[48];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < 48; k++) v[k] = x[(i + k * 37) & 1023];
    #pragma unroll
    for (int k = 0; k < 48; k++) v[k] = v[k] * v[(k * 7) % 48] + v[(k * 5) % 48];
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < 48; k++) sum += v[k] * v[(k * 11) % 48];
    y[i] = sum;
}"""


@not_on_macos
def test_registers_and_spills_are_the_compilers():
    x = np.ones(1024, np.float32)
    traces = [
        trace(SPILLS, 4, 256, x, x.copy(), options=options)
        for options in ((), ("--maxrregcount=32",))
    ]
    many, few = (traced.review("A100 SXM4 80GB") for traced in traces)
    assert not many.of("local memory")
    (remark,) = few.of("local memory")
    assert "The compiler spills registers" in remark.sentence
    assert "registers a thread are assumed" not in str(traces[0].estimate("T4"))
    a100 = "A100 SXM4 80GB"
    occupancies = [traced.estimate(a100, grid=10**4).occupancy for traced in traces]
    assert occupancies[0] < occupancies[1]


def test_an_estimate_unlike_all_published_ones_says_so():
    x = np.ones(1024, np.float32)
    traced = trace(copied, 8, 128, x, x.copy())
    assert traced.estimate("RTX A6000", grid=2**20).untested == ()
    assert traced.estimate("GeForce RTX 5090", grid=2**20).untested == (
        "Untested: no published time of compute capability 12.0 was compared.",
    )
    tiny = traced.estimate("RTX A6000")
    assert [
        word in " ".join(tiny.untested) for word in ("below", "fewer blocks than SMs")
    ] == [True, True]
    assert "Untested" in str(tiny)


def test_longer_loops_store_no_more():
    short = LAUNCHES["matmul, coalesced"]
    a, b, c = short.arrays
    outcome = trace(short.kernel, short.grid, short.block, a, b, c)
    once, often = (
        outcome.estimate("T4", grid=(128, 128), longer=longer) for longer in (1, 64)
    )
    double = trace(
        short.kernel, short.grid, short.block, np.tile(a, 2), np.tile(b, (2, 1)), c
    )
    assert often.parts["load and store"] < 64 * once.parts["load and store"]
    twice = outcome.estimate("T4", grid=(128, 128), longer=2)
    traced = double.estimate("T4", grid=(128, 128))
    assert twice.seconds == pytest.approx(traced.seconds, rel=0.02)


def test_more_registers_leave_less_room_and_latency_shows():
    x = np.ones(1024, np.float32)
    traced = trace(copied, 8, 128, x, x.copy())
    few, many = (
        traced.estimate("H100 SXM5 80GB", grid=2**20, registers=n) for n in (32, 255)
    )
    assert few.occupancy == 1
    assert many.occupancy == 0.125
    assert many.seconds > 1.1 * few.seconds
    assert not any("assumed" in words for words in few.assumed)


def test_the_network_is_bounded_by_its_slowest_station_and_by_its_latency():
    services = {"arithmetic": 10.0, "memory": 40.0}
    alone = throughput(services, 50.0, 1, 1)
    assert alone == pytest.approx(1 / 100)  # one after the other
    assert throughput(services, 50.0, 64, 1) == pytest.approx(1 / 40, rel=0.01)
    rates = [throughput(services, 50.0, n, 1) for n in range(1, 20)]
    assert rates == sorted(rates)


def test_what_a_cell_shows_and_what_is_refused():
    x = np.ones(256, np.float32)
    traced = trace(copied, 2, 128, x, x.copy())
    shown = str(traced.estimate("T4", grid=10**5))
    assert "copied on T4" in shown
    assert "calculated" in shown
    assert "32 registers a thread are assumed" in shown
    alone = trace(copied, 1, 128, x[:128].copy(), x[:128].copy())
    assert "share no data along x: trace two or more there" in str(
        alone.estimate("T4", grid=10**5)
    )
    for wrong, error, words in (
        ("T5", UnknownDevice, "Nearest names"),
        ("AMD Instinct MI300X", UnknownDevice, "compute_capability"),
        ("B300 SXM", UnknownDevice, "unknown are sms"),
    ):
        with pytest.raises(error, match=words):
            traced.estimate(wrong)
    with pytest.raises(ValueError, match="longer"):
        traced.estimate("T4", longer=0)
    with pytest.raises(ValueError, match=r"grid\.x"):
        traced.estimate("T4", grid=0)


def test_a_short_name_of_a_gpu_says_what_it_is_taken_for():
    x = np.ones(256, np.float32)
    traced = trace(copied, 2, 128, x, x.copy())
    words = "'H100' is taken as H100 SXM5 80GB; there are also"
    assert words in str(traced.estimate("H100"))
    assert words in str(traced.review("H100"))
    assert "is taken as" not in str(traced.estimate("H100 SXM5 80GB"))
    assert "is taken as" not in str(traced.review("H100 SXM5 80GB"))


def test_every_nvidia_gpu_of_the_catalog_has_a_time_or_says_what_is_missing():
    from gpufacts import devices

    x = np.ones(256, np.float32)
    traced = trace(copied, 2, 128, x, x.copy())
    without = []
    for device in devices():
        if device.vendor == "NVIDIA":
            try:
                assert math.isfinite(traced.estimate(device, grid=10**6).seconds)
            except UnknownDevice:
                without.append(device.name)
    assert without == [
        "H20 SXM 96GB",
        "GB300 (per Blackwell Ultra GPU)",
        "B300 SXM",
        "RTX PRO 6000 Blackwell Server Edition",
        "GB10",
    ]
