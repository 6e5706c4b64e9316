"""The check of exercise 11.7: what it counts, apart from learning."""

import random

import torch
from torch import nn

from exercises.nb11 import time_to_accuracy
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
    images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 10
    return (images, labels), (images, labels)


def test_what_recipe_does_before_its_first_step_counts(monkeypatch):
    clock = virtual_clock.of_trainings(monkeypatch)

    def slow():
        clock.spend(0.3)
        return quick()

    run = time_to_accuracy._train(slow, 0, *some_images())
    assert run.seconds[0] >= 0.3


def test_weights_are_told_apart_from_chance():
    torch.manual_seed(0)
    one = torch.randn(12, 12)
    assert time_to_accuracy._alike(one, one)
    assert time_to_accuracy._alike(one, one + 0.1 * torch.randn(12, 12))
    assert not time_to_accuracy._alike(one, torch.randn(12, 12))
    assert not time_to_accuracy._alike(torch.randn(2, 3), torch.randn(2, 3))
    assert not time_to_accuracy._alike(one, torch.randn(12, 13))


def test_the_check_leaves_the_number_of_threads_as_it_was(monkeypatch):
    seen = []
    monkeypatch.setattr(time_to_accuracy, "_compared", lambda fn: str(seen.append(torch.get_num_threads())))
    before = torch.get_num_threads()
    time_to_accuracy.recipe(quick)
    assert seen == [1]
    assert torch.get_num_threads() == before


def test_labels_are_renamed_one_to_one():
    (_, training), (_, validation) = time_to_accuracy._renamed(random.Random(1))
    assert sorted(set(training.tolist()) | set(validation.tolist())) == list(range(10))


def test_what_a_body_had_learnt_is_lost_and_what_tells_nothing_is_no_ground_for_suspicion():
    def body():
        model, step, batch = quick()
        with torch.no_grad():
            model[1].weight.copy_(torch.arange(64.0 * 32).reshape(32, 64))
        return model, step, batch

    model, _ = time_to_accuracy._shuffled(body)
    assert not torch.equal(model[1].weight, body()[0][1].weight)
    assert torch.equal(model[1].weight.ravel().sort().values, body()[0][1].weight.ravel())
    some = torch.randn(12, 12)
    assert time_to_accuracy._alike(some, some.ravel()[torch.randperm(144)].view(12, 12))
    assert not time_to_accuracy._alike(torch.zeros(10, 12), torch.zeros(10, 12))  # a last layer that begins at 0
