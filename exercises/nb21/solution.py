"""Solutions of notebook 21, one block an exercise."""


# %% 21.1
def useful_share(rows, inputs, outputs, side):  # a share, 0 to 1
    padded = 8 * -(-rows // 8) * side * -(-inputs // side) * side * -(-outputs // side)
    return rows * inputs * outputs / padded


# %% 21.2b
def blocks_at(i, j, k):  # block (row, column) of x, of w, and of the result
    return (i, k), (k, j), (i, j)


def kernel(x_ref, w_ref, out_ref, inside):  # inside (tile,): which columns of x exist
    @pl.when(pl.program_id(2) == 0)
    def begin():
        out_ref[:] = jnp.zeros_like(out_ref)

    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] += x @ w


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
    n = math.prod(sides)
    axes = sum(side > 1 for side in sides)
    wire_s = 2 * (n - 1) / n * n_bytes / (2 * max(axes, 1) * link_bytes_per_s)
    return wire_s + 2 * sum(side - 1 for side in sides) * hop_s
