"""Other right answers to notebook 21's exercises than the solutions: all have to pass."""

import contextlib
import math

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
        ("21.1", share_by_ceil), ("21.2", norms_by_axes), ("21.3", short_specs), ("21.4", through_the_gather),
        ("21.5", torus_by_axes),
    ],
)  # fmt: skip
def test_another_right_answer_passes(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
