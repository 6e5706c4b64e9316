"""Checks of notebook 06, a fused CNN block against the library. The other checks are in operator06."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exercises import traced_kernels
from exercises.nb06.operator import block_bytes, operator
from labkit.core.display import brief_repr, cut
from labkit.lesson.checks import NotYet

Array = NDArray[Any]
_LONGEST_ERROR = 400
_REPEATS = 20  # of two cores' race, one run in some ten comes out wrong
_REPEATS_S = 1.0
CUT = 4  # choice where ReLU let nothing through
_TOLERANCE = {"float32": 1e-5, "float64": 1e-12}  # of the largest value: sums of some hundred terms
_SHAPES = (  # images, channels, outputs, height, width, kernel
    ((2, 2, 3, 8, 8, 3), "8 x 8 pixels and a kernel of 3"),
    ((1, 3, 2, 10, 7, 3), "10 x 7 pixels and a kernel of 3: 8 x 5 sums, the last column of which is not pooled"),
    ((2, 1, 2, 7, 9, 2), "7 x 9 pixels and a kernel of 2"),
    ((3, 2, 1, 4, 6, 3), "a single row of pooled places"),
    ((1, 1, 1, 3, 3, 1), "3 x 3 pixels and a kernel of 1"),
)


@dataclass(frozen=True)
class _Block:
    """What a block is given, and in words what is special about it. `whole`: all sums are exact, so ties are ties."""

    given: str
    x: Array
    weight: Array
    bias: Array
    whole: bool

    def reference(self) -> dict[str, Array]:
        """What torch makes of it in float64: sums, pooled, choice."""
        import torch
        from torch.nn import functional

        x, weight, bias = (torch.from_numpy(a).double() for a in (self.x, self.weight, self.bias))
        sums = functional.conv2d(x, weight, bias)
        pooled, index = functional.max_pool2d(sums.relu(), 2, return_indices=True)
        cell = index // sums.shape[3] % 2 * 2 + index % sums.shape[3] % 2
        cell[pooled <= 0] = CUT
        turned = functional.conv2d(x, weight.flip(2, 3), bias)
        late = functional.conv2d(x, weight).relu() + bias[:, None, None]
        others = {"turned": functional.max_pool2d(turned.relu(), 2), "late": functional.max_pool2d(late, 2)}
        return {"pooled": pooled.numpy(), "choice": cell.numpy(), **{k: v.numpy() for k, v in others.items()}}


def _block(shape: tuple[int, ...], given: str, *, dtype: str = "float32", whole: bool = True, seed: int = 0) -> _Block:
    images, channels, outputs, height, width, kernel = shape
    draw = np.random.default_rng(seed)

    def numbers(*sizes: int) -> Array:
        found = draw.integers(-2, 3, sizes) if whole else draw.normal(size=sizes)
        return np.ascontiguousarray(found, dtype)

    x = numbers(images, channels, height, width)
    return _Block(given, x, numbers(outputs, channels, kernel, kernel), numbers(outputs), whole)


def _blocks() -> Iterator[_Block]:
    for seed, (shape, given) in enumerate(_SHAPES):
        yield _block(shape, given, seed=seed)
    for dtype in ("float32", "float64"):
        yield _block((1, 6, 2, 9, 8, 5), f"fractions in {dtype}", dtype=dtype, whole=False, seed=9)


def forward(answer: object) -> str:
    """The fused forward kernel: as Python at awkward sizes, then compiled."""
    plain = _plain(answer, ("x", "weight", "bias", "pooled", "choice"))
    for block in _blocks():
        _judge_forward(plain, block)
    _needs_compiling(answer)
    for block in _large():
        _judge_forward(answer, block, repeats=_REPEATS)
    return "Right at even and odd sizes, with ties, in float32 and float64, and compiled for several threads."


def _large() -> Iterator[_Block]:
    yield _block((64, 3, 6, 32, 32, 5), "64 images of SimpleCNN, compiled", seed=21)
    yield _block((2, 2, 3, 9, 8, 3), "float64, compiled", dtype="float64", seed=22)


def _plain(answer: object, parameters: tuple[str, ...]) -> Callable[..., Any]:
    """The answer's Python function, which runs without a compiler; NotYet for no function, Todo while it has dots."""
    fn = getattr(answer, "py_func", answer)
    if not inspect.isfunction(fn):
        raise NotYet(f"Expected a function with @numba.njit, got {brief_repr(answer)}. Pass its name without brackets.")
    traced_kernels.kernel(fn, parameters=parameters)
    return fn


