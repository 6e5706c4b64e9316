"""When each batch of a tf.data pipeline was begun, ready, asked for and handed over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from exercises.nb20.tensorflow_here import sync, tensorflow
from labkit.train.data import BatchTimes


def batches(
    paths: Any,
    load: Callable[..., Any],
    train: Callable[..., object],
    batch: int,
    at_once: int | None = -1,
    ahead: int = 2,
) -> list[BatchTimes]:
    """Train an epoch on the images of a dataset of paths.

    `load` gives an image and a label of a path, for `at_once` paths at a time (None:
    one; -1: as many as TensorFlow likes, its AUTOTUNE), and `ahead` batches are
    prepared. `tf.timestamp()` is a step like any other:
    it says when a batch's first image was begun, and when the batch was complete. Two
    batches may be in the making at once, so every other one has a lane of its own.
    """
    tf = tensorflow()
    begun = paths.map(lambda path: (tf.timestamp(), path))
    loaded = begun.map(
        lambda begun_s, path: (begun_s, *load(path)), num_parallel_calls=at_once
    )
    stamped = loaded.batch(batch).map(
        lambda begun_s, images, labels: (begun_s[0], tf.timestamp(), images, labels)
    )
    times = []
    asked_s = time.time()
    for number, (begun_s, ready_s, images, labels) in enumerate(
        stamped.prefetch(ahead)
    ):
        lane = number % 2
        handed_s = time.time()
        times.append(
            BatchTimes(lane, float(begun_s), float(ready_s), asked_s, handed_s)
        )
        train(images, labels)
        sync()
        asked_s = time.time()
    return times
