"""Checks of notebook 06, a fused CNN block against the library. The other checks are in
operator.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numba
import numpy as np
import torch
from torch.nn import functional

from exercises.nb06.operator import block_bytes, operator
from exercises.traced_kernels import Array, kernel
from labkit.core.display import brief_repr, cut
from labkit.lesson.checks import NotYet

_LONGEST_ERROR = 400
_WATCHED_THREADS = 64  # more than a case has images: each gets a thread of its own
_BLOCKED = 4  # choice where ReLU let nothing through
# of the largest value: sums of some hundred terms
_TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
_FAR_APART = "five images, the last of numbers 100 times as large"
_SHAPES = {  # what is special -> images, channels, outputs, height, width, kernel
    "8 x 8 pixels and a kernel of 3": (2, 2, 3, 8, 8, 3),
    (
        "10 x 7 pixels and a kernel of 3: 8 x 5 sums, the last column of which is not"
        " pooled"
    ): (1, 3, 2, 10, 7, 3),
    "7 x 9 pixels and a kernel of 2": (2, 1, 2, 7, 9, 2),
    _FAR_APART: (5, 2, 5, 4, 6, 3),
    "3 x 3 pixels and a kernel of 1": (1, 1, 1, 3, 3, 1),
}


@dataclass(frozen=True)
class _BlockCase:
    """What a block is given, and in words what is special about it. `whole`: all sums
    are exact, so ties are ties.
    """

    given: str
    x: Array
    weight: Array
    bias: Array
    whole: bool

    def reference(self) -> dict[str, Array]:
        """Pooled and choice by torch in float64, and pooled after common mistakes."""
        x, weight, bias = (
            torch.from_numpy(a).double() for a in (self.x, self.weight, self.bias)
        )
        sums = functional.conv2d(x, weight, bias)
        pooled, index = functional.max_pool2d(sums.relu(), 2, return_indices=True)
        cell = index // sums.shape[3] % 2 * 2 + index % sums.shape[3] % 2
        cell[pooled <= 0] = _BLOCKED
        turned = functional.max_pool2d(
            functional.conv2d(x, weight.flip(2, 3), bias).relu(), 2
        )
        bare = functional.max_pool2d(functional.conv2d(x, weight).relu(), 2)
        late = bare + bias[:, None, None]
        tensors = {
            "pooled": pooled,
            "choice": cell.byte(),
            "turned": turned,
            "bare": bare,
            "late": late,
        }
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def gradients(self, grad_pooled: Array) -> dict[str, Array]:
        """Gradients by torch in float64, those of weight and bias image by image."""
        images = []
        for image, back in zip(self.x, grad_pooled, strict=True):
            inputs = [
                torch.from_numpy(a.astype(float)).requires_grad_()
                for a in (image[None], self.weight, self.bias)
            ]
            pooled = functional.max_pool2d(
                functional.conv2d(inputs[0], inputs[1], inputs[2]).relu(), 2
            )
            grad_x, *others = torch.autograd.grad(
                pooled, inputs, torch.from_numpy(back[None].astype(float))
            )
            images.append([part.numpy() for part in (grad_x[0], *others)])
        names = ("grad_x", "grad_weights", "grad_biases")
        return {
            name: np.stack(parts)
            for name, parts in zip(names, zip(*images, strict=True), strict=True)
        }


def _block(
    label: str,
    shape: tuple[int, ...],
    *,
    dtype: str = "float32",
    whole: bool = True,
    seed: int = 0,
) -> _BlockCase:
    images, channels, outputs, height, width, side = shape
    draw = np.random.default_rng(seed)

    def numbers(*sizes: int) -> Array:
        return np.ascontiguousarray(
            draw.integers(-2, 3, sizes) if whole else draw.normal(size=sizes), dtype
        )

    x = numbers(images, channels, height, width)
    return _BlockCase(
        label, x, numbers(outputs, channels, side, side), numbers(outputs), whole
    )


def _blocks() -> Iterator[_BlockCase]:
    for seed, (label, shape) in enumerate(_SHAPES.items()):
        block = _block(label, shape, seed=seed)
        if label == _FAR_APART:
            block.x[-1] *= 100
        yield block
    for dtype in ("float32", "float64"):
        yield _block(
            f"fractions in {dtype}",
            (1, 6, 2, 9, 8, 5),
            dtype=dtype,
            whole=False,
            seed=9,
        )


def forward(answer: object) -> str:
    """The fused forward kernel: as Python at awkward sizes, then compiled."""
    plain = _plain(answer, "x, weight, bias, pooled, choice")
    for block in _blocks():
        _judge_forward(plain, block)
    _judge_compiled(answer, _judge_forward)
    return (
        "Right at even and odd sizes, with ties, in float32 and float64, and compiled"
        " for several threads."
    )


def _plain(answer: object, parameters: str) -> Callable[..., Any]:
    """The answer as plain Python with a prange that is watched; NotYet for no function,
    Todo for a stub.
    """
    fn = getattr(answer, "py_func", answer)
    if not inspect.isfunction(fn):
        raise NotYet(
            f"Expected a function with @numba.njit, got {brief_repr(answer)}. Pass its"
            " name without brackets."
        )
    kernel(fn, parameters)
    return _watched(fn, _WatchedNumba())


def _watched(fn: Any, watched: _WatchedNumba) -> Callable[..., Any]:
    """The function, and those compiled ones that it calls, as plain Python with that
    prange.
    """
    names: dict[str, Any] = {
        name: watched for name, value in fn.__globals__.items() if value is numba
    }
    for name in set(fn.__code__.co_names) & fn.__globals__.keys():
        if (
            inspect.isfunction(called := getattr(fn.__globals__[name], "py_func", None))
            and called is not fn
        ):
            names[name] = _watched(called, watched)
    for part in ("prange", "get_thread_id", "get_num_threads"):
        original = getattr(numba, part)
        names |= {
            name: getattr(watched, part)
            for name, value in fn.__globals__.items()
            if value is original
        }
    return FunctionType(
        fn.__code__,
        fn.__globals__ | names,
        fn.__name__,
        fn.__defaults__,
        fn.__closure__,
    )


class _WatchedNumba:
    """Numba, but its prange takes one index after the other, each from the state in
    which the loop began.

    NotYet where two of them write to the same element of an array that was there
    before: their threads would race.
    """

    def __init__(self) -> None:
        self._thread = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(numba, name)

    def get_num_threads(self) -> int:
        return _WATCHED_THREADS

    def get_thread_id(self) -> int:
        return self._thread

    def prange(self, *bounds: int) -> Iterator[int]:
        if self._thread >= 0:  # only the outermost is parallel
            yield from range(*bounds)
            return
        shared = {
            name: value
            for name, value in sys._getframe(1).f_locals.items()
            if isinstance(value, np.ndarray)
        }
        began, ends = (
            {name: array.copy() for name, array in shared.items()} for _ in range(2)
        )
        written = {name: np.zeros(array.shape, bool) for name, array in shared.items()}
        for self._thread, index in enumerate(range(*bounds)):
            yield index
            for name, array in shared.items():
                now = (array != began[name]) & ~(
                    np.isnan(array) & np.isnan(began[name])
                )
                if (twice := now & written[name]).any():
                    raise NotYet(
                        f"{name}{_first(twice)} is written for more than one index of"
                        " prange, and their threads run at the same time: make such an"
                        " array inside the body of prange."
                    )
                written[name] |= now
                ends[name][now], array[now] = array[now], began[name][now]
        self._thread = -1
        for name, array in shared.items():
            array[written[name]] = ends[name][written[name]]


def _judge_compiled(answer: object, judge: Callable[..., None]) -> None:
    if not hasattr(answer, "py_func"):
        raise NotYet(
            "Right, but not compiled: Python would need minutes. Put"
            " @numba.njit(parallel=True) above it."
        )
    judge(
        answer,
        _block("64 images of SimpleCNN, compiled", (64, 3, 6, 32, 32, 5), seed=21),
    )
    judge(
        answer,
        _block("float64, compiled", (2, 2, 3, 9, 8, 3), dtype="float64", seed=22),
    )


def _judge_forward(fn: Any, block: _BlockCase) -> None:
    wanted = block.reference()
    outputs = {
        "pooled": np.full(wanted["pooled"].shape, np.nan, block.x.dtype),
        "choice": np.full(wanted["pooled"].shape, 9, np.uint8),
    }
    where = f"With {block.given}"
    inputs = {"x": block.x, "weight": block.weight, "bias": block.bias}
    got = _results(fn, where, inputs, outputs)
    pooled = got["pooled"]
    choice = got["choice"]
    if np.isnan(pooled).any():
        raise NotYet(
            f"{where}: pooled{_first(np.isnan(pooled))} was never written, or is not a"
            " number."
        )
    if (pooled < 0).any():
        raise NotYet(
            f"{where}: pooled{_first(pooled < 0)} is {pooled.min():.6g}, and ReLU"
            " leaves nothing below 0."
        )
    why = (
        "Take the first wrong place and work it out by hand: which pixels should it"
        " see?"
    )
    if not _off(pooled, wanted["late"]).any():
        why = "The bias belongs to the sums, before ReLU cuts them off."
    elif not _off(pooled, wanted["bare"]).any():
        why = "The bias is missing: each sum begins with bias[out]."
    elif not _off(pooled, wanted["turned"]).any():
        why = (
            "The weights are turned round: weight [dy, dx] belongs to the pixel dy rows"
            " down and dx to the right."
        )
    _compare(where, "pooled", pooled, wanted["pooled"], why)
    if block.whole and (wrong := choice != wanted["choice"]).any():
        chosen = choice[wrong][0]
        right = wanted["choice"][wrong][0]
        why = (
            "ReLU let nothing through there: that is 4."
            if right == _BLOCKED
            else (
                "2 * row + column of the largest of the four; of equal ones the first,"
                " as in torch."
            )
        )
        raise NotYet(
            f"{where}: choice{_first(wrong)} is {chosen}, expected {right}. {why}"
        )


def backward(answer: object) -> str:
    """The fused backward kernel: as Python at awkward sizes, then compiled."""
    plain = _plain(
        answer, "grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases"
    )
    for block in _blocks():
        _judge_backward(plain, block)
    unneeded = "nobody who needs grad_x (it has no images)"
    _judge_backward(
        plain, _block(unneeded, next(iter(_SHAPES.values()))), wants_x=False
    )
    _judge_compiled(answer, _judge_backward)
    return (
        "Right at even and odd sizes, with and without grad_x, in float32 and float64,"
        " and compiled."
    )


def _judge_backward(fn: Any, block: _BlockCase, *, wants_x: bool = True) -> None:
    made = block.reference()
    draw = np.random.default_rng(5)
    gradient = (
        draw.integers(1, 4, made["pooled"].shape)
        if block.whole
        else draw.normal(size=made["pooled"].shape)
    )
    gradient = np.ascontiguousarray(gradient, block.x.dtype)
    wanted = block.gradients(gradient)
    outputs = {
        name: np.zeros(array.shape, block.x.dtype) for name, array in wanted.items()
    }
    if not wants_x:
        outputs["grad_x"] = outputs["grad_x"][:0]
    where = f"With {block.given}"
    inputs = {
        "grad_pooled": gradient,
        "choice": made["choice"],
        "x": block.x,
        "weight": block.weight,
    }
    got = _results(fn, where, inputs, outputs)
    unmasked = not _off(got["grad_biases"], gradient.astype(float).sum((2, 3))).any()
    for name in ("grad_biases", "grad_weights", *["grad_x"] * wants_x):
        _compare(
            where,
            name,
            got[name],
            wanted[name],
            _UNMASKED if unmasked else _WHY_BACKWARD[name],
        )


_UNMASKED = "Where choice is 4, ReLU let nothing through, and no gradient comes back."
_WHY_BACKWARD = {
    "grad_biases": (
        "A bias was added at every place: its gradient is the sum of all that come"
        " back, image by image."
    ),
    "grad_weights": (
        "The sum over all places of the gradient there times the pixel that this weight"
        " met."
    ),
    "grad_x": (
        "A pixel lay under several weights and gave to several outputs: add weight"
        " times gradient for each."
    ),
}


def _results(
    fn: Any, where: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> dict[str, Array]:
    """What the kernel leaves in copies of `outputs`."""
    before = {name: array.copy() for name, array in inputs.items()}
    got = {name: array.copy() for name, array in outputs.items()}
    try:
        fn(*inputs.values(), *got.values())
    except NotYet as raced:
        raise NotYet(f"{where}: {raced}") from raced
    except (Exception, SystemExit) as error:
        raise NotYet(
            f"{where}: it raised {type(error).__name__}:"
            f" {cut(str(error), _LONGEST_ERROR)}"
        ) from error
    if changed := [
        name
        for name, array in inputs.items()
        if not np.array_equal(array, before[name])
    ]:
        raise NotYet(f"{where}: it has changed {changed[0]}, which others still need.")
    return got


def _compare(where: str, name: str, got: Array, wanted: Array, why: str) -> None:
    if not (wrong := _off(got, wanted)).any():
        return
    # whole sums are rounded where they are large, and fractions anywhere
    whole = np.array_equal(wanted, np.rint(wanted))
    room = np.abs(wanted) / 512 if whole else 0.01 * np.abs(wanted).max()
    if (np.abs(got - wanted) <= room).all():
        why = (
            f"Close, but not to the precision of {got.dtype}: of which type is the sum?"
        )
    value = float(got[wrong][0])
    right = float(wanted[wrong][0])
    digits = 6 if f"{value:.6g}" != f"{right:.6g}" else 12
    raise NotYet(
        f"{where}: {name}{_first(wrong)} is {value:.{digits}g}, expected"
        f" {right:.{digits}g}. {why}"
    )


def _off(got: Array, wanted: Array) -> Array:
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    return ~np.isclose(got, wanted, rtol=0.0, atol=_TOLERANCE[str(got.dtype)] * scale)


def _first(wrong: Array) -> str:
    return f"[{', '.join(str(int(i)) for i in np.argwhere(wrong)[0])}]"


CHECKS = {"06.4": block_bytes, "06.5": forward, "06.6": backward, "06.7": operator}
