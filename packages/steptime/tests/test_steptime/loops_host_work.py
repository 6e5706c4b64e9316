"""Loops whose steps do work of the host beside torch's operators."""

import functools
import itertools
import json
import threading

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from test_steptime.loop_parts import (
    Environment,
    labels,
    mlp,
    small_batch,
    training,
    with_host_work,
)
from test_steptime.virtual_time import WORK_S


def sleeping(time):
    def pause(batch):
        time.wait(0.02)

    return with_host_work(pause)


def only_training(time):
    """`sleeping`, `json_metrics` and other work beside the training, mended."""
    return with_host_work(lambda batch: None)


def locked_by_another(time):
    lock = threading.Lock()

    def hold(held):
        with lock:
            held.set()
            time.wait(0.02)

    def wait_for_the_lock(batch):
        held = threading.Event()
        other = threading.Thread(target=hold, args=[held])
        other.start()
        held.wait()
        with lock:
            pass
        other.join()

    return with_host_work(wait_for_the_lock)


def json_metrics(time):
    """In C, which calls a function of Python back."""
    metrics = {f"layer {i}": [0.1 * j for j in range(100)] for i in range(200)}
    metrics["a tensor"] = small_batch()[1]

    def report(batch):
        json.dumps(metrics, default=functools.partial(time.work, WORK_S))

    return with_host_work(report)


def hook_in_backward(time):
    model = nn.Linear(64, 10)

    def slow_hook(gradient):
        sum(i * i for i in range(20_000))
        time.work(WORK_S)

    model.weight.register_hook(slow_hook)
    return training(model), small_batch()


def without_a_hook(time):
    """`hook_in_backward`, mended."""
    return training(nn.Linear(64, 10)), small_batch()


def slower_and_slower(time):
    """Work that grows slowly, as with a list that is searched."""
    steps = itertools.count(1)

    def search(batch):
        time.work(2e-3 + 1e-4 * next(steps))

    return with_host_work(search)


def scored_image_by_image(time):
    """A metric that another library computes of each image."""

    def label_components(image):
        time.work(WORK_S / 4)
        return float(image.sum())

    def score(batch):
        return [label_components(image) for image in batch[0].numpy()]

    return with_host_work(score)


# Python that lets no other thread run for some milliseconds


def checked_before_each_layer(time):
    model = mlp(64, 32, 10)
    ranges = []

    def note_range(module, inputs):
        values = inputs[0].tolist()
        ranges.append(max(max(abs(x) for x in row) for row in values * 20))
        time.work(WORK_S)

    model[0].register_forward_pre_hook(note_range)
    return training(model), small_batch()


def a_dear_and_a_cheap_count(time):
    """Without an operator between them: the first takes about four times as long."""
    words = [f"word {i % 900}" for i in range(30_000)]

    def count_words():
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        time.work(WORK_S)
        return counts

    def count_letters():
        time.work(WORK_S / 4)
        return sum(len(word) for word in words[:10_000])

    def summarize(batch):
        return count_words(), count_letters()

    return with_host_work(summarize)


# whole trainings, and scripts that call watch


def an_update_for_each_episode(time):
    """REINFORCE without a loader."""
    policy = mlp(8, 32, 4)
    world = Environment(time, 1e-3)
    optimizer = torch.optim.Adam(policy.parameters())
    for _episode in range(400):
        states = torch.stack([world.simulate(0) for _ in range(30)])
        optimizer.zero_grad()
        torch.log_softmax(policy(states), 1)[:, 0].mean().backward()
        optimizer.step()


def adversarial(time, watch):
    """Two optimizers take turns in each iteration; the second part of it is dearer."""
    models = [nn.Linear(64, 10) for _ in range(2)]
    first, second = (torch.optim.Adam(model.parameters()) for model in models)

    def penalty():
        time.work(0.05)

    for x, y in watch([(torch.randn(16, 64), labels(16))] * 400):
        cross_entropy(models[0](x), y).backward()
        first.step()
        first.zero_grad()
        cross_entropy(models[1](x), y).backward()
        penalty()
        second.step()
        second.zero_grad()
