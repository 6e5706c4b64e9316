"""Plausible wrong answers of notebook 21: number -> (answer, words the check must say, misconception)."""

import math

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.sharding import PartitionSpec as P
except ImportError:  # then 21.2b to 21.4 can't be judged
    jax = jnp = pl = P = None

# 21.1


def padded(
    rows,
    inputs,
    outputs,
    side,
    *,
    row_group=8,
    up=lambda size, tile: tile * -(-size // tile),
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


# 21.2b


def right_blocks(i, j, k):
    return (i, k), (k, j), (i, j)


def maps(x="ik", w="kj", out="ij"):
    def blocks_at(i, j, k):
        index = {"i": i, "j": j, "k": k}
        return tuple((index[names[0]], index[names[1]]) for names in (x, w, out))

    return blocks_at


def summing(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] = jnp.where(pl.program_id(2) == 0, 0, out_ref[:]) + x @ w


def never_zeroed(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] += x @ w


def zeroed_in_every_step(x_ref, w_ref, out_ref, inside):
    out_ref[:] = jnp.zeros_like(out_ref)
    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] += x @ w


def written_in_every_step(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] = x @ w


def zeroed_at_the_first_step_of_all(x_ref, w_ref, out_ref, inside):
    @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0))
    def begin():
        out_ref[:] = jnp.zeros_like(out_ref)

    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] += x @ w


def edges_ignored(x_ref, w_ref, out_ref, inside):
    out_ref[:] = jnp.where(pl.program_id(2) == 0, 0, out_ref[:]) + x_ref[:] @ w_ref[:]


def edge_of_x_alone(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0)
    out_ref[:] = jnp.where(pl.program_id(2) == 0, 0, out_ref[:]) + x @ w_ref[:]


def elementwise(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0)
    w = jnp.where(inside[:, None], w_ref[:], 0)
    out_ref[:] = jnp.where(pl.program_id(2) == 0, 0, out_ref[:]) + x * w


def in_bfloat16(x_ref, w_ref, out_ref, inside):
    x = jnp.where(inside, x_ref[:], 0).astype(jnp.bfloat16)
    w = jnp.where(inside[:, None], w_ref[:], 0).astype(jnp.bfloat16)
    out_ref[:] = jnp.where(pl.program_id(2) == 0, 0, out_ref[:]) + (x @ w).astype(jnp.float32)


def returned(x_ref, w_ref, out_ref, inside):
    return x_ref[:] @ w_ref[:]


def nothing_done(x_ref, w_ref, out_ref, inside):
    pass


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


def without_hops(n_bytes, sides, link_bytes_per_s, hop_s):
    n = math.prod(sides)
    axes = sum(side > 1 for side in sides)
    return 2 * (n - 1) / n * n_bytes / (2 * max(axes, 1) * link_bytes_per_s)


def no_way_out(n_bytes, sides, link_bytes_per_s, hop_s):
    n, links = math.prod(sides), 2 * sum(s > 1 for s in sides)
    hops_s = 2 * sum(s - 1 for s in sides) * hop_s
    return 2 * (n - 1) / n * n_bytes / (links * link_bytes_per_s) + hops_s


WRONG = {
    "21.1": [
        (outputs_alone, "what we expect", "padding-is-free"),
        (without_rows, "Rows come in groups of 8", "padding-is-free"),
        (without_inputs, "The inputs are padded to whole tiles too", "padding-is-free"),
        (
            shares(lambda work, padding: 100 * work / padding),
            "from 0 to 1",
            "wrong-unit",
        ),
        (shares(lambda work, padding: padding / work), "turn it round", "upside-down"),
        (
            shares(lambda work, padding: 1 - work / padding),
            "what we expect",
            "upside-down",
        ),
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
    "21.2b": [
        ((right_blocks, never_zeroed), "holds garbage until", "memory-starts-at-zero"),
        (
            (right_blocks, zeroed_at_the_first_step_of_all),
            "holds garbage until",
            "memory-starts-at-zero",
        ),
        (
            (right_blocks, zeroed_in_every_step),
            "only the last block of each sum is left",
            "other-formula",
        ),
        (
            (right_blocks, written_in_every_step),
            "only the last block of each sum is left",
            "other-formula",
        ),
        ((right_blocks, edges_ignored), "NaN times 0 is NaN", "edges-are-ordinary"),
        ((right_blocks, edge_of_x_alone), "NaN times 0 is NaN", "edges-are-ordinary"),
        ((maps(x="ki"), summing), "the block of x is", "axes-swapped"),
        ((maps(w="jk"), summing), "the block of w is", "axes-swapped"),
        ((maps(out="ji"), summing), "the block of the result is", "axes-swapped"),
        ((maps(x="ij"), summing), "its columns like the sums", "other-formula"),
        ((maps(out="ik"), summing), "for every k", "other-formula"),
        ((right_blocks, elementwise), "the result is off by", "other-formula"),
        (
            (right_blocks, in_bfloat16),
            "the result is off by",
            "low-precision-is-enough",
        ),
        (
            (right_blocks, returned),
            "until something is written",
            "result-of-another-kind",
        ),
        ((right_blocks, nothing_done), "holds garbage until", "does-less-work"),
        (right_blocks, "(blocks_at, kernel)", "result-of-another-kind"),
        (
            (lambda i, j, k: (i, j), summing),
            "the blocks of x, of w and of the result",
            "result-of-another-kind",
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
        (
            lambda data, model: None,
            "expected three PartitionSpecs",
            "result-of-another-kind",
        ),
    ],
    "21.4": [
        (sharded(divide=1), "8x the right one", "sum-for-mean"),
        (sharded(divide=64), "0.125x the right one", "sum-for-mean"),
        (sharded(gather=False), "raised", "ranks-share-by-themselves"),
        (
            sharded(scatter=False),
            "each device returns its",
            "ranks-share-by-themselves",
        ),
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
        (without_hops, "Each hop takes hop_s too", "latency-is-free"),
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
        (lambda *args: 1e3 * torus()(*args), "1,000x what we expect", "wrong-unit"),
        (lambda *args: None, "Is there a return", "result-of-another-kind"),
    ],
}
