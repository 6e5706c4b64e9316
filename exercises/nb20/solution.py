"""Solutions of notebook 20, one block an exercise."""


# %% 20.1
def dense_after_flatten(weight, channels, height, width):
    """Keras's array (in, out) for torch's (out, in), behind maps of height x width."""
    maps = weight.reshape(-1, channels, height, width)
    return maps.transpose(2, 3, 1, 0).reshape(-1, len(weight))


# %% 20.2
def one_graph(function, example):
    """A tf.function of a batch, traced once; example is a batch, others differ in length."""
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
    """A replica's share of the loss; losses (n,) are its own, of global_batch images in all."""
    return tf.reduce_sum(losses) / global_batch
