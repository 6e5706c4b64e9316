"""Solutions of notebook 21, one block an exercise."""


# %% 21.1
def useful_share(rows, inputs, outputs, side):  # a share, 0 to 1
    padded = 8 * -(-rows // 8) * side * -(-inputs // side) * side * -(-outputs // side)
    return rows * inputs * outputs / padded


# %% 21.2
def gradient_norms(loss, weights, images, labels):  # an array (N,)
    def of_one(image, label):
        gradient = jax.grad(loss)(weights, image[None], label[None])
        return jnp.sqrt(sum((part**2).sum() for part in gradient.values()))

    return jax.vmap(of_one)(images, labels)


# %% 21.3
def mlp_specs(data, model):  # three PartitionSpecs, of x, w1 and w2
    return P(data, None), P(None, model), P(model, None)


# %% 21.4
def sharded_gradient(loss, shard, x, y):  # this device's rows of the gradient
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.grad(loss)(weights, x, y)
    return jax.lax.psum_scatter(gradient, "x", tiled=True) / 8


# %% 21.5
def torus_all_reduce_s(n_bytes, sides, link_bytes_per_s, hop_s):  # sides: such as (4, 4, 4)
    n, axes = math.prod(sides), sum(side > 1 for side in sides)
    wire_s = 2 * (n - 1) / n * n_bytes / (2 * max(axes, 1) * link_bytes_per_s)
    return wire_s + 2 * sum(side - 1 for side in sides) * hop_s
