"""The check of exercise 07.6: a training script runs under watch, and the faults that remain leave their traces.

The script trains on drawn images, with sizes that it can't know. First its result counts: the weights must be those of
the same epoch in a plain script, and loss and accuracy too. Then what was seen while it ran is judged: the operators,
their numbers' type, how many images went through the network at a time and in all, how often the host asked for a
value, whether autograd checked itself, and whether single images were handled. So a fault is found whatever the others
are, and however it was mended. No clock is read.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from exercises.nb07 import script
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function
from labkit.train.data import digits
from labkit.train.models import SimpleCNN

_CHANNELS, _SIDE = 3, 32
_PIXELS = _CHANNELS * _SIDE**2
_SIZES = ((44, 6), (23, 5))  # images and batch; the last batch is smaller, and holds more than one
_KEYS = ("loss", "accuracy")
# of the largest change of a weight: float64 against float32 gives 1e-5, another batch 1e-1
_SAME_WEIGHTS = 2e-3
_SAME_LOSS = 1e-4
# Every fourth step may tell its loss, and the end may read two results.
_READS_A_STEP, _READS_AT_END = 0.25, 2
_CONVOLUTIONS = ("aten::convolution", "aten::conv2d")  # the second is what inference_mode shows
_READS = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::is_nonzero")
_READING_METHODS = ("tolist", "numpy", "__array__", "cpu")


@dataclass
class _Seen:
    """What was seen while a script ran; counts of images where nothing else is said."""

    forward: list[int] = field(default_factory=list)  # images in each pass through the network
    trained: list[int] = field(default_factory=list)  # images in each backward pass
    reads: int = 0  # moments at which the host asked for a value
    checked: bool = False  # autograd's anomaly mode was on
    wide: int = 0  # convolutions on float64
    singles: int = 0  # pieces of work on one image's pixels before the network
    listed: int = 0  # images turned into Python lists
    news: bool = False  # a pass has run since the last read

    def read(self) -> None:
        """Several reads after the same pass are one wait."""
        self.reads += self.news
        self.news = False


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own, untyped
    """Sees every operator of this thread, forwards and backwards."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note what it is."""
        result = func(*args, **(kwargs or {}))
        seen, name = self.seen, func._schema.name
        backward = torch._C._current_graph_task_id() != -1
        seen.checked |= torch.is_anomaly_enabled()
        if name in _CONVOLUTIONS and not backward:
            seen.wide += args[0].dtype == torch.float64
            if args[0].shape[1] == _CHANNELS:
                seen.forward.append(len(args[0]))
                seen.news = True
        elif name == "aten::convolution_backward" and args[1].shape[1] == _CHANNELS:
            seen.trained.append(len(args[1]))
        elif name in _READS and not backward:  # anomaly mode reads in backward: that is another fault
            seen.read()
        elif not backward and not func.is_view and isinstance(result, Tensor) and result.numel() == _PIXELS:
            seen.singles += 1
        return result


class _Methods(TorchFunctionMode):
    """Sees what no operator tells of: methods that hand a tensor's values to the host, and pixels from Python lists."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run it, and note a reading method or a list that becomes a tensor."""
        # the device that a script is given is "cpu:0"; "cpu" without a number is a way back to the host
        home = getattr(func, "__name__", "") == "to" and any(str(arg) == "cpu" for arg in args[1:])
        if home or getattr(func, "__name__", "") in _READING_METHODS:
            self.seen.read()
        result = func(*args, **(kwargs or {}))
        if func is torch.tensor and isinstance(args[0], list | tuple):
            self.seen.listed += result.numel() // _PIXELS
        return result


def _watched_array(images: NDArray[np.uint8], seen: _Seen) -> NDArray[np.uint8]:
    """The images as an array that notes when one of them is taken out or made a list."""

    class Watched(np.ndarray[Any, Any]):
        def __array_finalize__(self, base: object) -> None:
            seen.singles += self.size == _PIXELS

        def tolist(self) -> Any:
            seen.listed += self.size // _PIXELS
            return super().tolist()

    return images.view(Watched)


@dataclass(frozen=True)
class _Trial:
    """What a script is given, and what the plain one makes of it."""

    model: nn.Module
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    batch: int
    lr: float

    def run(self, fn: Callable[..., Any], seen: _Seen) -> tuple[nn.Module, Any]:
        """The trained model and what the script returned, watched."""
        model = copy.deepcopy(self.model)
        images = _watched_array(self.images.copy(), seen)
        seen.singles = 0
        with _as_before(), _Methods(seen), _Operators(seen):
            result = call(fn, model, images, self.labels.copy(), torch.device("cpu", 0), self.batch, self.lr)
        return model, result

    @property
    def given(self) -> str:
        """The sizes in words."""
        return f"{len(self.images)} images in batches of {self.batch}"


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """One thread inside; afterwards, undo the switches that a script may leave set, or every later cell would pay."""
    anomaly, dtype, grad, threads = (
        torch.is_anomaly_enabled(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
    )  # fmt: skip
    torch.set_num_threads(1)  # the images are few: a second thread would be in the way
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(anomaly)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)