def _needs_compiling(answer: object) -> None:
    if not hasattr(answer, "py_func"):
        raise NotYet("Right, but not compiled: Python would need minutes. Put @numba.njit(parallel=True) above it.")


def _judge_forward(fn: Any, block: _Block, *, repeats: int = 0) -> None:
    wanted = block.reference()
    pooled = np.full(wanted["pooled"].shape, np.nan, block.x.dtype)
    choice = np.full(pooled.shape, 9, np.uint8)
    where = f"With {block.given}"
    inputs = {"x": block.x, "weight": block.weight, "bias": block.bias}
    _steady(fn, where, inputs, (pooled, choice), repeats)
    _run(fn, where, inputs, (pooled, choice))
    if np.isnan(pooled).any():
        raise NotYet(f"{where}: pooled{_first(np.isnan(pooled))} was never written, or is not a number.")
    if (wrong := _off(pooled, wanted["pooled"])).any():
        at = _first(wrong)
        values = _two(_at(pooled, wrong), _at(wanted["pooled"], wrong))
        raise NotYet(f"{where}: pooled{at} is {values}. {_why_forward(pooled, wanted)}")
    if block.whole and (wrong := choice != wanted["choice"]).any():
        found, right = int(_at(choice, wrong)), int(_at(wanted["choice"], wrong))
        why = (
            "ReLU let nothing through there: that is 4."
            if right == CUT
            else "2 * row + column of the largest of the four; of equal ones the first, as in torch."
        )
        raise NotYet(f"{where}: choice{_first(wrong)} is {found}, expected {right}. {why}")


def _why_forward(pooled: Array, wanted: Mapping[str, Array]) -> str:
    if not _off(pooled, wanted["late"]).any():
        return "The bias belongs to the sums, before ReLU cuts them off."
    if not _off(pooled, wanted["turned"]).any():
        return "The weights are turned round: weight [dy, dx] belongs to the pixel dy rows down and dx to the right."
    if np.abs(pooled - wanted["pooled"]).max() < 0.01 * np.abs(wanted["pooled"]).max():
        return f"Close, but not to the precision of {pooled.dtype}: of which type is the sum?"
    return "Take the first wrong place and work it out by hand: which pixels should it see?"


def backward(answer: object) -> str:
    """The fused backward kernel: as Python at awkward sizes, then compiled."""
    names = ("grad_pooled", "choice", "x", "weight", "grad_x", "grad_weights", "grad_biases")
    plain = _plain(answer, names)
    for block in _blocks():
        _judge_backward(plain, block, wants_x=True)
    _judge_backward(plain, _block(_SHAPES[0][0], "nobody who needs grad_x (it has no images)"), wants_x=False)
    _needs_compiling(answer)
    for block in _large():
        _judge_backward(answer, block, wants_x=True, repeats=_REPEATS)
    return "Right at even and odd sizes, with and without grad_x, in float32 and float64, and compiled."


def _judge_backward(fn: Any, block: _Block, *, wants_x: bool, repeats: int = 0) -> None:
    made = block.reference()
    draw = np.random.default_rng(5)
    gradient = draw.integers(1, 4, made["pooled"].shape) if block.whole else draw.normal(size=made["pooled"].shape)
    gradient = np.ascontiguousarray(gradient, block.x.dtype)
    wanted = _gradients(block, gradient)
    shapes = {name: array.shape for name, array in wanted.items()}
    if not wants_x:
        shapes["grad_x"] = (0, *shapes["grad_x"][1:])
    got = {name: np.zeros(shape, block.x.dtype) for name, shape in shapes.items()}
    where = f"With {block.given}"
    choice = made["choice"].astype(np.uint8)
    inputs = {"grad_pooled": gradient, "choice": choice, "x": block.x, "weight": block.weight}
    _steady(fn, where, inputs, tuple(got.values()), repeats)
    _run(fn, where, inputs, tuple(got.values()))
    open_all = gradient.astype(float).sum((2, 3))
    for name in ("grad_biases", "grad_weights", *["grad_x"] * wants_x):
        if not (wrong := _off(got[name], wanted[name])).any():
            continue
        why = _WHY_BACKWARD[name]
        if name == "grad_biases" and not _off(got[name], open_all).any():
            why = "Where choice is 4, ReLU let nothing through, and no gradient comes back."
        elif np.abs(got[name] - wanted[name]).max() < 0.01 * np.abs(wanted[name]).max():
            why = f"Close, but not to the precision of {got[name].dtype}: of which type is the sum?"
        values = _two(_at(got[name], wrong), _at(wanted[name], wrong))
        raise NotYet(f"{where}: {name}{_first(wrong)} is {values}. {why}")


