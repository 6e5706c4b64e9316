"""Estimated times: held against published ones, and against what is certain about a few small kernels."""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from numba import cuda, float32

from exercises.nb04 import kernel_times
from kerneltrace import trace
from kerneltrace.errors import BadArgument, KernelError, UnknownDevice
from kerneltrace.judge.estimate import WITHIN, throughput
from labkit.measure import published
from tests.test_kerneltrace.published_kernels import LAUNCHES, copied, transposed

pytestmark = pytest.mark.slow  # traces large kernels

ROWS = published.table("kernel_times")


@pytest.mark.complete
@pytest.mark.parametrize("kernel", sorted({row["kernel"] for row in ROWS}))
def test_the_table_holds_what_is_calculated(kernel):
    for row in ROWS:
        if row["kernel"] == kernel:
            found = LAUNCHES[kernel].estimate(row["device"])
            assert 1e3 * found.seconds == pytest.approx(float(row["calculated_ms"]), rel=1e-3)
            low, high = found.interval_s
            assert low <= float(row["published_ms"]) / 1e3 <= high


def test_half_of_the_published_kernels_are_within_30_percent_and_none_is_off_by_more_than_2():
    rows = [row for table in kernel_times.published() for row in table.rows]
    assert len(rows) == len(ROWS) >= 14
    assert statistics.median(abs(row.error) for row in rows) <= 0.3
    assert all(1 / WITHIN <= row.predicted / row.published <= WITHIN for row in rows)


@pytest.mark.parametrize("who", ["Boehm 2022", "Mao 2024"])
def test_the_steps_of_a_worklog_come_in_the_published_order(who):
    (rows,) = (table.rows for table in kernel_times.published() if table.name == who)
    pairs = list(combinations(rows, 2))
    agree = sum((a.published < b.published) == (a.predicted < b.predicted) for a, b in pairs)
    assert len(pairs) >= 10
    assert (2 * agree - len(pairs)) / len(pairs) >= 0.9  # Kendall's tau


def test_a_copy_takes_its_bytes_over_the_bandwidth_and_twice_the_blocks_take_twice_as_long():
    x = np.ones(1024, np.float32)
    done = trace(copied, 8, 128, x, x.copy())
    one, two = (done.estimate("A100 SXM4 80GB", grid=blocks) for blocks in (2**20, 2**21))
    assert one.limit == "memory"
    assert one.parts["memory"] == pytest.approx(2**20 * 128 * 8 / (0.91 * 2039e9), rel=1e-3)
    assert one.seconds == pytest.approx(one.parts["memory"], rel=0.05)
    assert two.seconds == pytest.approx(2 * one.seconds, rel=0.01)


def test_a_small_array_comes_from_the_l2_cache_and_a_tiny_launch_costs_its_start():
    x = np.ones(1024, np.float32)
    done = trace(copied, 8, 128, x, x.copy())
    tiny = done.estimate("A100 SXM4 80GB")
    assert tiny.limit in ("launch", "latency")
    assert 1e-6 < tiny.seconds < 3e-6


def test_strides_and_conflicts_cost_what_the_counts_say():
    a = np.ones((64, 64), np.float32)

    def tiled(apart):
        @cuda.jit
        def kernel(a, out):
            tile = cuda.shared.array((32, apart), float32)
            x, y = cuda.threadIdx.x, cuda.threadIdx.y
            tile[y, x] = a[cuda.blockIdx.y * 32 + y, cuda.blockIdx.x * 32 + x]
            cuda.syncthreads()
            out[cuda.blockIdx.x * 32 + y, cuda.blockIdx.y * 32 + x] = tile[x, y]

        return trace(kernel, (2, 2), (32, 32), a, a.copy()).estimate("T4", grid=(256, 256))

    naive = trace(transposed, (2, 2), (32, 32), a, a.copy()).estimate("T4", grid=(256, 256))
    conflicts, padded = tiled(32), tiled(33)
    assert naive.seconds > conflicts.seconds > padded.seconds
    # 32 rounds of 2 clocks each, for each warp: a T4's shared memory gives 64 bytes a clock
    warps_an_sm = 256 * 256 * 32 / 40
    extra_s = conflicts.parts["load and store"] - padded.parts["load and store"]
    assert extra_s == pytest.approx(warps_an_sm * 31 * 2 / 1590e6, rel=0.02)


