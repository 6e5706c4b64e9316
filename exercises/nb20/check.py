"""Checks of notebook 20, the same in TensorFlow."""

from __future__ import annotations

import threading
from itertools import takewhile
from typing import Any

import numpy as np

from exercises.nb20.tensorflow_here import tensorflow
from labkit.core.display import brief_repr
from labkit.lesson.answers import about, array, parts
from labkit.lesson.checks import (
    NotYet,
    Todo,
    as_number,
    call,
    function,
    number_close,
    over_cases,
)

_IMAGES = 40
_BATCH = 16
_STEP = 10_000
_PATIENCE_S = 5.0  # that the first image waits for a second one to be loaded beside it
# epochs at most: with a full buffer, an image is never the first in 8 of 10 million
# cases
_BEGINNINGS = 700
_SHUFFLED_BATCHES = (
    "The same images share a batch in every epoch: shuffle images, not batches."
)


def _tensorflow() -> Any:
    """TensorFlow; Todo where it isn't installed."""
    if (module := tensorflow()) is None:
        raise Todo("This exercise needs TensorFlow: `make appendix`.")
    return module


def dense_after_flatten(answer: object) -> str:
    """Weights in Keras's order for maps of several sizes, square or not, with one
    channel or several.
    """
    draw = np.random.default_rng(201)
    shapes = (
        (4, 3, 2, 5),
        (7, 16, 5, 5),
        (2, 1, 3, 4),
        (3, 5, 1, 1),
        (1, 2, 4, 3),
        (6, 2, 2, 2),
    )
    cases = {
        f"{out} outputs of {c} maps of {h} x {w}": (
            draw.standard_normal((out, c * h * w)),
            c,
            h,
            w,
        )
        for out, c, h, w in shapes
    }
    over_cases(answer, cases, _reordered, _judge_dense)
    return "The right order for square maps, oblong ones, one channel and several."


def _reordered(weight: Any, channels: int, height: int, width: int) -> Any:
    return (
        weight.reshape(-1, channels, height, width)
        .transpose(2, 3, 1, 0)
        .reshape(-1, len(weight))
    )


def _judge_dense(
    got: Any,
    right: Any,
    case: str,
    weight: Any,
    channels: int,
    height: int,
    width: int,
) -> None:
    matrix = array(got, "an array of numbers", case)
    if matrix.shape != right.shape:
        own = matrix.shape == weight.shape != right.shape
        remark = " That is torch's (out, in)." if own else ""
        raise NotYet(
            f"For {case}: expected shape (in, out), here {right.shape}, got"
            f" {matrix.shape}.{remark}"
        )
    if np.allclose(matrix, right):
        return
    mistakes = {
        (
            "It is transposed, but its rows still stand in torch's order: channel,"
            " height, width."
        ): weight.T,
        "`reshape` alone moves no number; which axes change places?": weight.reshape(
            right.shape
        ),
    }
    hint = next(
        (words for words, wrong in mistakes.items() if np.allclose(matrix, wrong)), ""
    )
    row = int((matrix != right).any(axis=1).argmax())
    y, x, channel = np.unravel_index(row, (height, width, channels))
    raise NotYet(
        f"For {case}: row {row} is wrong. It belongs to channel {channel} at row {y},"
        f" column {x} of a map. {hint}".rstrip()
    )


def one_graph(answer: object) -> str:
    """One trace for batches of 4, 1, 7, 0 and 64, of several shapes and number formats;
    results as without a graph.
    """
    make = function(answer)
    tf = _tensorflow()
    traces: list[object] = []

    def work(batch: Any) -> Any:
        traces.append(batch.shape)
        # a number only if the trace knows it
        wide = batch.shape[-1] if batch.shape.rank > 1 else 1
        return tf.cumsum(tf.cast(batch, tf.float64), axis=0) / float(
            wide * batch.dtype.size
        )

    draw = np.random.default_rng(202)
    for shape, dtype in (
        ((3,), "float32"),
        ((8, 8, 1), "uint8"),
        ((), "int32"),
        ((2, 5), "float64"),
    ):
        with about(f"batches of shape (n, {', '.join(map(str, shape))}), {dtype}"):
            batches = [
                tf.constant(draw.uniform(0, 99, (n, *shape)).astype(dtype))
                for n in (4, 1, 7, 0, 64)
            ]
            right = [work(batch).numpy() for batch in batches]
            traces.clear()
            _judge_graph(call(make, work, batches[0]), batches, right, traces)
    return (
        "One graph for all sizes of batch, one row and no row among them, and the same"
        " numbers."
    )