def mended_script(answer: object) -> str:
    """The mended training script; NotYet says how many faults remain, and which traces they leave."""
    trials = list(_trials(random.Random(2707)))
    first = trials[0]
    with _as_before():
        fn = function(answer, copy.deepcopy(first.model), first.images[:4], first.labels[:4], "cpu", 2, first.lr)
    found: dict[str, str] = {}
    for trial in trials:
        seen = _Seen()
        model, result = trial.run(fn, seen)
        _judge_work(seen, trial)
        with _as_before():
            _judge_learning(model, result, trial)
        found = dict(_traces(seen, trial)) | found
    if found:
        count = "1 fault remains" if len(found) == 1 else f"{len(found)} faults remain"
        listed = "\n".join(f"({i}) {words}" for i, words in enumerate(found.values(), start=1))
        raise NotYet(f"It learns the same. {count} of 6; the trace of each:\n{listed}")
    return "None of the six faults remains, and it learns the same: equal weights, loss and accuracy."


def _trials(draw: random.Random) -> Iterator[_Trial]:
    pixels, labels = digits(size=_SIDE, channels=_CHANNELS)
    for images, batch in _SIZES:
        rows = torch.tensor(draw.sample(range(len(pixels)), images))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw.randrange(10**6))
            model = SimpleCNN()
        as_bytes = (pixels[rows] * 255).round().to(torch.uint8).numpy()
        yield _Trial(model, as_bytes, labels[rows].numpy(), batch, draw.uniform(0.02, 0.06))


def _judge_work(seen: _Seen, trial: _Trial) -> None:
    """Whether all images were trained on and evaluated, in batches of the size asked for."""
    images, trained = len(trial.images), sum(seen.trained)
    if not seen.forward:
        raise NotYet("No image went through the model in this thread. Train the model that the function is given.")
    if trained != images:
        raise NotYet(f"For {trial.given}: {trained} images were trained on; one epoch has {images}, each once.")
    if max(seen.trained) > trial.batch:
        raise NotYet(
            f"For {trial.given}: {max(seen.trained)} images went through the network together. Larger batches are "
            "another training with fewer steps: keep the batch that the function is given."
        )
    if (evaluated := sum(seen.forward) - trained) < images:
        raise NotYet(
            f"For {trial.given}: {evaluated} images were classified besides the training. The accuracy at the end "
            f"needs all {images}, with the final weights."
        )


def _judge_learning(model: nn.Module, result: object, trial: _Trial) -> None:
    """Whether the weights, the loss and the accuracy are those of the same epoch in a plain script."""
    if not isinstance(result, dict) or set(result) != set(_KEYS):
        raise NotYet(f"Expected a dict with the keys loss and accuracy, got {brief_repr(result)}.")
    right = copy.deepcopy(trial.model)
    expected = script.train(right, trial.images, trial.labels, "cpu", trial.batch, trial.lr)
    off = _distance(model, right) / _distance(trial.model, right)
    if not off <= _SAME_WEIGHTS:
        raise NotYet(
            f"For {trial.given}: it learns something else. A weight differs by {off:.2g} of what an epoch changes. The "
            "same images in the same order, the mean loss of each batch, the same optimiser, the same rate?"
        )
    for key in _KEYS:
        value, wanted = as_number(result[key], "(no unit)", f"{key}, {trial.given}"), expected[key]
        room = _SAME_LOSS * wanted if key == "loss" else 0.5 / len(trial.images)
        if not math.isclose(value, wanted, rel_tol=0, abs_tol=room):
            raise NotYet(f"For {trial.given}: {key} is {value:.6g}, expected {wanted:.6g}. {_WHY[key]}")


_CHECKED = "backward runs operators that no line asks for: isnan, any and a read after each. Autograd checks itself."
_SINGLES = (
    "before the network sees them, pixels are handled one image after the other, or become Python lists on their way."
)
_WHY = {
    "loss": "It is the mean over the images, each before its update; the last batch has fewer of them.",
    "accuracy": "It is the share of all images that the final weights classify right, 0 to 1.",
}


def _distance(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between two models' weights."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a.detach().double().cpu() - b.detach().double()).abs().max()) for a, b in pairs)


def _traces(seen: _Seen, trial: _Trial) -> Iterator[tuple[str, str]]:
    """(fault, the trace that it leaves) for each fault that was seen."""
    images, steps = len(trial.images), math.ceil(len(trial.images) / trial.batch)
    if seen.checked:
        yield "anomaly mode", _CHECKED
    if (passes := len(seen.trained)) > steps:
        sizes = f"{passes} backward passes for {steps} steps, of {min(seen.trained)} images at the least"
        yield "one by one", f"{sizes}: many small operators where few large ones would do."
    elif 2 * (len(seen.forward) - passes) > sum(seen.forward) - images:
        single = f"{len(seen.forward) - passes} passes classify {sum(seen.forward) - images} images"
        yield "one by one", f"{single}: many small operators where few large ones would do."
    if seen.wide:
        yield "float64", "convolutions calculate on numbers of 8 bytes."
    if (evaluated := sum(seen.forward) - images) > 1.5 * images:
        yield "evaluation", f"{evaluated / images:.3g} images go forward without backward for each one trained on."
    if seen.reads > _READS_AT_END + _READS_A_STEP * steps:
        yield "reading back", f"the host asked for a value at {seen.reads} moments in {steps} steps, and waited."
    if max(seen.singles, 2 * seen.listed) >= images:
        yield "preparation", _SINGLES
