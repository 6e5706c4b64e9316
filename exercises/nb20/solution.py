"""Solutions of notebook 20, one block an exercise."""


# %% 20.1
def dense_after_flatten(weight, channels, height, width):
    maps = weight.reshape(-1, channels, height, width)
    return maps.transpose(2, 3, 1, 0).reshape(-1, len(weight))


# %% 20.2
def one_graph(function, example):
    batch = tf.TensorSpec([None, *example.shape[1:]], example.dtype)
    return tf.function(function, input_signature=[batch])


# %% 20.3
def pipeline(paths, load, augment, batch):
    """A tf.data.Dataset of batches; iterating over it once is an epoch.

    load(path) gives (image, label), slowly, always the same; augment(image, label) quickly,
    at random. Every image is loaded once, and augmented and shuffled anew in each epoch.
    """
    data = tf.data.Dataset.from_tensor_slices(paths)
    data = data.map(load, num_parallel_calls=tf.data.AUTOTUNE).cache()
    data = data.shuffle(len(paths)).map(augment)
    return data.batch(batch).prefetch(tf.data.AUTOTUNE)


# %% 20.5
def replica_loss(losses, global_batch):
    return tf.reduce_sum(losses) / global_batch