def _judge_graph(
    graph: Any, batches: list[Any], right: list[Any], traces: list[object]
) -> None:
    if not callable(graph):
        raise NotYet(f"Expected a function of a batch, got {brief_repr(graph)}.")
    for batch, expected in zip(batches, right, strict=True):
        got = np.asarray(call(graph, batch))
        if got.shape != expected.shape or not np.allclose(got, expected):
            raise NotYet(
                f"a batch of {len(batch)} gives another result than without a graph:"
                f" shape {got.shape}, expected {expected.shape}."
                if got.shape != expected.shape
                else f"a batch of {len(batch)} gives another result than without a"
                " graph: its shape is right, its numbers aren't."
            )
    if len(traces) == len(batches):
        raise NotYet(
            f"Python ran in each of {len(batches)} calls: either nothing is traced, or"
            " each size of batch is traced anew. What may a TensorSpec leave open?"
        )
    if len(traces) != 1:
        raise NotYet(
            f"Traced {len(traces)} times for {len(batches)} sizes of batch; once is"
            " enough."
        )


class _Source:
    """Images to load and to augment, that notes what is done to them; an image is one
    number, _STEP times its label.
    """

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.lock = threading.Lock()
        self.two_at_once = threading.Event()
        self.loaded = self.augmented = self.active = 0

    def load(self, path: Any) -> Any:
        return self.tf.numpy_function(
            self._load, [path], (self.tf.float32, self.tf.int64)
        )

    def _load(self, path: bytes) -> Any:
        with self.lock:
            self.loaded = self.loaded + 1
            self.active = self.active + 1
            first = self.loaded == 1
            if self.active > 1:
                self.two_at_once.set()
        if first:
            self.two_at_once.wait(_PATIENCE_S)
        with self.lock:
            self.active -= 1
        return np.float32(_STEP * int(path)), np.int64(path)

    def augment(self, image: Any, label: Any) -> Any:
        return self.tf.numpy_function(self._augment, [image], self.tf.float32), label

    def _augment(self, image: Any) -> Any:
        with self.lock:
            self.augmented += 1
        return np.float32(image + self.augmented)


def pipeline(answer: object) -> str:
    """Three epochs of 40 images: each once, loaded once for all and in parallel,
    augmented and ordered anew.
    """
    make = function(answer)
    tf = _tensorflow()
    source = _Source(tf)
    data = call(
        make, [str(i) for i in range(_IMAGES)], source.load, source.augment, _BATCH
    )
    if not isinstance(data, tf.data.Dataset):
        raise NotYet(
            f"Expected a tf.data.Dataset, got {brief_repr(data)}. Is there a return?"
        )
    epochs = [_epoch(data) for _ in range(3)]
    changed = [{label: image for image, label in epoch} for epoch in epochs]
    if source.augmented not in (_IMAGES, 3 * _IMAGES):  # once for all is found below
        calls = f"Three epochs called augment {source.augmented} times"
        raise NotYet(
            f"{calls}; each of {_IMAGES} images, by itself, once an epoch makes"
            f" {3 * _IMAGES}."
        )
    if any(changed[0][i] == changed[1][i] for i in range(_IMAGES)):
        raise NotYet(
            "Two epochs have the same augmented images: what stands before `cache` is"
            " kept for good."
        )
    if source.loaded != _IMAGES:
        raise NotYet(
            f"Three epochs loaded {source.loaded} images; {_IMAGES} is enough, each"
            " once for all epochs."
        )
    if not source.two_at_once.is_set():
        raise NotYet(
            "Images are loaded one at a time. Which argument of `map` lets several run"
            " at once?"
        )
    orders = [[label for _, label in epoch] for epoch in epochs]
    together = [
        {frozenset(order[i : i + _BATCH]) for i in range(0, _IMAGES, _BATCH)}
        for order in orders
    ]
    if (
        together[0] == together[1] == together[2]
        and not orders[0] == orders[1] == orders[2]
    ):
        raise NotYet(_SHUFFLED_BATCHES)
    if orders[0] == orders[1] or orders[1] == orders[2]:
        raise NotYet(
            "Two epochs have the same order: what stands before `cache`, or may not"
            " reshuffle, stays so."
        )
    # a buffer of b images holds those behind the first b back
    never_first = set(range(_IMAGES))
    for _ in takewhile(lambda _: never_first, range(_BEGINNINGS)):
        never_first.discard(int(next(iter(data))[1][0]))
    if never_first:
        raise NotYet(
            f"Image {max(never_first)} is never the first of an epoch: shuffle's buffer"
            " must hold all."
        )
    return (
        "Each image once an epoch, loaded once for all, two or more at a time, and"
        " augmented and ordered anew."
    )


