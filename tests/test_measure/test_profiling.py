"""What lab.profiling adds to steptime: this machine's ceilings and name, its Timings,
and a watch on other programs.
"""

import dataclasses

import pytest
import torch
from torch._dynamo.utils import counters

import labkit as lab
from labkit.measure import profiling
from labkit.measure.bench import Timing
from labkit.measure.ceilings import MachineCeilings
from labkit.measure.contention import Contention
from labkit.measure.machine import machine
from labkit.measure.probe import Ceiling
from test_steptime import planted_loops
from tests import planted_ceilings

COPY = Ceiling(2e9, 1.9e9, 2.1e9, "B/s", "1 to 1", 1, 5)
MATMUL = Ceiling(50e12, 45e12, 55e12, "FLOP/s", "8 × 8", 8, 5)
MEASURED = MachineCeilings(
    "NVIDIA Fake 9000",
    None,
    COPY,
    {"float32": MATMUL},
    (),
    {"float32": 60e12},
    {},
    {},
    "now",
)


def busy(monkeypatch, reason):
    watch = dataclasses.make_dataclass(
        "Watch", ["gpu"], namespace={"so_far": lambda self: Contention(0.5, reason)}
    )
    monkeypatch.setattr(profiling, "Watch", watch)


def test_utilization_takes_a_timing_and_this_machines_ceilings(monkeypatch):
    monkeypatch.setattr(profiling, "measure_ceilings", lambda: MEASURED)
    found = lab.profiling.utilization(5e12, Timing("step", 9.0, (0.1, 0.2, 5.0)))
    assert (found.seconds, found.of_ceiling, found.of_peak) == (
        0.2,
        pytest.approx(0.5),
        pytest.approx(25 / 60),
    )
    assert "55.0 TFLOP/s" in " ".join(lab.profiling.utilization(52e12, 1.0).suspects), (
        "the third quartile"
    )


def test_a_profile_has_this_machines_name_and_says_that_others_disturbed_it(
    monkeypatch, home
):
    busy(monkeypatch, "this machine was busy")
    found = lab.profiling.profile_step(lambda: torch.ones(9) + 1, steps=1)
    assert (found.device, found.trace_path) == (
        machine().name,
        home / "traces" / "step.json",
    )
    assert "The times are in doubt: this machine was busy." in found.notes


@pytest.mark.slow
def test_a_bottleneck_is_found_with_labkits_ceilings_and_is_in_doubt_on_a_busy_machine(
    monkeypatch,
):
    busy(monkeypatch, "this machine was busy")
    # other tests of this process may have
    monkeypatch.setitem(counters["stats"], "unique_graphs", 0)
    given = planted_loops.many_small_layers(planted_loops.RealTime())
    with lab.threads(2):
        found = lab.profiling.find_bottleneck(
            *given, budget_s=0.3, ceilings=planted_ceilings.MEASURED
        )
        assert torch.get_num_threads() == 2
    assert "In doubt, since this machine was busy" in str(found)
    assert "one thread ran all experiments" in found.evidence[0]


def test_lines_of_labkit_that_wait_count_for_the_line_that_calls_them():
    images = torch.zeros(8, 1, 2, 2)
    labels = torch.zeros(8, dtype=torch.int64)

    def judge():
        lab.training.accuracy(torch.nn.Flatten(), images, labels)

    lines = [line for line, _ in lab.profiling.wait_lines(judge).rows]
    assert lines == ["lab.training.accuracy(torch.nn.Flatten(), images, labels)"]
