"""steptime with labkit's ceilings and folders, and with trainplan's forecasts."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.measure import contention, profiling
from labkit.train.models import SimpleCNN
from steptime import memory_timeline
from test_steptime.loops_communication import exchange_in_virtual_time
from test_steptime.test_planted_loops import spawned
from tests.planted_ceilings import MEASURED
from trainplan import costs

pytestmark = pytest.mark.slow

BATCH = 64


def by_labkit(step, batch, trace_path):
    """What limits a loop on a calm machine; the trace goes to labkit's own folder."""
    contention.read = lambda: contention.Reading(0.0, 2, {}, 0.0, 0.0)
    return profiling.find_bottleneck(step, batch, budget_s=2, ceilings=MEASURED)


@pytest.mark.complete
def test_each_rank_has_a_trace_of_its_own(home):
    pages = spawned(home, exchange_in_virtual_time, "all_reduce", by_labkit)
    for page in pages:
        assert page["dominant"] == "communication", page["text"]
    # ranks write at the same time
    traces = sorted(path.name for path in (home / "traces").glob("step*"))
    assert traces == ["step-rank0.json", "step-rank1.json"]


@pytest.fixture(scope="module")
def timeline():
    model = SimpleCNN()
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(BATCH, 3, 32, 32)
    labels = torch.randint(0, 10, (BATCH,))

    def step():
        optimizer.zero_grad()
        cross_entropy(model(images.clone()), labels).backward()
        optimizer.step()

    return memory_timeline(step, model, optimizer), model


def test_every_category_is_what_trainplan_forecasts(timeline):
    measured, model = timeline
    forecast = costs.training_step("SimpleCNN", batch=BATCH).memory
    most = {name: max(n_bytes) for name, n_bytes in measured.n_bytes.items()}
    assert most["parameters"] == forecast.param_bytes
    assert most["gradients"] == forecast.gradient_bytes
    # Adam counts its steps, one number a parameter
    steps = 4 * len(list(model.parameters()))
    assert most["optimizer state"] == forecast.optimizer_bytes + steps
    assert most["activations"] == pytest.approx(forecast.activation_bytes, rel=0.01)


def test_a_forecast_stands_beside_what_was_measured(timeline):
    measured, _ = timeline
    step = costs.training_step("SimpleCNN", batch=BATCH)
    table = measured.against(step)
    assert table.rows[0][1:4] == ("242 KiB", "242 KiB", "1.00x")
    assert str(measured.against(step.memory)) == str(table)
