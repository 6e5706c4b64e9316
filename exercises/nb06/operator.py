"""Checks of notebook 06 around the kernels: the bytes that cross memory, and PyTorch's
operator.

The operator's shapes, values and gradients count, and whether torch.compile takes it
whole.
"""

from __future__ import annotations

import random
import warnings
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_flatten

from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, call, is_open, number_close, over_cases

_NAMES = ("x", "weight", "bias")


def block_bytes(answer: object) -> str:
    """Bytes of the four kernels and of the fused one, at even and odd sizes."""
    draw = random.Random(2604)
    sizes: list[tuple[int, ...]] = [
        (1, 3, 6, 32, 5),
        (1024, 6, 16, 14, 5),
        (1, 1, 1, 4, 2),
        (7, 2, 3, 9, 1),
    ]
    sizes += [
        (
            draw.randint(1, 99),
            *(draw.randint(1, 9) for _ in range(2)),
            draw.randint(9, 40),
            3,
        )
        for _ in range(4)
    ]
    over_cases(answer, sizes, _right_bytes, _judge_bytes)
    return "Right for one image and many, at even and odd sizes."


def _right_bytes(
    images: int, channels: int, outputs: int, size: int, kernel: int
) -> tuple[int, int]:
    side = size - kernel + 1
    x = images * channels * size**2
    sums = images * outputs * side**2
    pooled = images * outputs * (side // 2) ** 2
    weights = outputs * channels * kernel**2
    separate = (
        4 * (x + weights + sums + (2 * sums + outputs) + 2 * sums + sums + pooled)
        + 8 * pooled
    )
    return separate, 4 * (x + weights + outputs + pooled) + pooled


def _judge_bytes(got: Any, right: tuple[int, int], case: str, *sizes: int) -> None:
    # an array or tensor of two is as good
    got = got.tolist() if hasattr(got, "tolist") else got
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise NotYet(f"Expected two numbers, (separate, fused), got {brief_repr(got)}.")
    *_, size, kernel = sizes
    odd = (
        " Pooling leaves out an odd last row and column, but what is written was"
        " written." * ((size - kernel + 1) % 2)
    )
    for value, expected, words, hint in (
        (got[0], right[0], f"separate, {case}", _SEPARATE + odd),
        (got[1], right[1], f"fused, {case}", _FUSED + odd),
    ):
        number_close(value, expected, rel=1e-9, unit="bytes", given=words, hint=hint)


_SEPARATE = (
    "Four kernels: what does each read, what does it write? Pooling writes 4 + 8 bytes"
    " a number."
)
_FUSED = (
    "One kernel reads x, weights and biases once, and writes 4 + 1 bytes a pooled"
    " number."
)


def operator(answer: object) -> str:
    """A custom operator (x, weight, bias) -> (pooled, choice) with a fake and a
    gradient.
    """
    # which doesn't list the class among its exports for type checkers
    library: Any = torch.library
    if not isinstance(answer, library.CustomOpDef):
        raise NotYet(
            "Expected the operator, cnn_block under @torch.library.custom_op, got"
            f" {brief_repr(answer)}. Pass its name without brackets."
        )
    # what was registered, as far as this torch tells
    parts = {
        "fake": "_abstract_fn",
        "remember": "_setup_context_fn",
        "gradients": "_backward_fn",
    }
    if still_open := [
        name for name, field in parts.items() if is_open(getattr(answer, field, None))
    ]:
        raise Todo(f"Still open: {', '.join(still_open)}.")
    _judge_shapes(answer)
    for height, width in ((8, 8), (9, 7)):
        _judge_values(answer, height, width, wants_x=True)
    _judge_values(answer, 9, 7, wants_x=False)
    _judge_kept(answer)
    _judge_gradcheck(answer)
    _judge_compile(answer)
    return (
        "Shapes, values and gradients are right, gradcheck passes, and torch.compile"
        " takes it in one graph."
    )


def _given(height: int, width: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2607 + width)
    shapes = ((2, 2, height, width), (3, 2, 3, 3), (3,))
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    ]


