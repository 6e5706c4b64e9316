"""Plausible wrong answers of notebook 21: number -> (answer, words the check must say, misconception)."""

import math

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P
except ImportError:  # then 21.2 to 21.4 can't be judged
    jax = jnp = P = None

# 21.1


def padded(
    rows, inputs, outputs, side, *, row_group=8, up=lambda size, tile: tile * -(-size // tile)
):
    return up(rows, row_group) * up(inputs, side) * up(outputs, side)


def outputs_alone(rows, inputs, outputs, side):
    return outputs / (side * -(-outputs // side))


def without_rows(rows, inputs, outputs, side):
    return inputs * outputs / (side * -(-inputs // side) * side * -(-outputs // side))


def without_inputs(rows, inputs, outputs, side):
    return rows * outputs / (8 * -(-rows // 8) * side * -(-outputs // side))


def shares(turn=lambda work, padding: work / padding, **how):
    return lambda rows, inputs, outputs, side: turn(
        rows * inputs * outputs, padded(rows, inputs, outputs, side, **how)
    )


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
        jnp.sqrt(squared(jax.grad(loss)(weights, images[i : i + 1], labels[i : i + 1])))
        for i in range(len(images))
    ]
    return jnp.array(norms)


def compiled_one_by_one(loss, weights, images, labels):
    norm = jax.jit(lambda x, y: jnp.sqrt(squared(jax.grad(loss)(weights, x[None], y[None]))))
    return jnp.array([norm(x, y) for x, y in zip(images, labels, strict=True)])


def mapped_one_by_one(loss, weights, images, labels):
    def norm(one):
        return jnp.sqrt(squared(jax.grad(loss)(weights, one[0][None], one[1][None])))

    return jax.lax.map(norm, (images, labels))


def two_at_a_time(loss, weights, images, labels):
    parts = [slice(i, i + 2) for i in range(0, len(images), 2)]
    norm = norm_by(lambda g: jnp.sqrt(squared(g)))
    return jnp.concatenate([norm(loss, weights, images[part], labels[part]) for part in parts])


def mapped_in_batches(size):
    def gradient_norms(loss, weights, images, labels):
        def norm(one):
            return jnp.sqrt(squared(jax.grad(loss)(weights, one[0][None], one[1][None])))

        return jax.lax.map(norm, (images, labels), batch_size=size)

    return gradient_norms


def by_name(gradient):
    return jnp.sqrt((gradient["w5"] ** 2).sum() + (gradient["b5"] ** 2).sum())


def of_the_inputs(loss, weights, images, labels):
    gradient = jax.vmap(lambda x, y: jax.grad(loss, argnums=1)(weights, x[None], y[None]))(
        images, labels
    )
    return jnp.sqrt((gradient.reshape(len(images), -1) ** 2).sum(1))


def of_the_mean(loss, weights, images, labels):
    return jnp.full(len(images), jnp.sqrt(squared(jax.grad(loss)(weights, images, labels))))


def shares_of_the_mean(loss, weights, images, labels):
    return of_each(loss, weights, images, labels, lambda g: jnp.sqrt(squared(g))) / len(images)


def weights_in_lanes(loss, weights, images, labels):
    return jax.vmap(lambda w, x, y: jnp.sqrt(squared(jax.grad(loss)(w, x[None], y[None]))))(
        weights, images, labels
    )


def without_a_batch(loss, weights, images, labels):
    return jax.vmap(lambda x, y: jnp.sqrt(squared(jax.grad(loss)(weights, x, y))))(
        images, labels
    )


def gradients_themselves(loss, weights, images, labels):
    return jax.vmap(lambda x, y: jax.grad(loss)(weights, x[None], y[None]))(images, labels)


# 21.3


def specs(x, w1, w2):
    return lambda data, model: tuple(
        P(*({"data": data, "model": model, None: None}[name] for name in one))
        for one in (x, w1, w2)
    )


TOKENS, COLUMNS, ROWS = ("data", None), (None, "model"), ("model", None)


# 21.4


def sharded(gather=True, scatter=True, divide=8):
    def sharded_gradient(loss, shard, x, y):
        weights = jax.lax.all_gather(shard, "x", tiled=True) if gather else shard
        gradient = jax.grad(loss)(weights, x, y)
        return (
            jax.lax.psum_scatter(gradient, "x", tiled=True) if scatter else gradient
        ) / divide

    return sharded_gradient


def reduced_everywhere(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.lax.pmean(jax.grad(loss)(weights, x, y), "x")
    return jax.lax.dynamic_slice_in_dim(
        gradient, jax.lax.axis_index("x") * len(shard), len(shard)
    )


def own_rows_alone(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.grad(loss)(weights, x, y)
    return jax.lax.dynamic_slice_in_dim(
        gradient, jax.lax.axis_index("x") * len(shard), len(shard)
    )


def batch_gathered(loss, shard, x, y):
    weights, x, y = (jax.lax.all_gather(part, "x", tiled=True) for part in (shard, x, y))
    gradient = jax.grad(loss)(weights, x, y)
    return jax.lax.dynamic_slice_in_dim(
        gradient, jax.lax.axis_index("x") * len(shard), len(shard)
    )


def untiled(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x")
    return jax.lax.psum_scatter(jax.grad(loss)(weights, x, y), "x") / 8


def half_as_many_bytes(loss, shard, x, y):
    """Exchanges gradients in 16 bits, of which sums lose digits."""
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    gradient = jax.grad(loss)(weights, x, y).astype(jnp.bfloat16)
    return jax.lax.psum_scatter(gradient, "x", tiled=True).astype(jnp.float32) / 8


def by_all_to_all(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    parts = jax.grad(loss)(weights, x, y).reshape(8, *shard.shape)
    return jax.lax.all_to_all(parts, "x", 0, 0).mean(0)


def whole_gradient(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x", tiled=True)
    return jax.lax.pmean(jax.grad(loss)(weights, x, y), "x")


# 21.5


def torus(
    trips=2,
    links=lambda sides: 2 * sum(s > 1 for s in sides),
    hops=lambda sides: 2 * sum(s - 1 for s in sides),
    own=1,
):
    def torus_all_reduce_s(n_bytes, sides, link_bytes_per_s, hop_s):
        n = math.prod(sides)
        if n == 1:
            return 0.0
        return (
            trips * (n - own) / n * n_bytes / (links(sides) * link_bytes_per_s)
            + hops(sides) * hop_s
        )

    return torus_all_reduce_s


def no_way_out(n_bytes, sides, link_bytes_per_s, hop_s):
    n, links = math.prod(sides), 2 * sum(s > 1 for s in sides)
    hops_s = 2 * sum(s - 1 for s in sides) * hop_s
    return 2 * (n - 1) / n * n_bytes / (links * link_bytes_per_s) + hops_s


WRONG = {
    "21.1": [
        (outputs_alone, "what we expect", "padding-is-free"),
        (without_rows, "Rows come in groups of 8", "padding-is-free"),
        (without_inputs, "The inputs are padded to whole tiles too", "padding-is-free"),
        (shares(lambda work, padding: 100 * work / padding), "from 0 to 1", "wrong-unit"),
        (shares(lambda work, padding: padding / work), "turn it round", "upside-down"),
        (shares(lambda work, padding: 1 - work / padding), "what we expect", "upside-down"),
        (
            lambda rows, inputs, outputs, side: (
                rows * inputs * outputs / padded(rows, inputs, outputs, side, row_group=side)
            ),
            "Rows are padded to 8",
            "other-formula",
        ),
        (
            shares(up=lambda size, tile: tile * (size // tile + 1)),
            "round up, don't add one",
            "off-by-one",
        ),
        (
            shares(up=lambda size, tile: tile * max(size // tile, 1)),
            "what we expect",
            "rounding-is-cosmetic",
        ),
        (
            lambda rows, inputs, outputs, side: outputs_alone(rows, inputs, outputs, 128),
            "what we expect",
            "padding-is-free",
        ),
        (lambda rows, inputs, outputs, side: 0.5, "what we expect", "hard-coded"),
        (
            lambda rows, inputs, outputs, side: (
                rows * inputs * outputs / padded(rows, outputs, inputs, 8, row_group=side)
            ),
            "what we expect",
            "axes-swapped",
        ),
        (
            shares(up=lambda size, tile: tile * (round(size / tile) or 1)),
            "what we expect",
            "rounding-is-cosmetic",
        ),
        (shares(row_group=1), "Rows come in groups of 8", "padding-is-free"),
        (lambda *sizes: None, "Is there a return", "result-of-another-kind"),
    ],
    "21.2": [
        (one_by_one, "jax.vmap needs one call", "python-loop-per-item"),
        (compiled_one_by_one, "jax.vmap needs one call", "python-loop-per-item"),
        (mapped_one_by_one, "jax.vmap needs one call", "python-loop-per-item"),
        (two_at_a_time, "jax.vmap needs one call", "python-loop-per-item"),
        (mapped_in_batches(2), "jax.vmap needs one call", "python-loop-per-item"),
        (mapped_in_batches(16), "jax.vmap needs one call", "python-loop-per-item"),
        (norm_by(by_name), "raised KeyError", "right-for-one-case"),
        (of_the_inputs, "image 0's norm is", "other-formula"),
        (
            norm_by(lambda g: jnp.max(jnp.array([jnp.sqrt((p**2).sum()) for p in g.values()]))),
            "image 0's norm is",
            "other-formula",
        ),
        (
            of_the_mean,
            "the gradient of the whole batch's mean, for every image",
            "other-formula",
        ),
        (norm_by(squared), "take the root", "other-formula"),
        (
            norm_by(lambda g: sum(jnp.sqrt((part**2).sum()) for part in g.values())),
            "the root of the sum of all squares",
            "averaged-at-the-wrong-place",
        ),
        (
            norm_by(lambda g: jnp.sqrt((max(g.values(), key=jnp.ndim) ** 2).sum())),
            "the biases belong to it",
            "other-formula",
        ),
        (
            norm_by(lambda g: sum(jnp.abs(part).sum() for part in g.values())),
            "image 0's norm is",
            "other-formula",
        ),
        (shares_of_the_mean, "its own loss isn't divided by N", "sum-for-mean"),
        (weights_in_lanes, "raised", "other-formula"),
        (without_a_batch, "raised", "other-formula"),
        (gradients_themselves, "expected an array of 5 norms", "result-of-another-kind"),
        (
            lambda loss, weights, images, labels: jnp.sqrt(
                squared(jax.grad(loss)(weights, images, labels))
            ),
            "got shape ()",
            "result-of-another-kind",
        ),
        (
            lambda loss, weights, images, labels: jnp.ones(len(images)),
            "image 0's norm is",
            "hard-coded",
        ),
    ],
    "21.3": [
        (
            specs((None, None), COLUMNS, ROWS),
            "each device holds 1/1 of x, expected 1/2",
            "everyone-reads-all",
        ),
        (
            specs(TOKENS, (None, None), ROWS),
            "each device holds 1/1 of w1",
            "either-split-works",
        ),
        (specs(TOKENS, ROWS, COLUMNS), "one all-reduce", "either-split-works"),
        (specs(TOKENS, COLUMNS, COLUMNS), "is enough", "either-split-works"),
        (specs(TOKENS, ROWS, ROWS), "is enough", "either-split-works"),
        (specs((None, "data"), COLUMNS, ROWS), "is enough", "either-split-works"),
        (
            specs(TOKENS, (None, "data"), ("data", None)),
            "each device holds 1/2 of w1, expected 1/4",
            "either-split-works",
        ),
        (
            specs(("data", "model"), COLUMNS, ROWS),
            "each device holds 1/8 of x",
            "either-split-works",
        ),
        (
            specs(TOKENS, ("data", "model"), ROWS),
            "each device holds 1/8 of w1",
            "either-split-works",
        ),
        (
            lambda data, model: (P("data", None), P(None, "model"), P("model", None)),
            "raised",
            "right-for-one-case",
        ),
        (
            lambda data, model: (P(data), P(None, model)),
            "expected three PartitionSpecs",
            "result-of-another-kind",
        ),
        (
            lambda data, model: ((data, None), (None, model), (model, None)),
            "expected PartitionSpecs such as",
            "result-of-another-kind",
        ),
        (lambda data, model: None, "expected three PartitionSpecs", "result-of-another-kind"),
    ],
    "21.4": [
        (sharded(divide=1), "8x the right one", "sum-for-mean"),
        (sharded(divide=64), "0.125x the right one", "sum-for-mean"),
        (sharded(gather=False), "raised", "ranks-share-by-themselves"),
        (sharded(scatter=False), "each device returns its", "ranks-share-by-themselves"),
        (reduced_everywhere, "psum_scatter sends half", "whole-tensor-travels"),
        (own_rows_alone, "the gradient is off", "ranks-share-by-themselves"),
        (batch_gathered, "exchanges all-gather", "everyone-reads-all"),
        (untiled, "raised", "other-formula"),
        (half_as_many_bytes, "the gradient is off by up to", "rounding-is-cosmetic"),
        (by_all_to_all, "the compiled program exchanges", "whole-tensor-travels"),
        (whole_gradient, "each device returns its", "whole-tensor-travels"),
        (lambda loss, shard, x, y: shard, "the gradient is off", "does-less-work"),
        (
            lambda loss, shard, x, y: jnp.zeros_like(shard),
            "the gradient is off",
            "does-less-work",
        ),
        (lambda loss, shard, x, y: None, "Is there a return", "result-of-another-kind"),
    ],
    "21.5": [
        (torus(trips=1), "Each byte leaves a chip twice", "one-trip-is-enough"),
        (
            torus(links=lambda sides: sum(s > 1 for s in sides)),
            "two links, one in each direction",
            "half-the-work-counted",
        ),
        (torus(links=lambda sides: 2), "All axes carry bytes at once", "other-formula"),
        (torus(links=lambda sides: 1), "in both directions", "half-the-work-counted"),
        (torus(own=0), "own n-th part needn't travel", "other-formula"),
        (
            torus(links=lambda sides: 2 * len(sides)),
            "A side of 1 has no links",
            "zero-never-happens",
        ),
        (
            torus(hops=lambda sides: 2 * (math.prod(sides) - 1)),
            "not along one ring",
            "other-formula",
        ),
        (
            torus(hops=lambda sides: sum(s - 1 for s in sides)),
            "walked twice",
            "one-trip-is-enough",
        ),
        (no_way_out, "raised ZeroDivisionError", "zero-never-happens"),
        (torus(hops=lambda sides: 0), "Each hop takes hop_s too", "latency-is-free"),
        (
            torus(
                links=lambda sides: 2 * sum(s > 1 for s in sides) - sum(s == 2 for s in sides)
            ),
            "1.33x what we expect",
            "other-formula",
        ),
        (
            torus(hops=lambda sides: 2 * sum(s // 2 for s in sides)),
            "is close, but",
            "other-formula",
        ),
        (
            torus(hops=lambda sides: 2 * max(s - 1 for s in sides)),
            "is close, but",
            "other-formula",
        ),
        (torus(hops=lambda sides: 2 * sum(sides)), "is close, but", "off-by-one"),
        (lambda *args: 1e3 * torus()(*args), "1e+03x what we expect", "wrong-unit"),
        (lambda *args: None, "Is there a return", "result-of-another-kind"),
    ],
}
