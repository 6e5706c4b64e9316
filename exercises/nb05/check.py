"""Checks of notebook 05, kernels without the ceremony. Those that read compiled code
are in compiled.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

from exercises.nb05.compiled import best_cap, single_precision
from exercises.nb05.cupy_stand_in import StandInArray, StandInModule, cupy_here
from exercises.nb05.reduction import Reduction
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, mapping

MOST_LAUNCHES = 40
_ROUNDED = (
    "Close, but something rounds to float: a cast, sqrtf, a number with an f. The"
    " numbers here are double."
)


@np.errstate(all="ignore")  # what an overflow leads to is judged, and explained
def cross_entropy(answer: object) -> str:
    """The loss on NumPy, on a stand-in for CuPy, and on CuPy where there is a GPU."""
    draw = np.random.default_rng(501)
    fn = function(answer)
    for rows, classes, scale, lower in (
        (1, 10, 1.0, 0),
        (7, 3, 1.0, 0),
        (129, 10, 3.0, 0),
        (64, 10, 1000.0, 5000),
    ):
        logits = (scale * draw.standard_normal((rows, classes))).astype(np.float32)
        logits[::2] -= lower  # whole rows of negative numbers: 0 isn't their largest
        labels = draw.integers(0, classes, rows)
        negative = f", in every second row {lower:,} lower" * bool(lower)
        case = (
            f"{rows} row{'s' * (rows != 1)} of {classes} logits up to about {scale:g}"
            f"{negative}, with"
        )
        expected = float(
            functional.cross_entropy(
                torch.from_numpy(logits).double(), torch.from_numpy(labels)
            )
        )
        mine = logits.copy()
        _judge_loss(call(fn, mine, labels.copy(), np), expected, f"{case} NumPy")
        if not np.array_equal(mine, logits):
            raise NotYet(
                f"For {case} NumPy: right, but it has changed the caller's logits (-="
                " and out= work in place). Make a new array."
            )
        _judge_on_stand_in(fn, logits, labels, expected, f"{case} a stand-in for CuPy")
        if (cupy := cupy_here()) is not None:
            loss = call(fn, cupy.asarray(logits), cupy.asarray(labels), cupy)
            if not isinstance(loss, cupy.ndarray):
                raise NotYet(
                    f"On the GPU it returned {type(loss).__name__}: leave the result"
                    " there."
                )
            _judge_loss(loss.get(), expected, f"{case} CuPy")
    return (
        "Right for 1 to 129 rows, without overflow for large logits; it makes its"
        " arrays with xp and stays there."
    )


def _judge_loss(loss: Any, expected: float, case: str) -> None:
    if np.size(loss) == 1 and not math.isfinite(
        number := np.asarray(loss, float).item()
    ):
        raise NotYet(
            f"For {case}: {number}. exp overflows or log(0) comes up: subtract each"
            " row's largest, and take the log of the sum only."
        )
    value = as_number(loss, "(no unit)", case)
    if math.isclose(value, expected, rel_tol=1e-5, abs_tol=1e-6):
        return
    why = (
        "It is the mean over the rows of log(sum(exp(logits))) minus the logit at the"
        " label."
    )
    if math.isclose(value, expected, rel_tol=5e-4):
        why = "Close: is something rounded to float16, or added to the sum?"
    raise NotYet(f"For {case}: {value:.8g}, expected {expected:.8g}. {why}")


def _judge_on_stand_in(
    fn: Any, logits: Any, labels: Any, expected: float, case: str
) -> None:
    xp = StandInModule()
    loss = call(fn, xp.wrap(logits.copy()), xp.wrap(labels.copy()), xp)
    if xp.fetches:
        raise NotYet(
            f"For {case}: it fetched numbers from the GPU {xp.fetches}"
            f" time{'s' * (xp.fetches != 1)} (float(), .item(), .get(), if). Each makes"
            " the CPU wait. Compute with xp's arrays alone."
        )
    if not isinstance(loss, StandInArray):
        raise NotYet(f"For {case}: expected an array of xp's, got {brief_repr(loss)}.")
    if xp.copies:  # CuPy takes them, and copies them in each call
        raise NotYet(
            f"For {case}: it indexes with a range or a list. Those are in main memory,"
            " and each call sends them to the GPU. Make the indices there, with"
            " xp.arange."
        )
    if xp.launches > MOST_LAUNCHES:
        raise NotYet(
            f"For {case}: {xp.launches} operations, each of them a kernel launch on a"
            " GPU. A loop over the rows? Use axis=1 and an array of indices."
        )
    _judge_loss(loss.get(), expected, case)


def distance(answer: object) -> str:
    """The four expressions, compiled, and worked out in the order of a
    GPU's threads.
    """
    keys = {
        "map": "of x and y",
        "reduce": "of a and b",
        "post": "z = ... of a",
        "identity": "a number",
    }
    parts = Reduction(mapping(answer, keys))
    draw = np.random.default_rng(504)
    for n in (1, 5, 0, 700, 1023):
        x, y = draw.standard_normal((2, n))
        expected = float(np.sqrt(((x - y) ** 2).sum()))
        got = parts.post(total := parts.tree(x, y))
        if not math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12):
            hint = (
                _ROUNDED * math.isclose(got, expected, rel_tol=1e-5)
                or parts.advice()
                or _distance_hint(parts, x, y, total, expected)
            )
            raise NotYet(
                f"For {n} pair{'s' * (n != 1)} of numbers: {got:.10g}, expected"
                f" {expected:.10g}. {hint}"
            )
    return (
        "Right for 0 to 1,023 pairs, in the order in which the threads of a block meet."
    )


def _distance_hint(
    parts: Reduction, x: Any, y: Any, total: float, expected: float
) -> str:
    if math.isnan(got := parts.post(total)):
        negative = " A sum of squares is never negative." * (total < 0)
        return (
            f"post gets {total:.6g} and makes NaN of it, which is no number.{negative}"
        )
    if len(x) > 1 and math.isclose(
        parts.post(parts.left_to_right(x, y)), expected, rel_tol=1e-5, abs_tol=1e-12
    ):
        return (
            "Taken one after the other it would be right. But threads meet in pairs: a"
            " and b can both be results of many pairs already, so what is done to one"
            " pair belongs into map. And every thread starts at identity."
        )
    if math.isclose(got, float(np.abs(x - y).sum()), rel_tol=1e-5):
        return (
            "That is the sum of the distances of the single pairs: the root comes once,"
            " at the end."
        )
    if math.isclose(got, expected**2, rel_tol=1e-5):
        return "That is its square."
    return (
        "map makes a number of one pair, reduce makes one of two, post comes once,"
        " identity changes nothing."
    )


def rectified(answer: object) -> str:
    """The caller's own array has changed, and the tensor returned lies at the same
    address.
    """
    fn = function(answer)
    for case, array in _arrays(np.random.default_rng(507)).items():
        before = array.copy()
        # what every array library has in common, and nothing else
        dlpack = SimpleNamespace(
            __dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__
        )
        passed = dlpack if "another library" in case else array
        with (
            mock.patch.object(np, "from_dlpack", _refuse)
            if passed is dlpack
            else nullcontext()
        ):
            tensor = call(fn, passed)
        if not isinstance(tensor, torch.Tensor):
            raise NotYet(
                f"For {case}: expected a torch tensor, got {brief_repr(tensor)}."
            )
        if tensor.data_ptr() != array.__array_interface__["data"][0]:
            raise NotYet(
                f"For {case}: the tensor lies at another address, so something was"
                " copied."
            )
        if not np.array_equal(tensor.numpy(), np.maximum(before, 0)):
            raise NotYet(
                f"For {case}: the tensor isn't the array with its negative numbers set"
                " to 0."
            )
        if not np.array_equal(array, np.maximum(before, 0)):
            raise NotYet(
                f"For {case}: the tensor is right, but the array that was passed has"
                " not changed."
            )
    return (
        "Right for contiguous and strided arrays, for integers, and for an array of"
        " another library: nothing copied."
    )


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise BufferError("NumPy takes no array that is on a GPU; torch does")


def _arrays(draw: np.random.Generator) -> dict[str, Any]:
    table = draw.standard_normal((6, 8)).astype(np.float32)
    return {
        "seven float32 numbers": np.array(
            [-3, -1e-30, -0.0, 0, 1e-30, 0.5, 3], np.float32
        ),
        "every second column of a table": table[:, ::2],
        "a transposed table": draw.standard_normal((3, 5)).T,
        "integers": draw.integers(-9, 9, 11),
        "an array of another library": draw.standard_normal(5),
    }


CHECKS = {
    "05.1": cross_entropy,
    "05.4": distance,
    "05.5": single_precision,
    "05.6": best_cap,
    "05.7": rectified,
}
