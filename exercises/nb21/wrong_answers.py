"""Plausible wrong answers of notebook 21: number -> (answer, words the check must say)."""

import math

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P
except ImportError:  # then 21.2 to 21.4 can't be judged
    jax = jnp = P = None

# 21.1


def padded(rows, inputs, outputs, side, *, row_group=8, up=lambda size, tile: tile * -(-size // tile)):
    return up(rows, row_group) * up(inputs, side) * up(outputs, side)


def outputs_alone(rows, inputs, outputs, side):
    return outputs / (side * -(-outputs // side))


def without_rows(rows, inputs, outputs, side):
    return inputs * outputs / (side * -(-inputs // side) * side * -(-outputs // side))


def without_inputs(rows, inputs, outputs, side):
    return rows * outputs / (8 * -(-rows // 8) * side * -(-outputs // side))


def shares(turn=lambda work, padding: work / padding, **how):
    return lambda rows, inputs, outputs, side: turn(rows * inputs * outputs, padded(rows, inputs, outputs, side, **how))


# 21.2


def of_each(loss, weights, images, labels, norm):
    def of_one(image, label):
        return norm(jax.grad(loss)(weights, image[None], label[None]))

    return jax.vmap(of_one)(images, labels)


def norm_by(norm):
    return lambda *args: of_each(*args, norm)


def squared(gradient):
    return sum((part**2).sum() for part in gradient.values())


def one_by_one(loss, weights, images, labels):
    norms = [
        jnp.sqrt(squared(jax.grad(loss)(weights, images[i : i + 1], labels[i : i + 1]))) for i in range(len(images))
    ]
    return jnp.array(norms)


def of_the_mean(loss, weights, images, labels):
    return jnp.full(len(images), jnp.sqrt(squared(jax.grad(loss)(weights, images, labels))))


def shares_of_the_mean(loss, weights, images, labels):
    return of_each(loss, weights, images, labels, lambda g: jnp.sqrt(squared(g))) / len(images)


def weights_in_lanes(loss, weights, images, labels):
    return jax.vmap(lambda w, x, y: jnp.sqrt(squared(jax.grad(loss)(w, x[None], y[None]))))(weights, images, labels)


def without_a_batch(loss, weights, images, labels):
    return jax.vmap(lambda x, y: jnp.sqrt(squared(jax.grad(loss)(weights, x, y))))(images, labels)


def gradients_themselves(loss, weights, images, labels):
    return jax.vmap(lambda x, y: jax.grad(loss)(weights, x[None], y[None]))(images, labels)


# 21.3


def specs(x, w1, w2):
    return lambda data, model: tuple(
        P(*({"data": data, "model": model, None: None}[name] for name in one)) for one in (x, w1, w2)
    )


TOKENS, COLUMNS, ROWS = ("data", None), (None, "model"), ("model", None)


# 21.4


def sharded(gather=True, scatter=True, divide=8):
    def sharded_gradient(loss, shard, x, y):
        weights = jax.lax.all_gather(shard, "x", tiled=True) if gather else shard
        gradient = jax.grad(loss)(weights, x, y)
        return (jax.lax.psum_scatter(gradient, "x", tiled=True) if scatter else gradient) / divide

    return sharded_gradient


def reduced_everywhere(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.lax.pmean(jax.grad(loss)(weights, x, y), "x")
    return jax.lax.dynamic_slice_in_dim(gradient, jax.lax.axis_index("x") * len(shard), len(shard))


def own_rows_alone(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.grad(loss)(weights, x, y)
    return jax.lax.dynamic_slice_in_dim(gradient, jax.lax.axis_index("x") * len(shard), len(shard))


def batch_gathered(loss, shard, x, y):
    weights, x, y = (jax.lax.all_gather(part, "x", tiled=True) for part in (shard, x, y))
    gradient = jax.grad(loss)(weights, x, y)
    return jax.lax.dynamic_slice_in_dim(gradient, jax.lax.axis_index("x") * len(shard), len(shard))


def untiled(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x")
    return jax.lax.psum_scatter(jax.grad(loss)(weights, x, y), "x") / 8


def whole_gradient(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    return jax.lax.pmean(jax.grad(loss)(weights, x, y), "x")


# 21.5


def torus(
    trips=2, links=lambda sides: 2 * sum(s > 1 for s in sides), hops=lambda sides: 2 * sum(s - 1 for s in sides), own=1
):
    def torus_all_reduce_s(n_bytes, sides, link_bytes_per_s, hop_s):
        n = math.prod(sides)
        if n == 1:
            return 0.0
        return trips * (n - own) / n * n_bytes / (links(sides) * link_bytes_per_s) + hops(sides) * hop_s

    return torus_all_reduce_s


def no_way_out(n_bytes, sides, link_bytes_per_s, hop_s):
    n, links = math.prod(sides), 2 * sum(s > 1 for s in sides)
    hops_s = 2 * sum(s - 1 for s in sides) * hop_s
    return 2 * (n - 1) / n * n_bytes / (links * link_bytes_per_s) + hops_s


WRONG = {
    "21.1": [
        (outputs_alone, "what we expect"),
        (without_rows, "Rows come in groups of 8"),
        (without_inputs, "The inputs are padded to whole tiles too"),
        (shares(lambda work, padding: 100 * work / padding), "from 0 to 1"),
        (shares(lambda work, padding: padding / work), "turn it round"),
        (shares(lambda work, padding: 1 - work / padding), "what we expect"),
        (
            lambda rows, inputs, outputs, side: (
                rows * inputs * outputs / padded(rows, inputs, outputs, side, row_group=side)
            ),
            "Rows are padded to 8",
        ),
        (shares(up=lambda size, tile: tile * (size // tile + 1)), "round up, don't add one"),
        (shares(up=lambda size, tile: tile * max(size // tile, 1)), "what we expect"),
        (lambda rows, inputs, outputs, side: outputs_alone(rows, inputs, outputs, 128), "what we expect"),
        (lambda rows, inputs, outputs, side: 0.5, "what we expect"),
        (lambda *sizes: None, "Is there a return"),
    ],
    "21.2": [
        (one_by_one, "jax.vmap needs one call"),
        (of_the_mean, "the gradient of the whole batch's mean, for every image"),
        (norm_by(squared), "take the root"),
        (
            norm_by(lambda g: sum(jnp.sqrt((part**2).sum()) for part in g.values())),
            "the root of the sum of all squares",
        ),
        (norm_by(lambda g: jnp.sqrt((g["w"] ** 2).sum())), "the biases belong to it"),
        (norm_by(lambda g: sum(jnp.abs(part).sum() for part in g.values())), "image 0's norm is"),
        (shares_of_the_mean, "its own loss isn't divided by N"),
        (weights_in_lanes, "raised"),
        (without_a_batch, "raised"),
        (gradients_themselves, "expected an array of 5 norms"),
        (
            lambda loss, weights, images, labels: jnp.sqrt(squared(jax.grad(loss)(weights, images, labels))),
            "got shape ()",
        ),
        (lambda loss, weights, images, labels: jnp.ones(len(images)), "image 0's norm is"),
    ],
    "21.3": [
        (specs((None, None), COLUMNS, ROWS), "each device holds 1/1 of x, expected 1/2"),
        (specs(TOKENS, (None, None), ROWS), "each device holds 1/1 of w1"),
        (specs(TOKENS, ROWS, COLUMNS), "one all-reduce"),
        (specs(TOKENS, COLUMNS, COLUMNS), "is enough"),
        (specs(TOKENS, ROWS, ROWS), "is enough"),
        (specs((None, "data"), COLUMNS, ROWS), "is enough"),
        (specs(TOKENS, (None, "data"), ("data", None)), "each device holds 1/2 of w1, expected 1/4"),
        (specs(("data", "model"), COLUMNS, ROWS), "each device holds 1/8 of x"),
        (specs(TOKENS, ("data", "model"), ROWS), "each device holds 1/8 of w1"),
        (lambda data, model: (P("data", None), P(None, "model"), P("model", None)), "raised"),
        (lambda data, model: (P(data), P(None, model)), "expected three PartitionSpecs"),
        (lambda data, model: ((data, None), (None, model), (model, None)), "expected PartitionSpecs such as"),
        (lambda data, model: None, "expected three PartitionSpecs"),
    ],
    "21.4": [
        (sharded(divide=1), "8x the right one"),
        (sharded(divide=64), "0.125x the right one"),
        (sharded(gather=False), "raised"),
        (sharded(scatter=False), "each device returns its"),
        (reduced_everywhere, "psum_scatter sends half"),
        (own_rows_alone, "the gradient is off"),
        (batch_gathered, "exchanges all-gather"),
        (untiled, "raised"),
        (whole_gradient, "each device returns its"),
        (lambda loss, shard, x, y: shard, "the gradient is off"),
        (lambda loss, shard, x, y: jnp.zeros_like(shard), "the gradient is off"),
        (lambda loss, shard, x, y: None, "Is there a return"),
    ],
    "21.5": [
        (torus(trips=1), "Each byte leaves a chip twice"),
        (torus(links=lambda sides: sum(s > 1 for s in sides)), "two links, one in each direction"),
        (torus(links=lambda sides: 2), "All axes carry bytes at once"),
        (torus(links=lambda sides: 1), "in both directions"),
        (torus(own=0), "own n-th part needn't travel"),
        (torus(links=lambda sides: 2 * len(sides)), "A side of 1 has no links"),
        (torus(hops=lambda sides: 2 * (math.prod(sides) - 1)), "not along one ring"),
        (torus(hops=lambda sides: sum(s - 1 for s in sides)), "walked twice"),
        (no_way_out, "raised ZeroDivisionError"),
        (torus(hops=lambda sides: 0), "Each hop takes hop_s too"),
        (lambda *args: 1e3 * torus()(*args), "1e+03x what we expect"),
        (lambda *args: None, "Is there a return"),
    ],
}
