import statistics

import numpy as np
import pytest

from labkit.core.errors import BadMeasurement
from labkit.measure.bench import compare, time_call
from labkit.measure.simulated import LOGGED_EVENTS, Event, SimulatedDevice

LAUNCH_S, KERNEL_S = 10e-6, 2e-3


def timed(device, fn, *, sync):
    return time_call(fn, label="kernel", sync=sync, clock=device.clock, budget_s=0.01)


def test_a_synchronised_benchmark_sees_the_kernel_and_its_cold_call():
    device = SimulatedDevice(launch_s=LAUNCH_S, compile_s=0.5)
    timing = timed(device, lambda: device.launch(KERNEL_S), sync=device.synchronize)
    assert timing.median_s == pytest.approx(LAUNCH_S + KERNEL_S)
    assert timing.first_s == pytest.approx(0.5 + LAUNCH_S + KERNEL_S)


def test_without_sync_only_the_launch_is_seen():
    device = SimulatedDevice(launch_s=LAUNCH_S)
    timing = timed(device, lambda: device.launch(KERNEL_S), sync=lambda: None)
    assert timing.median_s == pytest.approx(LAUNCH_S)


def test_the_host_goes_on_while_the_device_works():
    device = SimulatedDevice(launch_s=1.0, compile_s=0.0)
    device.launch(10.0)
    device.host(4.0)
    assert device.clock() == 5.0
    device.synchronize()
    assert device.clock() == 11.0  # 10 s of work that began when the launch was over
    device.synchronize()
    assert device.clock() == 11.0


def test_the_event_log_says_what_ran_where_and_when():
    device = SimulatedDevice(launch_s=1.0, compile_s=3.0)
    device.launch(10.0, name="add")
    device.launch(10.0, name="add")
    assert device.events == (
        Event("compile add", "host", 0.0, 3.0),
        Event("launch add", "host", 3.0, 4.0),
        Event("add", "device", 4.0, 14.0),
        Event("launch add", "host", 4.0, 5.0),
        Event("add", "device", 14.0, 24.0),
    )


def test_the_event_log_keeps_the_last_events_only():
    device = SimulatedDevice()
    for i in range(LOGGED_EVENTS + 5):
        device.host(0.0, name=str(i))
    assert (len(device.events), device.events[0].name) == (LOGGED_EVENTS, "5")


def test_each_kernel_name_is_compiled_once():
    device = SimulatedDevice(launch_s=1.0, compile_s=100.0)
    for name in ("a", "b", "a"):
        device.launch(0.0, name=name)
    assert device.clock() == 203.0


def test_copies_take_the_bus_and_the_way_back_waits_for_all_of_it():
    device = SimulatedDevice(launch_s=1.0, bus_bytes_per_s=100.0, compile_s=0.0)
    device.copy_to(1000)
    assert device.clock() == 1.0
    device.launch(5.0)
    device.copy_from(200)
    assert device.clock() == 1.0 + 10.0 + 5.0 + 2.0


def test_the_same_input_object_is_served_from_cache_and_an_equal_one_is_not():
    device = SimulatedDevice(launch_s=1e-6, compile_s=0.0, cached_share=0.1)
    first, equal = [1.0], [1.0]
    for inputs in (first, first, equal, first):
        device.launch(1.0, inputs=(inputs,))
    device.launch(1.0)
    device.launch(1.0)  # no input named: nothing to find in a cache
    durations = [e.end_s - e.start_s for e in device.events if e.where == "device"]
    assert durations == pytest.approx([1.0, 0.1, 1.0, 1.0, 1.0, 1.0])


def test_matmul_gives_the_product_and_takes_its_flop():
    device = SimulatedDevice(launch_s=1.0, compile_s=0.0, flops_per_s=2 * 2 * 3 * 4 / 7)
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(device.matmul(a, b), a @ b)
    device.synchronize()
    assert device.clock() == pytest.approx(1.0 + 7.0)


def run_times(seed, jitter=0.1):
    device = SimulatedDevice(jitter=jitter, seed=seed, compile_s=0.0)
    for _ in range(2000):
        device.launch(KERNEL_S)
    return [e.end_s - e.start_s for e in device.events if e.where == "device"]


def test_jitter_spreads_run_times_around_the_median_and_repeats_with_the_seed():
    times = run_times(seed=1)
    assert statistics.median(times) == pytest.approx(KERNEL_S, rel=0.02)
    assert statistics.stdev(times) == pytest.approx(0.1 * KERNEL_S, rel=0.1)
    assert times == run_times(seed=1)
    assert times != run_times(seed=2)


def test_compare_tells_a_faster_kernel_from_an_equal_one_through_the_jitter():
    device = SimulatedDevice(jitter=0.1, seed=3)
    comparison = compare(
        {
            "old": lambda: device.launch(2e-3, name="old"),
            "new": lambda: device.launch(1e-3, name="new"),
            "same": lambda: device.launch(2e-3, name="same"),
        },
        sync=device.synchronize,
        clock=device.clock,
        min_runs=30,
        budget_s=0.0,
    )
    assert comparison.ratio("new").verdict == "faster"
    assert comparison.ratio("same").verdict == "no difference seen"


def test_the_real_clock_waits_as_long_as_the_virtual_one_counts():
    device = SimulatedDevice(real=True, launch_s=1e-3, compile_s=0.0)
    start_s = device.clock()
    device.launch(0.2)
    launched_s = device.clock() - start_s
    device.synchronize()
    assert 1e-3 <= launched_s < 0.2
    assert device.clock() - start_s >= 0.201


def test_a_virtual_clock_that_nothing_moves_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr("labkit.measure.simulated.gpu._MOST_IDLE_CALLS", 3)
    device = SimulatedDevice(compile_s=0.0)
    for _ in range(4):  # a launch moves it
        device.launch(0.0)
        device.synchronize(), device.clock(), device.clock()
    with pytest.raises(BadMeasurement, match="The clock has not moved in 3 readings: it is virtual"):
        device.synchronize()
    real = SimulatedDevice(real=True)
    assert all(real.clock() for _ in range(5))


def test_it_says_that_it_is_simulated():
    text = str(SimulatedDevice())
    assert text.startswith("simulated device: no time below was measured on hardware")
    assert "virtual clock, launch 10.0 µs, 10.0 TFLOP/s, bus 10.0 GB/s" in text
    assert repr(SimulatedDevice(real=True)) == text.replace("virtual", "real")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SimulatedDevice(launch_s=0), "launch_s must be above 0, got 0"),
        (lambda: SimulatedDevice(jitter=-0.1), "jitter must be 0 or more, got -0.1"),
        (lambda: SimulatedDevice().launch(float("nan")), "kernel_s must be 0 or more, got nan"),
        (lambda: SimulatedDevice().copy_to(-1), "n_bytes must be 0 or more, got -1"),
        (lambda: SimulatedDevice().host(-1), "seconds must be 0 or more, got -1"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(BadMeasurement, match=message):
        call()
