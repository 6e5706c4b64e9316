"""Plausible wrong answers of notebook 20: number -> (answer, words the check must say, misconception)."""

import numpy as np

from exercises.nb20.tensorflow_here import tensorflow


class _WhenNeeded:
    """TensorFlow, loaded when an answer first needs it."""

    def __getattr__(self, name):
        return getattr(tensorflow(), name)


tf = _WhenNeeded()


def right_order(weight, channels, height, width):
    return (
        weight.reshape(-1, channels, height, width)
        .transpose(2, 3, 1, 0)
        .reshape(-1, len(weight))
    )


def transposed_only(weight, channels, height, width):
    return weight.T


def reshaped_only(weight, channels, height, width):
    return weight.reshape(-1, len(weight))


def not_transposed(weight, channels, height, width):
    """The inputs are in order, but the array is still (out, in)."""
    return right_order(weight, channels, height, width).T


def kerass_axes_first(weight, channels, height, width):
    """Gives the numbers Keras's axes at once, which are not theirs."""
    return (
        weight.reshape(-1, height, width, channels)
        .transpose(1, 2, 3, 0)
        .reshape(-1, len(weight))
    )


def height_and_width_swapped(weight, channels, height, width):
    return (
        weight.reshape(-1, channels, height, width)
        .transpose(3, 2, 1, 0)
        .reshape(-1, len(weight))
    )


def square_maps_only(weight, channels, height, width):
    return (
        weight.reshape(-1, channels, height, height)
        .transpose(2, 3, 1, 0)
        .reshape(-1, len(weight))
    )


def sixteen_maps_only(weight, channels, height, width):
    return weight.reshape(-1, 16, 5, 5).transpose(2, 3, 1, 0).reshape(-1, len(weight))


def back_again(weight, channels, height, width):
    """From Keras's order to torch's: the other way round."""
    maps = weight.reshape(-1, height, width, channels).transpose(3, 1, 2, 0)
    return maps.reshape(-1, len(weight))


def four_axes(weight, channels, height, width):
    return weight.reshape(-1, channels, height, width).transpose(2, 3, 1, 0)


def scaled(weight, channels, height, width):
    return right_order(weight, channels, height, width) / channels


def from_keras_to_keras(weight, channels, height, width):
    maps = weight.T.reshape(height, width, channels, -1)
    return maps.transpose(2, 0, 1, 3).reshape(-1, len(weight))


