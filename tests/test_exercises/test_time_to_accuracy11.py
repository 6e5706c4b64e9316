"""The check of exercise 11.7: what it counts, apart from learning."""

import contextlib
import random

import pytest
import torch
from torch import nn

from exercises.nb11 import time_to_accuracy
from labkit.lesson.checks import NotYet
from labkit.train.training import Run
from tests.test_exercises import virtual_clock


def quick():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, 8


def some_images():
    images = torch.randn(16, 1, 8, 8)
    labels = torch.arange(16) % 10
    return (images, labels), (images, labels)


def test_what_recipe_does_before_its_first_step_counts(monkeypatch):
    clock = virtual_clock.of_trainings(monkeypatch)

    def slow():
        clock.spend(0.3)
        return quick()

    run = time_to_accuracy._train(slow, 0, *some_images())
    assert run.seconds[0] >= 0.3


def test_what_a_body_had_learned_is_lost_and_what_tells_nothing_is_no_ground_for_suspicion():
    def body():
        model, step, batch = quick()
        with torch.no_grad():
            model[1].weight.copy_(torch.arange(64.0 * 32).reshape(32, 64))
        return model, step, batch

    model, _ = time_to_accuracy._shuffled(body)
    assert not torch.equal(model[1].weight, body()[0][1].weight)
    assert torch.equal(
        model[1].weight.ravel().sort().values, body()[0][1].weight.ravel()
    )
    some = torch.randn(12, 12)
    assert time_to_accuracy._alike(some, some.ravel()[torch.randperm(144)].view(12, 12))
    # a last layer that begins at 0
    assert not time_to_accuracy._alike(torch.zeros(10, 12), torch.zeros(10, 12))


def first_layer(prepare):
    """A recipe whose first step prepares the first layer, given the images."""

    def recipe():
        model, step, batch = quick()
        begun = []

        def prepares_first(images, labels):
            if not begun:
                begun.append(prepare(model[1], images.flatten(1)))
            return step(images, labels)

        return model, prepares_first, batch

    return recipe


@torch.no_grad()
def whitened(layer, images):
    layer.weight.copy_(
        torch.linalg.svd(images - images.mean(0), full_matrices=False)[2][:32]
    )


_KEPT = torch.randn(32, 64)


@torch.no_grad()
def put_back(layer, images):
    layer.weight.copy_(_KEPT[torch.randperm(32)])


@pytest.mark.parametrize(
    "prepare",
    [whitened, lambda layer, images: layer.reset_parameters(), lambda layer, images: 0],
)
def test_a_first_step_may_draw_weights_or_take_them_from_its_images(prepare):
    time_to_accuracy._judge_first_step(first_layer(prepare))


def test_a_first_step_that_puts_weights_back_in_another_order_is_found():
    with pytest.raises(
        NotYet, match=r"numbers of shape \(32, 64\) in the place of weights"
    ):
        time_to_accuracy._judge_first_step(first_layer(put_back))


def runs(seconds):
    return [
        Run(i, 32, (1.0,), (0.98,), (one,), (32,), nn.Identity())
        for i, one in enumerate(seconds)
    ]


@pytest.mark.parametrize("seeds", [6, 8])  # as many as the check takes
def test_the_baseline_against_itself_is_accepted_in_less_than_one_check_of_a_hundred(
    seeds,
):
    draw = random.Random(seeds)
    accepted = 0
    for _ in range(2_000):
        plain, yours = (
            runs(draw.lognormvariate(0, 0.4) for _ in range(seeds)) for _ in range(2)
        )
        with contextlib.suppress(NotYet):
            accepted += bool(time_to_accuracy._judge(plain, yours))
    assert accepted < 20


def test_a_gain_is_accepted_where_chance_can_not_explain_it():
    plain = [3.0, 3.5, 4.0, 4.5, 5.0, 5.5]
    assert "yours is faster" in time_to_accuracy._judge(
        runs(plain), runs([1.0, 1.1, 1.2, 1.3, 1.4, 3.2])
    )
    with pytest.raises(
        NotYet, match=r"It may be luck: equal trainings differ so in 12\.0% of checks"
    ):
        time_to_accuracy._judge(runs(plain), runs([1.0, 1.1, 1.2, 1.3, 4.6, 5.6]))
    with pytest.raises(NotYet, match="Less than a quarter faster"):
        time_to_accuracy._judge(runs(plain), runs(one - 0.1 for one in plain))
