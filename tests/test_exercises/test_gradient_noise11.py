"""The gradient noise scale: against its closed form, and what is refused."""

import math

import pytest
import torch
from torch import nn

from exercises.nb11 import gradient_noise
from labkit.core.errors import BadArgument
from tests.test_train.test_training import blobs


class Center(nn.Module):
    """Returns its weights for each image, so that the gradient of half the squared
    distance is weights - image.
    """

    def __init__(self, at):
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))

    def forward(self, images):
        return self.at.expand(len(images), -1)


def half_squared(output, target):
    return 0.5 * (output - target).square().sum(1).mean()


def test_the_noise_scale_is_the_one_in_closed_form():
    images = (
        torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
        * torch.tensor([1.0, 2.0, 0.5])
        + 1
    )
    model = Center([2.0, 0.5, 1.0])
    noise = images.var(0, correction=0).sum().item()
    signal = (model.at.detach() - images.mean(0)).square().sum().item()
    found = gradient_noise.gradient_noise(
        model, images, images, small=4, parts=8, draws=400, loss=half_squared
    )
    assert found.noise == pytest.approx(noise, rel=0.1)
    assert found.signal == pytest.approx(signal, rel=0.15)
    assert found.low < noise / signal < found.high
    assert found.high < 1.5 * found.low
    assert "images (95 % interval" in str(found)
    assert model.at.grad is None


def test_no_signal_is_a_scale_without_end():
    images = torch.tensor([[1.0], [-1.0]])
    found = gradient_noise.gradient_noise(
        Center([0.0]), images, images, small=2, parts=2, draws=60, loss=half_squared
    )
    assert found.high == math.inf


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.BatchNorm1d(4))
    images = blobs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradient_noise.gradient_noise(model, *images, draws=2, parts=2)
    assert all(
        torch.equal(before[name], value) for name, value in model.state_dict().items()
    )
    assert model.training
    assert model[1].training


def test_unbiased_estimates_solve_the_two_equations():
    noise, signal = gradient_noise.noise_scale(
        16, 256, 2.0 + 30.0 / 16, 2.0 + 30.0 / 256
    )
    assert (noise, signal) == (pytest.approx(30.0), pytest.approx(2.0))


@pytest.mark.parametrize(
    "wrong", [{"small": 0}, {"parts": 1}, {"draws": 1}, {"draws": 2.5}]
)
def test_noise_needs_parts_and_draws(wrong):
    with pytest.raises(BadArgument, match=next(iter(wrong))):
        gradient_noise.gradient_noise(nn.Linear(6, 4), *blobs(), **wrong)
    with pytest.raises(BadArgument, match="require a gradient"):
        gradient_noise.gradient_noise(nn.ReLU(), *blobs())
