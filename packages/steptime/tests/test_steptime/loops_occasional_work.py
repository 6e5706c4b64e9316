"""Loops in which some steps do more than others."""

import itertools
import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from test_steptime.loop_parts import (
    Environment,
    Images,
    every,
    mlp,
    small_batch,
    small_step,
    training,
)


def validated_now_and_then(time):
    """Every fourth step tests the model on many rows."""
    model = nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10)
    )
    held = torch.randn(4096, 64)

    def test():
        with torch.no_grad():
            model(held)

    return every(4, test, training(model))


def checkpoint_now_and_then(time):
    def save_checkpoint():
        time.wait(0.1)

    return every(5, save_checkpoint)


def written_in_the_step_itself(time):
    """The work has no function of its own."""
    train = small_step()
    steps = itertools.count(1)

    def step(batch):
        train(batch)
        if next(steps) % 11 == 0:
            time.wait(0.22)

    return step, small_batch()


def best_is_saved(time):
    """A checkpoint whenever the loss is the best yet: at irregular steps."""
    train = small_step()
    chance = random.Random(3)

    def save_best():
        time.wait(0.4)

    def step(batch):
        train(batch)
        if chance.random() < 0.12:
            save_best()

    return step, small_batch()


def flushed_when_full(time):
    """At irregular distances."""
    train = small_step()
    chance = random.Random(8)
    rows = []

    def write_shard():
        time.wait(0.25)
        rows.clear()

    def step(batch):
        train(batch)
        rows.extend(range(chance.randrange(40)))
        if len(rows) > 200:
            write_shard()

    return step, small_batch()


def evaluation_and_log(time):
    """Of two kinds of work, the dearer is the rarer."""

    def log():
        time.work(0.05)

    def evaluate():
        time.work(0.5)

    train, _batch = every(3, log)
    return every(10, evaluate, train)


def two_tasks(time):
    """Every second step works on another task, which resizes images in Python."""
    other = small_step()

    def resize():
        time.work(0.1)

    def work_on_the_other():
        resize()
        other(small_batch())

    return every(2, work_on_the_other)


# whole trainings


def validated_after_each_epoch(time):
    model = mlp(64, 64, 10)
    train = training(model)

    def score(output):
        time.work(0.08)

    def evaluate():
        with torch.inference_mode():
            for image, _target in DataLoader(Images(320), batch_size=32):
                score(model(image))

    for _epoch in range(30):
        for batch in DataLoader(Images(240), batch_size=16):
            train(batch)
        evaluate()


def proximal_policy(time):
    """PPO: four updates after each rollout."""
    policy = mlp(8, 32, 4)
    world = Environment(time, 2e-3)
    optimizer = torch.optim.Adam(policy.parameters())
    for _iteration in range(100):
        states = torch.stack([world.simulate(0) for _ in range(64)])
        for _update in range(4):
            loss = -torch.log_softmax(policy(states), 1)[:, 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# scripts that call watch


def nanogpt(time, watch):
    """nanoGPT's train.py: it fetches the next batch early, and estimates losses now and
    then.
    """
    model = nn.Sequential(nn.Embedding(64, 32), mlp(32, 64, 64))
    optimizer = torch.optim.AdamW(model.parameters())

    def get_batch(split):
        return torch.randint(64, (4, 8)), torch.randint(64, (4, 8))

    get_batch = watch(get_batch)

    def loss_of(x, y):
        return cross_entropy(model(x).flatten(0, 1), y.flatten())

    @torch.no_grad()
    def estimate_loss():
        time.work(0.5)
        return torch.stack([loss_of(*get_batch("val")) for _ in range(2)]).mean()

    x, y = get_batch("train")
    for i in range(300):
        if i % 25 == 0:
            estimate_loss()
        for _micro_step in range(2):
            loss = loss_of(x, y) / 2
            x, y = get_batch("train")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def both_loaders_watched(time, watch):
    """The loaders of training and of validation are both handed to watch."""
    model = mlp(64, 64, 10)
    train = training(model)

    def compare(predicted):
        time.work(0.1)

    training_data, validation_data = (
        watch(DataLoader(Images(n), batch_size=16)) for n in (320, 160)
    )
    for _epoch in range(20):
        for batch in training_data:
            train(batch)
        with torch.no_grad():
            for x, _y in validation_data:
                compare(model(x))