_WHY_BACKWARD = {
    "grad_biases": "A bias was added at every place: its gradient is the sum of all that come back, image by image.",
    "grad_weights": "The sum over all places of the gradient there times the pixel that this weight met.",
    "grad_x": "A pixel lay under several weights and gave to several outputs: add weight times gradient for each.",
}


def _gradients(block: _Block, gradient: Array) -> dict[str, Array]:
    """Gradients by torch in float64, those of weight and bias image by image."""
    import torch
    from torch.nn import functional

    found: dict[str, list[Array]] = {"grad_x": [], "grad_weights": [], "grad_biases": []}
    for image, back in zip(block.x, gradient, strict=True):
        given = [torch.from_numpy(a.astype(float)).requires_grad_() for a in (image[None], block.weight, block.bias)]
        pooled = functional.max_pool2d(functional.conv2d(given[0], given[1], given[2]).relu(), 2)
        parts = torch.autograd.grad(pooled, given, torch.from_numpy(back[None].astype(float)))
        for name, part in zip(found, (parts[0][0], *parts[1:]), strict=True):
            found[name].append(part.numpy())
    return {name: np.stack(parts) for name, parts in found.items()}


def _off(got: Array, wanted: Array) -> Array:
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    return ~np.isclose(got, wanted, rtol=0.0, atol=_TOLERANCE[str(got.dtype)] * scale)


def _first(wrong: Array) -> str:
    return f"[{', '.join(str(int(i)) for i in np.argwhere(wrong)[0])}]"


def _two(found: float, right: float) -> str:
    digits = 6 if f"{found:.6g}" != f"{right:.6g}" else 12
    return f"{found:.{digits}g}, expected {right:.{digits}g}"


def _steady(fn: Any, where: str, inputs: Mapping[str, Array], outputs: tuple[Array, ...], repeats: int) -> None:
    """Run the kernel again and again: whole numbers are summed exactly in any order, so every bit has to agree."""
    seen: set[bytes] = set()
    until = float("inf")
    for done in range(repeats):
        if done > 5 and time.perf_counter() > until:
            return
        fresh = tuple(array.copy() for array in outputs)
        _run(fn, where, inputs, fresh)
        seen.add(b"".join(array.tobytes() for array in fresh))
        if not done:  # the first run had to wait for the compiler
            until = time.perf_counter() + _REPEATS_S
        if len(seen) > 1:
            raise NotYet(
                f"{where}: run again, it gives other numbers. Do two threads share an array? What the body of prange "
                "writes to has to be made inside it."
            )


def _run(fn: Any, where: str, inputs: Mapping[str, Array], outputs: tuple[Array, ...]) -> None:
    """Call the reader's kernel; what it raises is told with the case, since it may be right for others."""
    before = {name: array.copy() for name, array in inputs.items()}
    try:
        fn(*inputs.values(), *outputs)
    except (Exception, SystemExit) as error:
        raise NotYet(f"{where}: it raised {type(error).__name__}: {cut(str(error), _LONGEST_ERROR)}") from error
    if changed := [name for name, array in inputs.items() if not np.array_equal(array, before[name])]:
        raise NotYet(f"{where}: it has changed {changed[0]}, which others still need.")


def _at(array: Array, wrong: Array) -> float:
    return float(array[tuple(np.argwhere(wrong)[0])])


CHECKS = {
    "06.4": block_bytes,
    "06.5": forward,
    "06.6": backward,
    "06.7": operator,
}
