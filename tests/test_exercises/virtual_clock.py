"""Exercises that measure speed, on clocks that count work: an answer gets the same
verdict on any machine.

The clocks: exercise 08.7's counts the images that are trained on and those that are
decoded, 11.7's the steps and their images, and 16.5's what each technique is said to
save.
"""

import functools

from exercises.nb08 import pipeline
from exercises.nb11 import time_to_accuracy
from exercises.nb16 import search_budget
from labkit.train import data

# an image
TRAINED_S = 1e-3
DECODED_S = 2e-3
STEP_S = 1e-3
IMAGE_S = 1e-6
# by switch of notebook 16's script
TIMES_AS_FAST = {"cached": 3.0, "optimizer": 1.4, "batch": 1.3, "reduced": 1.1}


class Clock:
    """Seconds since it was made, that only `spend` makes more."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s

    def spend(self, seconds):
        self.now_s += seconds


def use(monkeypatch):
    """Let the checks of 08.7, 11.7 and 16.5 read virtual clocks."""
    of_pipelines(monkeypatch)
    of_trainings(monkeypatch)
    of_searches(monkeypatch)


def of_pipelines(monkeypatch):
    clock = Clock()
    finish = data.Prepare.finish

    def step(batch):
        clock.spend(TRAINED_S * len(batch[1]))
        return batch

    def finished(self, image):
        clock.spend(DECODED_S)
        return finish(self, image)

    monkeypatch.setattr(pipeline, "perf_counter", clock)
    monkeypatch.setattr(pipeline, "monotonic", clock)
    monkeypatch.setattr(pipeline, "_step", lambda: step)
    monkeypatch.setattr(data.Prepare, "finish", finished)
    return clock


def of_trainings(monkeypatch):
    clock = Clock()
    shuffled = time_to_accuracy._shuffled

    def counted(fn):
        model, step = shuffled(fn)

        def spending(images, labels):
            clock.spend(STEP_S + IMAGE_S * len(labels))
            return step(images, labels)

        return model, spending

    # 40 take longer and say the same
    monkeypatch.setattr(time_to_accuracy, "_MOST_EPOCHS", 10)
    monkeypatch.setattr(time_to_accuracy, "time_ns", lambda: 11)
    monkeypatch.setattr(time_to_accuracy, "perf_counter", clock)
    monkeypatch.setattr(
        time_to_accuracy, "fit", functools.partial(time_to_accuracy.fit, clock=clock)
    )
    monkeypatch.setattr(time_to_accuracy, "_shuffled", counted)
    return clock


def of_searches(monkeypatch, times_as_fast=TIMES_AS_FAST, accuracy=1.0):
    """Trainings with notebook 16's script reach an accuracy in as many seconds as its
    switches say.
    """
    clock = Clock()
    cells = search_budget.tagged_cells

    def train(seed, **switches):
        seconds = 10.0 + seed % 3
        for name in switches:
            seconds /= times_as_fast.get(name, 1.0)
        clock.spend(seconds)
        return accuracy, 1_000

    monkeypatch.setattr(search_budget, "perf_counter", clock)
    monkeypatch.setattr(
        search_budget,
        "tagged_cells",
        lambda *args, **given: cells(*args, **given) | {"train": train},
    )
