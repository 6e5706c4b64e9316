"""The simulated workstation: each trap alone, in exact times."""

import pytest

from exercises.nb02 import workstation
from exercises.nb02.workstation import Workstation
from labkit.core.errors import BadArgument, BadMeasurement

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
    """Seconds of `times` blurs by the workstation's own clock, numbers and transfers
    counted.
    """
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


def test_numbers_in_the_wrong_memory_are_refused():
    station = Workstation()
    x = station.random(10, "float32")
    with pytest.raises(
        BadArgument,
        match=(
            "gpu_blur needs its numbers in the GPU's memory; these are in main memory"
        ),
    ):
        station.gpu_blur(x)
    with pytest.raises(BadArgument, match="cpu_blur needs its numbers in main memory"):
        station.cpu_blur(station.to_gpu(x))


def test_an_unknown_dtype_and_an_endless_benchmark_are_refused(monkeypatch):
    with pytest.raises(
        BadArgument, match="dtype to be one of 'float32', 'float64', got 'int8'"
    ):
        Workstation().random(10, "int8")
    monkeypatch.setattr(workstation, "_MOST_RUNS", 3)
    with pytest.raises(BadMeasurement, match="3 blurs are enough"):
        seconds("cpu", times=4)