def test_atomics_on_one_address_are_taken_one_a_clock():
    @cuda.jit
    def count(total):
        cuda.atomic.add(total, 0, float32(1))

    found = trace(count, 4, 128, np.zeros(1, np.float32)).estimate("T4", grid=10**6)
    assert found.limit == "atomics on one address"
    assert found.seconds == pytest.approx(128e6 / 1590e6, rel=0.01)


def test_float64_and_integer_division_take_their_time():
    def arithmetic(operation):
        @cuda.jit
        def kernel(x, out, n):
            i = cuda.grid(1)
            value = x[i]
            for _ in range(64):
                value = operation(value, n)
            out[i] = value

        return kernel

    @cuda.jit(device=True)
    def times(value, n):
        return value * value

    @cuda.jit(device=True)
    def divided(value, n):
        return value // n

    def arithmetic_s(operation, dtype):
        x = np.ones(1024, dtype)
        return trace(arithmetic(operation), 8, 128, x, x.copy(), 3).estimate("T4", grid=10**4).parts["arithmetic"]

    single, double = (arithmetic_s(times, dtype) for dtype in (np.float32, np.float64))
    assert double == pytest.approx(32 * single, rel=0.1)  # 2 results a clock instead of 64
    assert arithmetic_s(divided, np.int64) > 8 * single


def test_longer_loops_store_no_more():
    short = LAUNCHES["matmul, coalesced"]
    a, b, c = (np.ones(s, np.float32) for s in short.shapes)
    done = trace(short.kernel, short.grid, short.block, a, b, c)
    once, often = (done.estimate("T4", grid=(128, 128), longer=longer) for longer in (1, 64))
    double = trace(short.kernel, short.grid, short.block, np.tile(a, 2), np.tile(b, (2, 1)), c)
    assert often.parts["load and store"] < 64 * once.parts["load and store"]
    twice, traced = done.estimate("T4", grid=(128, 128), longer=2), double.estimate("T4", grid=(128, 128))
    assert twice.seconds == pytest.approx(traced.seconds, rel=0.02)


def test_more_registers_leave_less_room_and_latency_shows():
    x = np.ones(1024, np.float32)
    done = trace(copied, 8, 128, x, x.copy())
    few, many = (done.estimate("H100 SXM5 80GB", grid=2**20, registers=n) for n in (32, 255))
    assert few.occupancy == 1
    assert many.occupancy == 0.125
    assert many.seconds > 1.1 * few.seconds
    assert not any("assumed" in words for words in few.assumed)


def test_the_network_is_bounded_by_its_slowest_station_and_by_its_latency():
    services = {"arithmetic": 10.0, "memory": 40.0}
    alone = throughput(services, 50.0, 1, 1, 1)
    assert alone == pytest.approx(1 / 100)  # one after the other
    assert throughput(services, 50.0, 64, 1, 1) == pytest.approx(1 / 40, rel=0.01)
    rates = [throughput(services, 50.0, n, 1, 1) for n in range(1, 20)]
    assert rates == sorted(rates)


def test_what_a_cell_shows_and_what_is_refused():
    x = np.ones(256, np.float32)
    done = trace(copied, 2, 128, x, x.copy())
    shown = str(done.estimate("T4", grid=10**5))
    assert "copied on T4" in shown
    assert "calculated" in shown
    assert "32 registers a thread are assumed" in shown
    alone = trace(copied, 1, 128, x[:128].copy(), x[:128].copy())
    assert "share no data along x: trace two or more there" in str(alone.estimate("T4", grid=10**5))
    for wrong, error, words in (
        ("T5", UnknownDevice, "Nearest names"),
        ("AMD Instinct MI300X", UnknownDevice, "compute_capability"),
        ("B300 SXM", UnknownDevice, "unknown are sms"),
    ):
        with pytest.raises(error, match=words):
            done.estimate(wrong)
    with pytest.raises((BadArgument, KernelError), match="longer"):
        done.estimate("T4", longer=0)
    with pytest.raises(KernelError, match=r"grid\.x"):
        done.estimate("T4", grid=0)


def test_every_nvidia_gpu_of_the_catalogue_has_a_time_or_says_what_is_missing():
    from kerneltrace.devices import devices

    x = np.ones(256, np.float32)
    done, without = trace(copied, 2, 128, x, x.copy()), []
    for device in devices():
        if device.vendor == "NVIDIA":
            try:
                assert math.isfinite(done.estimate(device, grid=10**6).seconds)
            except UnknownDevice:
                without.append(device.name)
    assert without == ["B300 SXM"]
