"""Checks of notebook 21, JAX and TPUs."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from exercises.nb21 import pallas_product
from exercises.nb21.collectives import exchanged
from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.lesson.answers import mistake, parts
from labkit.lesson.checks import (
    NotYet,
    Todo,
    as_number,
    call,
    function,
    number_close,
    over_cases,
)
from labkit.lesson.notebook_files import tagged_cells


def _jax() -> tuple[Any, Any]:
    """The modules jax and jax.numpy with eight devices. Raises Todo without JAX, NotYet
    where it began with fewer.
    """
    try:
        import jax
    except ImportError as error:
        raise Todo(
            "This exercise needs JAX: run `make appendix`, then restart the kernel."
        ) from error
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    except RuntimeError:  # JAX has begun; the notebook asked for eight devices itself
        pass
    if (count := len(jax.devices("cpu"))) < 8:
        raise NotYet(
            f"Expected 8 devices, but JAX began with {count}: restart the kernel, and"
            " begin at the top."
        )
    return jax, jax.numpy


def _tiles(size: int, side: int) -> int:
    return side * -(-size // side)


def _useful(rows: int, inputs: int, outputs: int, side: int) -> float:
    return (
        rows
        * inputs
        * outputs
        / (_tiles(rows, 8) * _tiles(inputs, side) * _tiles(outputs, side))
    )


def useful_share(answer: object) -> str:
    """Sizes that fill tiles, that miss by one, small ones and drawn ones, for several
    units.
    """
    cases = [
        (8, 128, 128, 128),
        (8, 128, 129, 128),
        (9, 128, 128, 128),
        (8, 129, 256, 128),
        (1, 1, 1, 256),
    ]
    cases += [
        (64, 75, 6, 128),
        (1023, 768, 50_257, 256),
        (8, 384, 256, 256),
        (16, 24, 40, 16),
    ]
    draw = random.Random(211)
    for _ in range(9):
        inputs, outputs = draw.sample(range(1, 3000), 2)
        cases.append(
            (draw.randrange(1, 5000), inputs, outputs, draw.choice((64, 128, 256)))
        )
    over_cases(answer, cases, _useful, _judge_share)
    return (
        "Right for full tiles, for one more than a tile, and for drawn sizes on units"
        " of several sides."
    )


def _judge_share(
    got: object,
    right: float,
    case: str,
    rows: int,
    inputs: int,
    outputs: int,
    side: int,
) -> None:
    value = as_number(got, "(0 to 1)", case)
    padded = {size: _tiles(size, side) for size in (inputs, outputs)}
    work = rows * inputs * outputs
    wrong = {
        100 * right: "A share is asked for, from 0 to 1.",
        1 / right: "That is the padded work over the useful one: turn it round.",
        inputs
        * outputs
        / padded[inputs]
        / padded[outputs]: "Rows come in groups of 8, and the last one may be short.",
        rows
        * outputs
        / _tiles(rows, 8)
        / padded[outputs]: "The inputs are padded to whole tiles too.",
        rows
        * inputs
        / _tiles(rows, 8)
        / padded[inputs]: "The outputs are padded to whole tiles too.",
        work
        / _tiles(rows, side)
        / padded[inputs]
        / padded[outputs]: "Rows are padded to 8, not to the side.",
        work
        / (
            _tiles(rows + 1, 8) * _tiles(inputs + 1, side) * _tiles(outputs + 1, side)
        ): "A size that divides needs no further tile: round up, don't add one.",
    }
    number_close(
        value,
        right,
        rel=1e-6,
        unit="of the multiplications",
        given=case,
        hint=mistake(value, wrong, ""),
    )


def pallas_kernel(answer: object) -> str:
    """Index maps of every step of a grid, and products of sizes that fill their blocks
    and of others.
    """
    jax, jnp = _jax()
    from jax.experimental import pallas

    blocks_at, kernel = map(function, parts(answer, 2, "(blocks_at, kernel)"))
    names = tagged_cells("21", "design", jax=jax, jnp=jnp, pl=pallas)
    pallas_product.judge_maps(blocks_at)
    pallas_product.judge_kernel(names["by_blocks"], blocks_at, kernel)
    return (
        "The right blocks in every step, and the right sums, for sizes that fill their"
        " blocks and for others."
    )


def mlp_specs(answer: object) -> str:
    """Compile the MLP with the specs, on meshes of several shapes, and look at what
    each device holds and sends.
    """
    jax, jnp = _jax()
    fn = function(answer)
    for names, shape in (
        (("data", "model"), (2, 4)),
        (("rows", "columns"), (4, 2)),
        (("a", "b"), (2, 4)),
    ):
        case = (
            f"a mesh of {shape[0]} x {shape[1]} devices with the axes {names[0]!r} and"
            f" {names[1]!r}"
        )
        specs = parts(
            call(fn, *names), 3, "three PartitionSpecs, of x, w1 and w2", case
        )
        if wrong := [
            spec for spec in specs if not isinstance(spec, jax.sharding.PartitionSpec)
        ]:
            raise NotYet(
                f"For {case}: expected PartitionSpecs such as P('x', None), got"
                f" {brief_repr(wrong[0])}."
            )
        mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]).reshape(shape), names)
        _judge_specs(jax, jnp, mesh, specs, shape, case)
    return (
        "Tokens and weights are cut, each over its own axis, and one sum is all that is"
        " exchanged."
    )


def _judge_specs(
    jax: Any,
    jnp: Any,
    mesh: Any,
    specs: tuple[Any, ...],
    shape: tuple[int, int],
    case: str,
) -> None:
    sizes = {"x": (64, 32), "w1": (32, 128), "w2": (128, 32)}
    shardings = [call(jax.sharding.NamedSharding, mesh, spec) for spec in specs]
    for (name, size), sharding, share in zip(
        sizes.items(), shardings, (shape[0], shape[1], shape[1]), strict=True
    ):
        held = math.prod(call(sharding.shard_shape, size))
        if held * share != math.prod(size):
            raise NotYet(
                f"For {case}: each device holds 1/{math.prod(size) // held} of {name},"
                f" expected 1/{share}. Tokens are cut over the first axis of the mesh,"
                " weights over the second."
            )
    arrays = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes.values()]
    out = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec(mesh.axis_names[0], None)
    )
    mlp = jax.jit(
        lambda x, w1, w2: jax.nn.relu(x @ w1) @ w2,
        in_shardings=shardings,
        out_shardings=out,
    )
    sent = exchanged(mlp.lower(*arrays).compile().as_text())
    one_sum = {"all-reduce": 4 * 64 * 32 / shape[0]}
    if sent != one_sum:
        exchanges = (
            ", ".join(
                f"{kind} of {n_bytes:,.0f} bytes" for kind, n_bytes in sent.items()
            )
            or "nothing"
        )
        raise NotYet(
            f"For {case}: the compiled program exchanges {exchanges}; one all-reduce of"
            f" {one_sum['all-reduce']:,.0f} bytes is enough. Is w1 cut so that no sum"
            " of its product is, and w2 as its input already is?"
        )


def sharded_gradient(answer: object) -> str:
    """Values and compiled collectives of drawn problems on 8 devices."""
    jax, jnp = _jax()
    fn = function(answer)
    draw = np.random.default_rng(214)
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]), "x")
    spec = jax.sharding.PartitionSpec("x")
    for rows, outputs, batch in (16, 3, 8), (64, 5, 24), (8, 1, 40):
        case = f"{rows} x {outputs} weights and {batch} samples on 8 devices"
        weights, x = (
            jnp.asarray(draw.normal(size=size), "float32")
            for size in ((rows, outputs), (batch, rows))
        )
        y = jnp.asarray(draw.normal(size=(batch, outputs)), "float32")

        def loss(weights: Any, x: Any, y: Any) -> Any:
            return ((jnp.tanh(x @ weights) - y) ** 2).mean()

        def on_device(shard: Any, x: Any, y: Any) -> Any:
            return fn(loss, shard, x, y)

        right = np.asarray(jax.grad(loss)(weights, x, y))
        sharded = jax.shard_map(
            on_device, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        compiled = call(jax.jit(sharded).lower, weights, x, y).compile()
        _judge_gradient(np.asarray(compiled(weights, x, y)), right, case)
        _judge_collectives(exchanged(compiled.as_text()), right.nbytes, case)
    return (
        "The whole batch's gradient, each device its rows; weights gathered once,"
        " gradients scattered once."
    )


def _judge_gradient(got: Any, right: Any, case: str) -> None:
    if got.dtype == object:
        raise NotYet(
            f"For {case}: expected an array, got {brief_repr(got.item())}. Is there a"
            " return?"
        )
    if got.shape != right.shape:
        raise NotYet(
            f"For {case}: all devices' results together have the shape {got.shape},"
            f" expected {right.shape}: each device returns its {len(right) // 8} rows."
        )
    if np.allclose(got, right, rtol=1e-4, atol=1e-6):
        return
    ratio = as_float((got * right).sum() / (right**2).sum()) or 0.0
    scaled = np.allclose(got, ratio * right, rtol=1e-3, atol=1e-5)
    why = (
        f"It is {ratio:.3g}x the right one: the batch's mean is the mean of 8 devices'"
        " means."
        if scaled
        else ""
    )
    raise NotYet(
        f"For {case}: the gradient is off by up to {np.abs(got - right).max():.3g}."
        f" {why}".rstrip()
    )


def _judge_collectives(sent: Mapping[str, float], n_bytes: int, case: str) -> None:
    if sent == {"all-gather": n_bytes, "reduce-scatter": n_bytes}:
        return
    exchanges = (
        ", ".join(f"{kind} of {size:,.0f} bytes" for kind, size in sent.items())
        or "nothing"
    )
    advice = ""
    if "all-reduce" in sent:
        advice = (
            " An all-reduce gives every device all rows, of which it needs an eighth:"
            " psum_scatter sends half."
        )
    raise NotYet(
        f"For {case}: the gradient is right, but the compiled program exchanges"
        f" {exchanges}. One all-gather of the weights and one reduce-scatter of the"
        f" gradient, {n_bytes:,} bytes each, are enough.{advice}"
    )


def _all_reduce_s(
    n_bytes: float, sides: tuple[int, ...], link_bytes_per_s: float, hop_s: float
) -> float:
    n = math.prod(sides)
    links = 2 * sum(side > 1 for side in sides)
    if not links:
        return 0.0
    return (
        2 * (n - 1) / n * n_bytes / (links * link_bytes_per_s)
        + 2 * sum(side - 1 for side in sides) * hop_s
    )


def torus_all_reduce_s(answer: object) -> str:
    """Rings, squares, boxes with a side of 1, a single chip; large tensors, and empty
    ones, which are all latency.
    """
    cases = [
        (1e9, (4, 4, 4), 90e9, 1e-6),
        (1e9, (16, 16), 45e9, 1e-6),
        (1e9, (16,), 45e9, 1e-6),
    ]
    cases += [
        (1e9, (1, 8), 45e9, 1e-6),
        (1e9, (1, 1, 1), 90e9, 1e-6),
        (0.0, (4, 8, 8), 90e9, 1e-6),
    ]
    draw = random.Random(215)
    for _ in range(9):
        sides = tuple(
            draw.choice((1, 2, 4, 8, 12)) for _ in range(draw.randrange(1, 4))
        )
        cases.append(
            (
                draw.uniform(1e3, 1e10),
                sides,
                draw.uniform(1e10, 2e11),
                draw.uniform(0, 5e-6),
            )
        )
    over_cases(answer, cases, _all_reduce_s, _judge_torus)
    return (
        "Right for rings, squares and boxes, with sides of 1, for empty tensors and a"
        " single chip."
    )


def _judge_torus(
    got: object,
    right: float,
    case: str,
    n_bytes: float,
    sides: Any,
    rate: float,
    hop_s: float,
) -> None:
    value = as_number(got, "s", case)
    n = math.prod(sides)
    axes = sum(side > 1 for side in sides)
    if not axes:
        number_close(
            value,
            0.0,
            rel=1e-6,
            unit="s",
            given=case,
            hint="A single chip exchanges nothing.",
        )
        return
    hops = 2 * sum(side - 1 for side in sides) * hop_s
    wire = right - hops
    wrong = {
        wire: "Each hop takes hop_s too.",
        2 * wire + hops: "Each axis has two links, one in each direction.",
        wire * axes + hops: "All axes carry bytes at once.",
        2 * wire * axes + hops: "All axes carry bytes at once, in both directions.",
        wire / 2 + hops / 2: (
            "An all-reduce goes round twice: a reduce-scatter, then an all-gather."
        ),
        wire / 2 + hops: (
            "Each byte leaves a chip twice: in the reduce-scatter and in the"
            " all-gather."
        ),
        wire * n / (n - 1)
        + hops: "A chip's own n-th part needn't travel: 2 (n - 1) / n.",
        wire * axes / len(sides) + hops: "A side of 1 has no links.",
        wire + 2 * (n - 1) * hop_s: (
            "Hops are counted along each side, not along one ring through all chips."
        ),
        wire + hops / 2: "Every side is walked twice: 2 (side - 1) hops.",
    }
    number_close(
        value, right, rel=1e-6, unit="s", given=case, hint=mistake(value, wrong, "")
    )


CHECKS = {
    "21.1": useful_share,
    "21.2b": pallas_kernel,
    "21.3": mlp_specs,
    "21.4": sharded_gradient,
    "21.5": torus_all_reduce_s,
}
