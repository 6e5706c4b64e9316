import pytest

from labkit.core.errors import BadMeasurement
from labkit.measure.simulated import Event, SimulatedDevice

LAUNCH_S = 10e-6
KERNEL_S = 2e-3


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


def test_a_virtual_clock_that_nothing_moves_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr("labkit.measure.simulated.gpu._MOST_IDLE_CALLS", 3)
    device = SimulatedDevice(compile_s=0.0)
    for _ in range(4):  # a launch moves it
        device.launch(0.0)
        device.synchronize(), device.clock(), device.clock()
    with pytest.raises(
        BadMeasurement, match="The clock has not moved in 3 readings: it is virtual"
    ):
        device.synchronize()


def test_it_says_that_it_is_simulated():
    text = str(SimulatedDevice())
    assert text.startswith("simulated device: no time below was measured on hardware")
    assert (
        "virtual clock, launch 10.0 µs, bus 10.0 GB/s, first call 500 ms more" in text
    )
    assert repr(SimulatedDevice()) == text