def _epoch(data: Any) -> list[tuple[float, int]]:
    """The images and labels of an epoch; NotYet where their batches or numbers are
    wrong.
    """
    wanted = [_BATCH] * (_IMAGES // _BATCH) + [_IMAGES % _BATCH]
    batches = [
        tuple(np.asarray(part) for part in parts(batch, 2, "batches (images, labels)"))
        for batch in data.take(len(wanted) + 1)
    ]
    sizes = [part.size for _, part in batches]
    if sizes != wanted and sorted(sizes) == sorted(wanted):
        raise NotYet(_SHUFFLED_BATCHES)
    if sizes != wanted:
        more = " and more" * (len(sizes) > len(wanted))
        raise NotYet(
            f"{_IMAGES} images in batches of {_BATCH}: expected batches of {wanted},"
            f" got {sizes[:4]}{more}."
        )
    pairs = [
        (float(image), int(label))
        for both in batches
        for image, label in zip(*both, strict=True)
    ]
    if sorted(label for _, label in pairs) != list(range(_IMAGES)):
        raise NotYet("An epoch must hold each image exactly once.")
    if any(image // _STEP != label for image, label in pairs):
        raise NotYet("An image comes with another one's label: shuffle both together.")
    return pairs


def replica_loss(answer: object) -> str:
    """Parts of a batch, equal and unequal ones, whose losses and gradients must add up
    to those of the whole batch.
    """
    fn = function(answer)
    tf = _tensorflow()
    draw = np.random.default_rng(205)
    for sizes in ((4, 4), (4, 3), (1, 6), (5,), (3, 0), (2, 3, 4)):
        values = draw.uniform(0.1, 3.0, sum(sizes)).astype(np.float32)
        whole = sum(sizes)
        scale = tf.Variable(1.0)
        total = 0.0
        slope = 0.0
        case = f"replicas with {' and '.join(map(str, sizes))} images"
        for part in np.split(values, np.cumsum(sizes)[:-1]):
            with tf.GradientTape() as tape:
                got = call(fn, scale * part, whole)
            total += as_number(
                got.numpy() if tf.is_tensor(got) else got, "of loss", case
            )
            gradient = tape.gradient(got, scale) if tf.is_tensor(got) else None
            if gradient is None:
                raise NotYet(
                    f"For {case}: no gradient comes through. Use functions of"
                    " TensorFlow that have one."
                )
            slope += float(gradient)
        right = float(values.mean())
        hint = _loss_hint(total, values, sizes)
        number_close(
            total,
            right,
            rel=1e-4,
            unit="of loss, summed over replicas,",
            given=case,
            hint=hint,
        )
        number_close(
            slope,
            right,
            rel=1e-4,
            unit="of gradient, summed over replicas,",
            given=case,
        )
    return (
        "The sum over replicas is the mean over the batch, for equal parts, unequal"
        " ones and an empty one."
    )


def _loss_hint(total: float, values: Any, sizes: tuple[int, ...]) -> str:
    means = [
        part.mean() for part in np.split(values, np.cumsum(sizes)[:-1]) if len(part)
    ]
    wrong = {
        (
            "A mean over each replica's own images, summed, grows with the number of"
            " replicas."
        ): sum(means),
        "A replica with fewer images must count less: divide by the images of all.": (
            sum(means) / len(sizes)
        ),
        "That is the sum over the batch: its gradient grows with the batch.": (
            values.sum()
        ),
    }
    other = "Divide the sum over this replica's images by the images of all replicas."
    return next(
        (
            words
            for words, value in wrong.items()
            if np.isclose(total, value, rtol=1e-4)
        ),
        other,
    )


CHECKS = {
    "20.1": dense_after_flatten,
    "20.2": one_graph,
    "20.3": pipeline,
    "20.5": replica_loss,
}
