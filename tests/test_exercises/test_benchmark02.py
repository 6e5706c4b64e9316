"""The check of 02.7: each fault is found whatever the others are, and right answers of
any style pass.
"""

import itertools
import statistics

import pytest

from exercises.nb02.wrong_answers import iqr, planted
from labkit.lesson import checks
from tests.selection import sampled

FAULTS = {
    "no synchronization": {"sync": False},
    "cold call": {"warm": False},
    "work skipped": {"fresh": False},
    "different work compared": {"dtype": "float64"},
    "transfer left out": {"transfer": False},
    "one run and no spread": {"runs": 1},
}


SETS = [which for n in range(7) for which in itertools.combinations(FAULTS, n)]
ALONE = [which for which in SETS if len(which) < 2]
TOGETHER = [(which,) for which in SETS if len(which) > 1]


@pytest.mark.parametrize("which", [*ALONE, *sampled(TOGETHER, 4)], ids="+".join)
def test_every_set_of_faults_is_named_and_no_other(which):
    switches = {key: value for name in which for key, value in FAULTS[name].items()}
    outcome = checks.check("02.7", planted(**switches))
    # a single call without a warm-up can't meet its numbers again
    expected = set(which) - (
        {"work skipped"}
        if {"cold call", "one run and no spread"} <= set(which)
        else set()
    )
    assert {name for name in FAULTS if f") {name}:" in outcome.message} == expected
    assert outcome.state == ("not yet" if expected else "passed")


def result(cpu_s, gpu_s, middle=statistics.median):
    return {
        "cpu_s": middle(cpu_s),
        "gpu_s": middle(gpu_s),
        "gpu_spread": iqr(gpu_s) / statistics.median(gpu_s),
    }


def ten_blurs_a_reading(station, n):
    """Several calls inside one reading of the clock, the standard deviation as the
    spread.
    """

    def reading(run):
        inputs = [station.random(n, "float32") for _ in range(10)]
        station.synchronize()
        start = station.clock()
        for x in inputs:
            run(x)
        station.synchronize()
        return (station.clock() - start) / 10

    def on_gpu(x):
        station.gpu_blur(station.to_gpu(x))

    reading(station.cpu_blur), reading(on_gpu)
    cpu_s, gpu_s = (
        [reading(run) for _ in range(20)] for run in (station.cpu_blur, on_gpu)
    )
    found = result(cpu_s, gpu_s, statistics.mean)
    return found | {"gpu_spread": statistics.stdev(gpu_s) / statistics.mean(gpu_s)}


@pytest.mark.parametrize("answer", [ten_blurs_a_reading, planted(runs=5)])
def test_a_right_answer_of_another_style_passes(answer):
    assert str(checks.check("02.7", answer)).startswith("02.7 passed")


def test_all_numbers_in_float64_are_told_from_unequal_ones():
    def answer(station, n):
        draw = station.random
        station.random = lambda n, dtype: draw(n, "float64")
        return planted()(station, n)

    words = (
        "1 of 6 faults remains:\n(1) different work compared: float64 on both; the"
        " docstring asks for float32."
    )
    assert checks.check("02.7", answer).message == words


@pytest.mark.complete
def test_a_benchmark_that_fails_or_never_ends_is_told_so():
    def endless(station, n):
        while True:
            station.cpu_blur(station.random(n, "float32"))

    assert "100,000 blurs are enough" in checks.check("02.7", endless).message
    assert (
        "needs its numbers in the GPU's memory"
        in checks.check("02.7", planted_without_copy).message
    )


def planted_without_copy(station, n):
    station.gpu_blur(station.random(n, "float32"))
