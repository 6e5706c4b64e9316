"""Notebook 11's ways to train a language model on the same tokens."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from exercises.nb11 import optimizers
from labkit.core.errors import NotFinite
from labkit.measure.machine import threads
from labkit.train.models import SmallGPT
from labkit.train.training import TunedComparison


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):  # more would wait for a busy core
        yield


def trained(way, rate, steps=20):
    torch.manual_seed(0)
    model = SmallGPT(11, layers=1, heads=2, width=8, context=8)
    row = torch.arange(9)[None] % 11

    def loss_of(net, batch):
        return cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    before = loss_of(model, row).item()
    optimizers.train(way, model, rate, row.expand(steps, 1, 9), loss_of)
    return before, loss_of(model, row).item()


@pytest.mark.parametrize("way", optimizers.WAYS)
def test_each_way_learns_and_says_where_it_diverged(way):
    before, after = trained(way, 0.01)
    assert after < before - 0.1
    with pytest.raises(NotFinite, match="diverged at rate"):
        trained(way, float("inf"))


def test_a_decay_ends_with_hardly_a_step():
    steps = []

    def loss_of(net, batch):
        steps.append(net.weight.item())
        return net.weight.sum()

    model = torch.nn.Linear(1, 1, bias=False)
    optimizers.train("Adam, decay", model, 0.1, torch.zeros(10, 1), loss_of)
    taken = [
        a - b for a, b in zip(steps, [*steps[1:], model.weight.item()], strict=True)
    ]
    assert taken == pytest.approx(
        [0.1 * (1 - step / 10) for step in range(10)], rel=1e-3
    )


def test_schedule_free_weights_are_the_mean_of_its_path():
    weight = torch.nn.Parameter(torch.tensor([4.0]))
    optimizer = optimizers.ScheduleFree([weight], lr=0.5)
    path = []
    for _ in range(6):
        weight.grad = weight.detach().clone()
        optimizer.step()
        path.append(optimizer.state[weight]["path"].item())
    optimizer.finish()
    assert weight.item() == pytest.approx(sum(path) / len(path), rel=1e-5)


def test_how_many_times_adams_mean_another_way_has_comes_with_its_interval():
    accuracies = {
        "Adam": (0.20, 0.22, 0.24, 0.22),
        "Muon, decay": (0.23, 0.24, 0.26, 0.25),
    }
    found = TunedComparison(accuracies, dict.fromkeys(accuracies, 0.01), {})
    ratio = optimizers.times_adam(found, "Muon, decay")
    assert ratio.value == pytest.approx(
        sum(accuracies["Muon, decay"]) / sum(accuracies["Adam"])
    )
    assert 1 < ratio.low < ratio.value < ratio.high
    assert optimizers.times_adam(found, "Adam").verdict == "no difference seen"
