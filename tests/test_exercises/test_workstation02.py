"""The simulated workstation: each trap alone, in exact times."""

import pytest

from exercises.nb02 import workstation
from exercises.nb02.workstation import Blur, Workstation
from labkit.core.errors import BadArgument, BadMeasurement
from labkit.measure.simulated import gpu as simulated_gpu

TAME = {
    "cpu_bytes_per_s": 40.0,
    "gpu_bytes_per_s": 400.0,
    "launch_s": 1e-9,
    "waits": True,
    "compile_s": 0.0,
    "cached_share": 1.0,
    "random_s": 0.0,
    "bus_bytes_per_s": float("inf"),
    "jitter": 0.0,
}


def seconds(processor, n=100, dtype="float32", times=1, fresh=True, **trap):
    """Seconds of `times` blurs by the workstation's own clock, numbers and transfers counted."""
    station = Workstation(**{**TAME, **trap})
    x = None
    for _ in range(times):
        x = x if x and not fresh else station.random(n, dtype)
        if processor == "cpu":
            station.cpu_blur(x)
        else:
            station.gpu_blur(station.to_gpu(x))
    return station.clock()


def test_without_traps_a_blur_takes_its_bytes_over_the_rate():
    assert seconds("cpu") == pytest.approx(10.0)
    assert seconds("gpu") == pytest.approx(1.0)
    assert seconds("cpu", dtype="float64") == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("trap", "expected_s"),
    [
        ({"waits": False}, 0.0),
        ({"compile_s": 5.0, "times": 2}, 7.0),
        ({"cached_share": 0.1, "times": 2}, 2.0),
        ({"cached_share": 0.1, "times": 2, "fresh": False}, 1.1),
        ({"random_s": 0.5}, 51.0),
        ({"bus_bytes_per_s": 100.0}, 5.0),
    ],
)
def test_each_trap_moves_the_gpus_time_as_it_says(trap, expected_s):
    assert seconds("gpu", **trap) == pytest.approx(expected_s, abs=1e-6)


def test_jitter_spreads_blurs_and_repeats_with_the_seed():
    assert seconds("gpu", jitter=0.2) == seconds("gpu", jitter=0.2) != seconds("gpu", jitter=0.2, seed=1)


def test_the_runs_say_what_was_blurred_without_the_caches_help():
    runs = []
    station = Workstation(**{**TAME, "cached_share": 0.1, "bus_bytes_per_s": 100.0}, on_run=runs.append)
    x = station.random(100, "float32")
    for _ in range(2):
        station.gpu_blur(station.to_gpu(x))
    station.clock()
    station.cpu_blur(station.random(10, "float64"))
    gpu = Blur("gpu", 100, "float32", 1.0, 4.0, reading=0)
    assert runs == [gpu, gpu, Blur("cpu", 10, "float64", 2.0, 0.0, reading=1)]
    assert not hasattr(station, "runs")
    assert not hasattr(station, "events")


def test_the_cpus_jitter_may_differ():
    assert seconds("cpu", jitter=0.2, cpu_jitter=0.0) == pytest.approx(10.0)
    assert seconds("gpu", jitter=0.2, cpu_jitter=0.0) != pytest.approx(1.0)
    assert seconds("cpu", jitter=0.2) == seconds("cpu", jitter=0.0, cpu_jitter=0.2)


@pytest.mark.parametrize("wait", ["clock", "synchronize"])
def test_waiting_for_a_clock_that_nothing_moves_is_told(monkeypatch, wait):
    monkeypatch.setattr(simulated_gpu, "_MOST_IDLE_CALLS", 3)
    station = Workstation(**TAME)
    for _ in range(3):
        getattr(station, wait)()
    with pytest.raises(BadMeasurement, match="only queued work, host work and waits move it"):
        getattr(station, wait)()


def test_numbers_in_the_wrong_memory_are_refused():
    station = Workstation()
    x = station.random(10, "float32")
    with pytest.raises(BadArgument, match="gpu_blur needs its numbers in the GPU's memory; these are in main memory"):
        station.gpu_blur(x)
    with pytest.raises(BadArgument, match="cpu_blur needs its numbers in main memory"):
        station.cpu_blur(station.to_gpu(x))


def test_an_unknown_dtype_and_an_endless_benchmark_are_refused(monkeypatch):
    with pytest.raises(BadArgument, match="dtype to be one of 'float32', 'float64', got 'int8'"):
        Workstation().random(10, "int8")
    monkeypatch.setattr(workstation, "_MOST_RUNS", 3)
    with pytest.raises(BadMeasurement, match="3 blurs are enough"):
        seconds("cpu", times=4)


def test_it_says_that_it_is_simulated():
    assert str(Workstation()).startswith("simulated workstation: no time was measured on hardware (CPU 1.00 GB/s")
