"""Other right answers to notebook 20's exercises than the solutions: all have to pass."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from exercises.nb20.wrong_answers import tf
from tests.helpers import check
from tests.needs import needs

pytestmark = [pytest.mark.slow, needs("tensorflow")]


def by_index(weight, channels, height, width):
    order = np.arange(channels * height * width).reshape(channels, height, width)
    return weight[:, np.moveaxis(order, 0, -1).ravel()].T


def in_torch(weight, channels, height, width):
    return torch.from_numpy(weight).view(-1, channels, height, width).permute(2, 3, 1, 0).flatten(0, 2)


def by_einsum(weight, channels, height, width):
    return np.einsum("ochw->hwco", weight.reshape(len(weight), channels, height, width)).reshape(-1, len(weight))


def by_swaps(weight, channels, height, width):
    return weight.T.reshape(channels, height * width, -1).swapaxes(0, 1).reshape(weight.T.shape)


def concrete(function, example):
    return tf.function(function).get_concrete_function(tf.TensorSpec([None, *example.shape[1:]], example.dtype))


def traced_before(function, example):
    graph = tf.function(function)
    graph.get_concrete_function(tf.TensorSpec((None, *example.shape.as_list()[1:]), example.dtype))
    return graph


def decorated(function, example):
    @tf.function(input_signature=[tf.TensorSpec(tf.TensorShape([None]).concatenate(example.shape[1:]), example.dtype)])
    def graph(batch):
        return function(batch)

    return graph


def interleaved(paths, load, augment, batch):
    paths = tf.data.Dataset.from_tensor_slices(paths)
    data = paths.interleave(
        lambda path: tf.data.Dataset.from_tensors(path).map(load), cycle_length=8, num_parallel_calls=8
    )
    return data.cache().shuffle(1000).map(augment, num_parallel_calls=2).batch(batch)


def augmented_first(paths, load, augment, batch):
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).map(load, num_parallel_calls=2).cache()
    return data.map(augment).shuffle(len(paths), reshuffle_each_iteration=True).prefetch(3).batch(batch)


def loaded_by_threads(paths, load, augment, batch):
    with ThreadPoolExecutor(4) as pool:
        images, labels = zip(*pool.map(load, paths), strict=True)
    data = tf.data.Dataset.from_tensor_slices((list(images), list(labels)))
    return data.shuffle(data.cardinality()).map(augment).padded_batch(batch, padded_shapes=([], []))


def in_a_file(paths, load, augment, batch, folder):
    data = tf.data.Dataset.from_tensor_slices(tf.constant(paths)).map(load, -1, deterministic=False)
    return data.cache(str(folder / "images")).shuffle(len(paths), seed=3).map(augment).ragged_batch(batch)


def by_tensorflow(losses, global_batch):
    return tf.nn.compute_average_loss(losses, global_batch_size=global_batch)


def each_divided(losses, global_batch):
    return tf.math.reduce_sum(losses / tf.cast(global_batch, losses.dtype))


def as_a_product(losses, global_batch):
    return tf.tensordot(losses, tf.ones_like(losses) / global_batch, axes=1)


def mean_of_some(losses, global_batch):
    return (
        tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.size(losses), "float32")) * len(losses) / global_batch
    )


ANSWERS = {
    "20.1": [by_index, in_torch, by_einsum, by_swaps],
    "20.2": [concrete, traced_before, decorated],
    "20.3": [interleaved, augmented_first, loaded_by_threads, in_a_file],
    "20.5": [by_tensorflow, each_divided, as_a_product, mean_of_some],
}


@pytest.mark.parametrize(("number", "answer"), [(n, one) for n, answers in ANSWERS.items() for one in answers])
def test_another_right_answer_passes(number, answer, tmp_path):
    if answer is in_a_file:
        outcome = check(number, lambda *given: in_a_file(*given, tmp_path))
    else:
        outcome = check(number, answer)
    assert outcome.state == "passed", outcome