def square_by_root(weight, channels, height, width):
    side = int((weight.shape[1] // channels) ** 0.5)
    return (
        weight.reshape(len(weight), channels, side, -1)
        .transpose(2, 3, 1, 0)
        .reshape(-1, len(weight))
    )


def rows_reversed(weight, channels, height, width):
    return right_order(weight, channels, height, width)[::-1]


def half_as_many_digits(weight, channels, height, width):
    return right_order(weight, channels, height, width).astype(np.float16)


def of_this_size(function, example):
    return tf.function(function, input_signature=[tf.TensorSpec(example.shape, example.dtype)])


def always_float32(function, example):
    return tf.function(function, input_signature=[tf.TensorSpec([None, *example.shape[1:]])])


def any_shape(function, example):
    """Leaves even the number of axes open, so that a step that needs a width finds none."""
    return tf.function(function, input_signature=[tf.TensorSpec(None, example.dtype)])


def of_two_axes(function, example):
    return tf.function(function, input_signature=[tf.TensorSpec([None, None], example.dtype)])


def padded(function, example):
    """Fills every batch up to 64 rows, and leaves the filling in the result."""
    graph = tf.function(function)

    def filled(batch):
        missing = 64 - len(batch)
        return graph(tf.pad(batch, [[0, missing], *[[0, 0]] * (len(batch.shape) - 1)]))

    return filled


def new_each_time(function, example):
    return lambda batch: tf.function(function)(batch)


def row_by_row(function, example):
    graph = tf.function(
        function, input_signature=[tf.TensorSpec([1, *example.shape[1:]], example.dtype)]
    )
    return lambda batch: tf.concat([graph(batch[i : i + 1]) for i in range(len(batch))], axis=0)


def right_graph(function, example):
    return tf.function(
        function, input_signature=[tf.TensorSpec([None, *example.shape[1:]], example.dtype)]
    )


def in_float32(function, example):
    """Takes numbers of every format, and hands them on in one."""
    graph = right_graph(function, tf.cast(example, tf.float32))
    return lambda batch: graph(tf.cast(batch, tf.float32))


def first_rows(function, example):
    """Cuts larger batches to the size of the example."""
    graph = right_graph(function, example)
    return lambda batch: graph(batch[: len(example)])


def in_chunks(function, example):
    graph = right_graph(function, example)
    return lambda batch: tf.concat(
        [graph(part) for part in tf.split(batch, [len(batch) // 2, -1])], axis=0
    )


def python_inside(function, example):
    spec = tf.TensorSpec([None, *example.shape[1:]], example.dtype)
    return tf.function(
        lambda batch: tf.py_function(function, [batch], tf.float64), input_signature=[spec]
    )


def example_again(function, example):
    graph = right_graph(function, example)
    return lambda batch: graph(example)


def every_row_alone(function, example):
    graph = tf.function(
        function, input_signature=[tf.TensorSpec(example.shape[1:], example.dtype)]
    )
    return lambda batch: tf.map_fn(graph, batch, fn_output_signature=tf.float64)


def data_of(paths):
    return tf.data.Dataset.from_tensor_slices(paths)


def chained(*steps, auto=True, buffer=None, reshuffle=None, drop=False):
    """A pipeline of these steps in this order."""

    def pipeline(paths, load, augment, batch):
        data, size = data_of(paths), buffer or len(paths)
        calls = {"num_parallel_calls": tf.data.AUTOTUNE} if auto else {}
        made = {
            "load": lambda data: data.map(load, **calls),
            "augment": lambda data: data.map(augment),
            "cache": lambda data: data.cache(),
            "shuffle": lambda data: data.shuffle(size, reshuffle_each_iteration=reshuffle),
            "batch": lambda data: data.batch(batch, drop_remainder=drop),
            "prefetch": lambda data: data.prefetch(2),
            "repeat": lambda data: data.repeat(),
            "augment batches": lambda data: data.map(augment),
            "load one by one": lambda data: data.map(load, num_parallel_calls=1),
            "augment again": lambda data: data.map(augment, **calls),
            "take": lambda data: data.take(size - 1),
            "ragged": lambda data: data.batch(batch + 1),
            "shuffle batches": lambda data: data.shuffle(3, seed=37),
        }
        for step in steps:
            data = made[step](data)
        return data

    return pipeline


ORDER = ("load", "cache", "shuffle", "augment", "batch", "prefetch")


def without(step):
    return [one for one in ORDER if one != step]


def labels_apart(paths, load, augment, batch):
    """Shuffles images and labels each by themselves."""
    data = chained("load", "cache")(paths, load, augment, batch)
    images, labels = (data.map(lambda *both, i=i: both[i]).shuffle(len(paths)) for i in (0, 1))
    return tf.data.Dataset.zip((images, labels)).map(augment).batch(batch)


def eager_loop(paths, load, augment, batch):
    images, labels = zip(*(load(path) for path in paths), strict=True)
    data = tf.data.Dataset.from_tensor_slices((tf.stack(images), tf.stack(labels)))
    return data.shuffle(len(paths)).map(augment).batch(batch)


def paths_alone(paths, load, augment, batch):
    data = (
        data_of(paths)
        .cache()
        .shuffle(len(paths))
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
    )
    return data.map(augment).batch(batch)


def one_epoch_as_a_list(paths, load, augment, batch):
    return list(chained(*ORDER)(paths, load, augment, batch))


def nothing(*arguments):
    return None


def own_mean(losses, global_batch):
    return tf.reduce_mean(losses)


def own_sum(losses, global_batch):
    return tf.reduce_sum(losses)


def mean_over_two(losses, global_batch):
    return tf.reduce_mean(losses) / 2


def sum_over_two_parts(losses, global_batch):
    return tf.reduce_sum(losses) / (2 * tf.cast(tf.size(losses), tf.float32))


def mean_over_all(losses, global_batch):
    return tf.reduce_mean(losses) / global_batch


def in_numpy(losses, global_batch):
    return float(losses.numpy().sum()) / global_batch


def by_own_number(losses, global_batch):
    return tf.reduce_sum(losses) / len(losses) if len(losses) else tf.reduce_sum(losses)


def times_all(losses, global_batch):
    return tf.reduce_sum(losses) * global_batch


def each_image(losses, global_batch):
    return losses / global_batch


def rounded_share(losses, global_batch):
    """Takes the replicas to be equal: as many as own batches fit into the whole one."""
    replicas = max(global_batch // max(len(losses), 1), 1)
    return own_mean(losses, global_batch) / replicas if len(losses) else tf.reduce_sum(losses)


def whole_numbers(losses, global_batch):
    return tf.reduce_sum(losses) // global_batch


def weighted_mean(losses, global_batch):
    """Right but for a replica without images, whose mean is 0 / 0."""
    return tf.reduce_mean(losses) * len(losses) / global_batch


def no_way_back(losses, global_batch):
    return tf.stop_gradient(tf.reduce_sum(losses)) / global_batch


def root_of_squares(losses, global_batch):
    return tf.sqrt(tf.reduce_sum(losses**2)) / global_batch


def largest(losses, global_batch):
    return tf.reduce_max(losses) * len(losses) / global_batch


def half_the_gradient(losses, global_batch):
    right = tf.reduce_sum(losses) / global_batch
    return (right + tf.stop_gradient(right)) / 2


def constant(losses, global_batch):
    return tf.constant(0.5)


WRONG = {
    "20.1": [
        (transposed_only, "its rows still stand in torch's order", "axes-swapped"),
        (reshaped_only, "`reshape` alone moves no number", "axes-swapped"),
        (not_transposed, "That is torch's (out, in)", "axes-swapped"),
        (kerass_axes_first, "belongs to channel", "axes-swapped"),
        (height_and_width_swapped, "belongs to channel", "axes-swapped"),
        (square_maps_only, "belongs to channel", "right-for-one-case"),
        (sixteen_maps_only, "raised", "right-for-one-case"),
        (back_again, "belongs to channel", "axes-swapped"),
        (four_axes, "expected shape (in, out)", "result-of-another-kind"),
        (scaled, "belongs to channel", "other-formula"),
        (from_keras_to_keras, "belongs to channel", "axes-swapped"),
        (square_by_root, "raised", "right-for-one-case"),
        (rows_reversed, "belongs to channel", "axes-swapped"),
        (half_as_many_digits, "belongs to channel", "rounding-is-cosmetic"),
        (nothing, "Is there a return?", "result-of-another-kind"),
        (
            lambda *arguments: "weights",
            "expected an array of numbers",
            "result-of-another-kind",
        ),
        (
            right_order(np.ones((2, 8)), 2, 2, 2),
            "Expected a function",
            "result-of-another-kind",
        ),
    ],
    "20.2": [
        (lambda function, example: function, "Python ran in each of 5 calls", "does-less-work"),
        (
            lambda function, example: tf.function(function),
            "each size of batch is traced anew",
            "python-in-graph",
        ),
        (
            lambda function, example: tf.function(function, reduce_retracing=True),
            "Traced 2 times",
            "python-in-graph",
        ),
        (of_this_size, "raised", "python-in-graph"),
        (always_float32, "raised", "right-for-one-case"),
        (any_shape, "raised", "python-in-graph"),
        (of_two_axes, "raised", "right-for-one-case"),
        (padded, "another result than without a graph", "other-formula"),
        (new_each_time, "Python ran in each of 5 calls", "python-in-graph"),
        (row_by_row, "another result than without a graph", "python-loop-per-item"),
        (in_float32, "another result than without a graph", "right-for-one-case"),
        (first_rows, "another result than without a graph", "does-less-work"),
        (in_chunks, "another result than without a graph", "python-loop-per-item"),
        (python_inside, "Python ran in each of 5 calls", "python-in-graph"),
        (example_again, "another result than without a graph", "does-less-work"),
        (every_row_alone, "another result than without a graph", "python-loop-per-item"),
        (
            lambda function, example: right_graph(function, example)(example),
            "expected a function of a batch",
            "result-of-another-kind",
        ),
        (
            lambda function, example: right_graph(
                lambda batch: function(batch) * 1.01, example
            ),
            "another result",
            "other-formula",
        ),
        (nothing, "expected a function of a batch", "result-of-another-kind"),
    ],
    "20.3": [
        (chained(*without("cache")), "Three epochs loaded 120 images", "cache-anywhere"),
        (
            chained("load", "augment", "cache", "shuffle", "batch", "prefetch"),
            "the same augmented images",
            "cache-anywhere",
        ),
        (
            chained("shuffle", "load", "cache", "augment", "batch", "prefetch"),
            "the same order",
            "cache-anywhere",
        ),
        (chained(*without("shuffle")), "the same order", "one-shuffle-is-enough"),
        (chained(*ORDER, reshuffle=False), "the same order", "one-shuffle-is-enough"),
        (chained(*ORDER, buffer=4), "buffer must hold all", "one-shuffle-is-enough"),
        (chained(*ORDER, buffer=30), "buffer must hold all", "one-shuffle-is-enough"),
        (chained(*ORDER, buffer=39), "buffer must hold all", "one-shuffle-is-enough"),
        (
            chained("load", "cache", "augment", "batch", "shuffle batches", "prefetch"),
            "shuffle images, not batches",
            "one-shuffle-is-enough",
        ),
        (chained(*ORDER, auto=False), "loaded one at a time", "works-in-turns"),
        (
            chained(*ORDER, drop=True),
            "expected batches of [16, 16, 8], got [16, 16]",
            "rest-left-out",
        ),
        (
            chained("load", "cache", "repeat", "shuffle", "augment", "batch", "prefetch"),
            "and more",
            "other-formula",
        ),
        (chained(*without("batch")), "expected batches", "result-of-another-kind"),
        (chained(*without("augment")), "called augment 0 times", "does-less-work"),
        (
            chained("load", "cache", "shuffle", "batch", "augment batches"),
            "called augment 9 times",
            "other-formula",
        ),
        (
            chained("load", "cache", "shuffle", "augment", "augment again", "batch"),
            "called augment 240 times",
            "other-formula",
        ),
        (
            chained("load one by one", "cache", "shuffle", "augment", "batch"),
            "one at a time",
            "works-in-turns",
        ),
        (
            chained("load", "cache", "shuffle", "take", "augment", "batch"),
            "expected batches",
            "rest-left-out",
        ),
        (
            chained("load", "cache", "shuffle", "augment", "ragged"),
            "expected batches",
            "off-by-one",
        ),
        (
            chained("load", "augment", "shuffle", "batch", "cache"),
            "the same augmented images",
            "cache-anywhere",
        ),
        (
            chained("load", "cache", "shuffle", "augment", "batch", "shuffle batches", "cache"),
            "the same augmented images",
            "cache-anywhere",
        ),
        (labels_apart, "another one's label", "other-formula"),
        (eager_loop, "one at a time", "works-in-turns"),
        (paths_alone, "Three epochs loaded 120 images", "cache-anywhere"),
        (one_epoch_as_a_list, "Expected a tf.data.Dataset", "result-of-another-kind"),
        (nothing, "Is there a return?", "result-of-another-kind"),
    ],
    "20.5": [
        (own_mean, "grows with the number of replicas", "sum-for-mean"),
        (own_sum, "That is the sum over the batch", "sum-for-mean"),
        (mean_over_two, "A replica with fewer images must count less", "mean-of-unequal-parts"),
        (
            sum_over_two_parts,
            "A replica with fewer images must count less",
            "mean-of-unequal-parts",
        ),
        (mean_over_all, "Divide the sum over this replica's images", "sum-for-mean"),
        (in_numpy, "no gradient comes through", "autograd-follows-intent"),
        (by_own_number, "grows with the number of replicas", "sum-for-mean"),
        (times_all, "Divide the sum over this replica's images", "upside-down"),
        (each_image, "expected one number", "result-of-another-kind"),
        (rounded_share, "of loss, summed over replicas", "mean-of-unequal-parts"),
        (constant, "no gradient comes through", "hard-coded"),
        (whole_numbers, "no gradient comes through", "rounding-is-cosmetic"),
        (weighted_mean, "NaN", "zero-never-happens"),
        (no_way_back, "no gradient comes through", "autograd-follows-intent"),
        (root_of_squares, "of loss, summed over replicas", "other-formula"),
        (largest, "of loss, summed over replicas", "other-formula"),
        (half_the_gradient, "of gradient, summed over replicas", "autograd-follows-intent"),
        (nothing, "Is there a return?", "result-of-another-kind"),
    ],
}
