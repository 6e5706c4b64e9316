import functools
import math
import random
import re

import pytest

from labkit.core.errors import BadArgument, BadMeasurement, LabError
from labkit.measure import bench
from labkit.measure.bench import Ratio, Timing
from labkit.measure.bootstrap import median_ratio_interval

ZEROS = Timing("zeros", 0.0, (0.0,) * 5)
ONE_STOOD_STILL = Timing("stood still", 0.1, (0.0, *(0.1,) * 5))


class FakeDevice:
    """Work is enqueued by `launch` and only takes time in `synchronize`, as on a GPU
    stream; the clock is a number.
    """

    def __init__(self, kernel_s, launch_s=1e-6, cold_s=0.0, noise=lambda: 1.0):
        self.now_s = self.busy_until_s = 0.0
        self.kernel_s = kernel_s
        self.launch_s = launch_s
        self.cold_s = cold_s
        self.noise = noise
        self.launches = self.syncs = 0

    def clock(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds

    def launch(self):
        self.launches += 1
        self.now_s += self.launch_s
        cold_s, self.cold_s = self.cold_s, 0.0
        self.busy_until_s = (
            max(self.busy_until_s, self.now_s) + self.kernel_s * self.noise() + cold_s
        )

    def synchronize(self):
        self.syncs += 1
        self.now_s = max(self.now_s, self.busy_until_s)

    def time(self, **kwargs):
        return bench.time_call(
            self.launch,
            label="kernel",
            sync=self.synchronize,
            clock=self.clock,
            **kwargs,
        )


def test_sync_is_charged_to_the_call():
    assert FakeDevice(kernel_s=2e-3).time(budget_s=0.02).median_s == pytest.approx(
        2e-3, rel=0.01
    )


def test_without_sync_only_the_launch_is_seen():
    device = FakeDevice(kernel_s=2e-3, launch_s=1e-4)
    timing = bench.time_call(
        device.launch, label="kernel", clock=device.clock, budget_s=0.01
    )
    assert timing.median_s == pytest.approx(1e-4)


def test_the_cold_call_is_kept_apart():
    timing = FakeDevice(kernel_s=1e-3, cold_s=5.0).time(budget_s=0.01)
    assert timing.first_s > 5 > 0.1 > max(timing.samples_s)


def test_work_queued_before_is_not_charged():
    device = FakeDevice(kernel_s=1e-3)
    for _ in range(1000):
        device.launch()
    assert device.time(budget_s=0.01).first_s < 0.01


@pytest.mark.parametrize(
    ("kernel_s", "repeated"), [(20e-3, False), (2e-3, True), (1e-7, True)]
)
def test_short_calls_are_repeated_inside_the_clock_and_the_result_says_so(
    kernel_s, repeated
):
    timing = FakeDevice(kernel_s=kernel_s, launch_s=1e-9).time(budget_s=0.01)
    assert (timing.repeats > 1) is repeated
    assert ("calls a reading" in str(timing)) is repeated
    assert timing.median_s == pytest.approx(kernel_s, rel=0.02)


def test_a_function_that_does_nothing_is_timed_and_a_clock_that_stands_still_is_refused():
    device = FakeDevice(kernel_s=0.0, launch_s=30e-9)
    timing = bench.time_call(
        device.launch, label="nothing", clock=device.clock, budget_s=1e-3
    )
    assert 0.9e-3 < timing.repeats * 30e-9 < 2.1e-3  # a reading is about a millisecond
    with pytest.raises(BadMeasurement, match="does not advance"):
        bench.time_call(lambda: None, label="nothing", clock=lambda: 0.0)


def test_a_long_call_beside_a_short_one_has_as_many_readings():
    calls = {"long": [], "short": []}
    clock = FakeDevice(kernel_s=0.0)

    def run(name, seconds):
        calls[name].append(seconds)
        clock.kernel_s = seconds
        clock.launch()

    def timed(**seconds):
        rows = {name: functools.partial(run, name, s) for name, s in seconds.items()}
        return bench.compare(
            rows, sync=clock.synchronize, clock=clock.clock, budget_s=0.0, min_runs=5
        ).timings

    assert [len(timing.samples_s) for timing in timed(long=0.6, short=0.2)] == [5, 5]
    assert len(calls["long"]) == 7  # the estimate is no reading where the other's isn't
    calls["long"].clear()
    assert [len(timing.samples_s) for timing in timed(long=0.6, short=0.5)] == [5, 5]
    assert len(calls["long"]) == 6


def compared_kernels(budget_s, **seconds):
    """Kernels of so many seconds, each behind a launch of 10 µs, timed in turn."""
    device = FakeDevice(kernel_s=0.0, launch_s=10e-6)

    def run(kernel_s):
        device.kernel_s = kernel_s
        device.launch()

    rows = {
        name: functools.partial(run, kernel_s) for name, kernel_s in seconds.items()
    }
    return bench.compare(
        rows, sync=device.synchronize, clock=device.clock, budget_s=budget_s
    )


def test_both_sides_of_a_comparison_share_the_cost_of_a_reading_alike():
    """Kernels of 41 and 38 µs behind a launch of 10 µs: timed alone and repeated they
    would differ by a third.
    """
    timed = compared_kernels(a=41e-6, b=38e-6, budget_s=0.1)
    assert len({timing.repeats for timing in timed.timings}) == 1
    assert timed.ratio("b").value == pytest.approx(41 / 38, rel=0.03)


def test_a_short_call_beside_a_long_one_has_as_many_calls_a_reading_as_it_needs():
    """A kernel of 0.1 ms behind a launch of 10 µs: with one call a reading it would
    seem 10 % slower.
    """
    timed = compared_kernels(long=90e-3, short=0.1e-3, budget_s=1.0)
    long, short = timed.timings
    assert long.repeats == 1
    assert short.repeats * 0.1e-3 >= 10e-3
    assert timed.ratio("short").value == pytest.approx(900, rel=0.01)


@pytest.mark.complete
@pytest.mark.slow
def test_slow_moments_that_last_do_not_make_a_difference_of_nothing():
    """Readings that depend on their neighbors (AR(1), 0.5), on each side by itself."""
    wrong = 0
    for seed in range(100):
        generator = random.Random(seed)

        def readings(label, generator=generator):
            noise = 0.0
            samples = []
            for _ in range(200):
                noise = 0.5 * noise + generator.gauss(0, 0.05)
                samples.append(1 + noise)
            return Timing(label, 1.0, tuple(samples))

        wrong += (
            bench.speedup(readings("a"), readings("b")).verdict != "no difference seen"
        )
    # resampling single readings, 21 are wrong; a block bootstrap, about 9
    assert wrong <= 16


def test_the_budget_is_spent_and_the_minimum_kept():
    assert len(
        FakeDevice(kernel_s=20e-3).time(budget_s=2.0).samples_s
    ) == pytest.approx(100, abs=2)
    assert len(FakeDevice(kernel_s=1.0).time(budget_s=0.1, min_runs=7).samples_s) == 7


def test_on_sample_sees_each_reading_and_is_not_timed():
    device = FakeDevice(kernel_s=1e-3)
    seen = []

    def slow_picture(timing):
        seen.append(len(timing.samples_s))
        device.now_s += 10.0

    timing = device.time(budget_s=0.01, on_sample=slow_picture)
    assert seen == list(range(1, len(timing.samples_s) + 1))
    assert timing.median_s < 2e-3


def test_rates_and_quartiles():
    timing = Timing("x", 9.0, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert timing.rate(6) == 2.0
    assert timing.quartiles_s == (2.0, 4.0)
    assert timing.spread == pytest.approx(2 / 3)
    assert "first call 9.00 s" in str(timing)


def compared(a_s, b_s, sigma, seed=0):
    """Two functions on one noisy device, taken in turn."""
    generator = random.Random(seed)
    device = FakeDevice(kernel_s=1.0, noise=lambda: generator.lognormvariate(0, sigma))

    def run(seconds):
        device.kernel_s = seconds
        device.launch()

    rows = {"a": lambda: run(a_s), "b": lambda: run(b_s)}
    return bench.compare(
        rows, sync=device.synchronize, clock=device.clock, budget_s=0.0, min_runs=15
    )


def test_compare_takes_turns():
    device = FakeDevice(kernel_s=1.0)
    calls = []
    rows = {
        name: lambda name=name: (calls.append(name), device.launch()) for name in "ab"
    }
    bench.compare(
        rows, sync=device.synchronize, clock=device.clock, budget_s=0.0, min_runs=5
    )
    assert "".join(calls).endswith("abbaabbaab")


def test_a_real_speedup_is_found_with_its_size():
    ratio = compared(2e-3, 1e-3, 0.05).ratio("b")
    assert ratio.verdict == "faster"
    assert ratio.low < 2.0 < ratio.high
    assert "b is faster than a: " in str(ratio)
    assert compared(1e-3, 2e-3, 0.05).ratio("b").verdict == "slower"


def test_the_same_function_twice_is_seldom_called_a_speedup():
    wrong = sum(
        compared(1e-3, 1e-3, 0.2, seed).ratio("b").verdict != "no difference seen"
        for seed in range(60)
    )
    assert wrong <= 9  # 5 % of 60 is 3; 9 or more has a chance under 1 in 300
    assert "no difference seen" in str(compared(1e-3, 1e-3, 0.2).ratio("b"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: bench.time_call(1, label="a"),
            (
                "Expected fn to be a function of no arguments, got 1. Pass its name"
                " without brackets."
            ),
        ),
        (
            lambda: bench.time_call(list, label="a", budget_s="2"),
            "got '2'. It is in seconds.",
        ),
        (
            lambda: bench.compare({"a": list, "b": 1}),
            "Expected alternatives['b'] to be a function of no arguments",
        ),
        (
            lambda: bench.speedup(ZEROS, ZEROS),
            "Expected durations above 0 s for 'zeros', got (0.0,",
        ),
        (  # most readings are fine, and the interval would be "1.00 to nan"
            lambda: bench.speedup(ONE_STOOD_STILL, ONE_STOOD_STILL),
            "Expected durations above 0 s for 'stood still', got (0.0,",
        ),
        (
            lambda: median_ratio_interval([0.1] * 5, [-0.1] * 5),
            "Expected readings above 0 for the interval of a ratio, got (-0.1,",
        ),
        (
            lambda: Ratio("b", "a", 1.0, 1.0, math.nan),
            "Expected numbers for the ratio of 'b' to 'a' and its interval",
        ),
    ],
)
def test_misuse_is_one_sentence(call, words):
    with pytest.raises(BadArgument, match=re.escape(words)):
        call()


def test_the_inverse_of_a_ratio_says_how_much_longer_the_other_takes():
    turned = Ratio("b", "a", 0.5, 0.25, 0.8).inverse
    assert (turned.label, turned.baseline) == ("a", "b")
    assert (turned.value, turned.low, turned.high) == pytest.approx((2, 1.25, 4))
    assert Ratio("b", "a", 2.0, 0.0, 4.0).inverse.high == math.inf


def test_a_ratio_of_unequal_work_is_scaled_with_its_interval():
    scaled = Ratio("b", "a", 0.5, 0.25, 0.8, busy="busy").times(4)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((2, 1, 3.2))
    assert scaled.busy == "busy"


@pytest.mark.parametrize(
    "words",
    [  # numba's and torch's
        (
            "[222] Call to cuLinkAddData results in"
            " CUDA_ERROR_UNSUPPORTED_PTX_VERSION\nptxas application ptx input"
        ),
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ],
)
def test_a_kernel_that_the_driver_is_too_old_for_is_told_so(words):
    def launch():
        raise RuntimeError(words)

    for timed in (
        lambda: bench.time_call(launch, label="a"),
        lambda: bench.compare({"a": launch, "b": launch}),
    ):
        with pytest.raises(
            LabError,
            match=(
                "driver is older than the compiler: update it, or do what `make doctor`"
            ),
        ) as told:
            timed()
        assert words in str(told.value)


def test_other_errors_of_what_is_timed_stay_as_they_are():
    with pytest.raises(ZeroDivisionError):
        bench.time_call(lambda: 1 / 0, label="a")
