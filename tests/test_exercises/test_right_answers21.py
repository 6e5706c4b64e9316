"""Other right answers to notebook 21's exercises than the solutions: all have to pass."""

import contextlib
import math

import numpy as np
import pytest

from tests.helpers import check
from tests.needs import needs

pytestmark = needs("jax")
with contextlib.suppress(ImportError):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P


def share_by_ceil(rows, inputs, outputs, side):
    tiles = math.ceil(rows / 8) * math.ceil(inputs / side) * math.ceil(outputs / side)
    return rows * inputs * outputs / (tiles * 8 * side**2)


def norms_by_axes(loss, weights, images, labels):
    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, images[:, None], labels[:, None])
    return sum(jnp.sum(part.reshape(len(images), -1) ** 2, 1) for part in jax.tree.leaves(gradients)) ** 0.5


def norms_by_jacobian(loss, weights, images, labels):
    def losses(weights):
        return jax.vmap(lambda x, y: loss(weights, x[None], y[None]))(images, labels)

    squares = jax.tree.map(lambda part: (part.reshape(len(images), -1) ** 2).sum(1), jax.jacrev(losses)(weights))
    return jnp.sqrt(sum(squares.values()))


def norms_by_vectorize(loss, weights, images, labels):
    @jax.jit
    def norm(x, y):
        gradient = jax.grad(loss)(weights, x[None], y[None])
        return jnp.linalg.norm(jnp.concatenate([part.ravel() for part in gradient.values()]))

    return np.asarray(jnp.vectorize(norm, signature="(d),()->()")(images, labels))


def norms_by_value_and_grad(loss, weights, images, labels):
    def norm(x, y):
        _, gradient = jax.value_and_grad(loss)(weights, x, y)
        return jnp.hypot(*(jnp.linalg.norm(part.ravel()) for part in gradient.values()))

    return jax.vmap(norm)(images[:, None], labels[:, None]).tolist()


def specs_in_tuples(data, model):
    return jax.sharding.PartitionSpec((data,), None), P(None, (model,)), P((model,))


def scattered_by_blocks(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, "x").reshape(-1, shard.shape[1])
    gradient = jax.grad(lambda w: loss(w, x, y) / jax.lax.psum(1, "x"))(weights)
    return jax.lax.psum_scatter(gradient.reshape(8, *shard.shape), "x")


def by_vjp(loss, shard, x, y):
    weights = jax.lax.all_gather(shard, axis_name="x", axis=0, tiled=True)
    _, back = jax.vjp(lambda w: loss(w, x, y), weights)
    return jax.lax.psum_scatter(back(jnp.float32(1 / 8))[0], "x", scatter_dimension=0, tiled=True)


def share_by_products(rows, inputs, outputs, side):
    filled = [np.divide(n, tile * np.ceil(n / tile)) for n, tile in ((rows, 8), (inputs, side), (outputs, side))]
    return np.prod(filled)


def torus_in_numpy(n_bytes, sides, link_bytes_per_s, hop_s):
    sides = np.array(sides)
    sent = 2 * n_bytes * (1 - 1 / sides.prod())
    return sent / (link_bytes_per_s * np.maximum(2 * np.count_nonzero(sides > 1), 1)) + (2 * hop_s * (sides - 1)).sum()


def short_specs(data, model):
    return [P(data), P(None, model), P(model)]


def through_the_gather(loss, shard, x, y):
    return jax.grad(lambda s: loss(jax.lax.all_gather(s, "x", tiled=True), x, y))(shard) / jax.lax.axis_size("x")


def torus_by_axes(n_bytes, sides, link_bytes_per_s, hop_s):
    long = [side for side in sides if side > 1]
    if not long:
        return 0
    n = math.prod(long)
    return n_bytes * (1 - 1 / n) / (len(long) * link_bytes_per_s) + hop_s * sum(2 * side - 2 for side in long)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("21.1", share_by_ceil), ("21.1", share_by_products), ("21.2", norms_by_axes),
        ("21.2", norms_by_jacobian), ("21.2", norms_by_vectorize), ("21.2", norms_by_value_and_grad),
        ("21.3", short_specs), ("21.3", specs_in_tuples), ("21.4", through_the_gather), ("21.4", scattered_by_blocks),
        ("21.4", by_vjp), ("21.5", torus_by_axes), ("21.5", torus_in_numpy),
    ],
)  # fmt: skip
def test_another_right_answer_passes(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