def _expected(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.max_pool2d(functional.conv2d(x, weight, bias).relu(), 2)


def _judge_shapes(answer: Any) -> None:
    for height, width in ((8, 8), (9, 7)):
        arguments = _given(height, width)
        wanted = _expected(*arguments)
        got = call(answer, *(tensor.to("meta") for tensor in arguments))
        x_shape, weight_shape = (tuple(tensor.shape) for tensor in arguments[:2])
        where = f"fake, for x {x_shape} and weight {weight_shape}"
        if not isinstance(got, tuple) or len(got) != 2:
            raise NotYet(
                f"{where}: expected two empty tensors, pooled and choice, got"
                f" {brief_repr(got)}."
            )
        for name, part, dtype in zip(
            ("pooled", "choice"), got, (wanted.dtype, torch.uint8), strict=True
        ):
            if (tuple(part.shape), part.dtype) != (tuple(wanted.shape), dtype):
                raise NotYet(
                    f"{where}: {name} should be {dtype} of shape {tuple(wanted.shape)},"
                    f" got {part.dtype} of shape {tuple(part.shape)}."
                )
            if part.device.type != "meta":  # where these inputs are
                raise NotYet(
                    f"{where}: {name} is on the CPU, wherever x is: make it from x, as"
                    " x.new_empty does."
                )


def _judge_kept(answer: Any) -> None:
    """NotYet for tensors that are attributes of ctx: autograd can't free them, nor see
    that they have changed.
    """
    inputs = [tensor.to("meta") for tensor in _given(8, 8)]
    ctx = SimpleNamespace(
        save_for_backward=lambda *_: None, mark_non_differentiable=lambda *_: None
    )
    attributes = set(vars(ctx))
    call(answer._setup_context_fn, ctx, tuple(inputs), call(answer, *inputs))
    if kept := [
        name
        for name in vars(ctx).keys() - attributes
        if _has_tensor(getattr(ctx, name))
    ]:
        raise NotYet(
            f"remember keeps a tensor as ctx.{kept[0]}: autograd neither frees it after"
            " the backward pass nor notices that it was changed. Pass tensors to"
            " ctx.save_for_backward(...); ctx.saved_tensors has them in backward."
        )


def _has_tensor(value: object) -> bool:
    return any(isinstance(part, Tensor) for part in tree_flatten(value)[0])


def _judge_values(
    fn: Any, height: int, width: int, *, wants_x: bool, where: str = ""
) -> None:
    arguments = _given(height, width)
    gradient = torch.linspace(
        1, 2, _expected(*arguments).numel(), dtype=torch.float64
    ).view_as(_expected(*arguments))
    result, grads = _run(
        lambda *inputs: fn(*inputs)[0], arguments, gradient, wants_x=wants_x
    )
    right, wanted = _run(_expected, arguments, gradient, wants_x=wants_x)
    if not where:
        unneeded = "" if wants_x else ", whose gradient nobody needs"
        where = f"With x {tuple(arguments[0].shape)}{unneeded}"
    if not torch.allclose(result, right):
        raise NotYet(
            f"{where}: the pooled values are not torch's. Does exercise 06.5 pass?"
        )
    for name, got, expected in zip(_NAMES, grads, wanted, strict=True):
        if expected is None:
            continue
        if got is None:
            raise NotYet(
                f"{where}: no gradient of {name} comes back. gradients returns one for"
                " each input, in order."
            )
        if not torch.allclose(got, expected):
            raise NotYet(
                f"{where}: the gradient of {name} is not torch's. Does exercise 06.6"
                " pass? Which order?"
            )


def _run(
    fn: Any, arguments: list[Tensor], gradient: Tensor, *, wants_x: bool
) -> tuple[Tensor, list[Tensor | None]]:
    """Result and gradients of x (where wanted), weight and bias; what goes wrong on the
    way is a NotYet.
    """
    inputs = [
        tensor.clone().requires_grad_(wants_x or i > 0)
        for i, tensor in enumerate(arguments)
    ]
    pooled = call(fn, *inputs)
    try:
        pooled.backward(gradient)
    except (RuntimeError, TypeError, ValueError, AttributeError, NameError) as error:
        raise NotYet(
            f"The backward pass raised {type(error).__name__}: {str(error)[:300]}"
        ) from error
    return pooled.detach(), [tensor.grad for tensor in inputs]


def _judge_gradcheck(answer: Any) -> None:
    arguments = [tensor.requires_grad_() for tensor in _given(7, 6)]
    try:
        torch.autograd.gradcheck(lambda *inputs: answer(*inputs)[0], arguments)
    except Exception as error:
        # GradcheckError is a RuntimeError, but the reader's code may raise anything
        raise NotYet(
            "gradcheck, which changes each number a little and compares, says:"
            f" {str(error)[:300]}"
        ) from error


def _judge_compile(answer: Any) -> None:
    """Compiled into one graph, forward and backward, without a code generator: that
    would take long on a CPU.
    """
    # of the operators of one name that a session defines, torch compiles only so many
    torch.compiler.reset()
    compiled = torch.compile(answer, backend="aot_eager", fullgraph=True)
    try:
        with warnings.catch_warnings():
            # the tracer warns of the very error that is shown below
            warnings.simplefilter("ignore")
            _judge_values(compiled, 9, 7, wants_x=True, where="Compiled")
    except NotYet as error:
        raise NotYet(
            "It works, but torch.compile can't trace it: what fake and gradients call"
            " must be torch's operators or operators with a fake of their own."
            f" {str(error)[:300]}"
        ) from error
