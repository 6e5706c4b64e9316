"""The check of exercise 07.6: a training script runs under watch, and the faults that
remain leave their traces.

The script trains on drawn images, of sizes that it can't know. First its result counts:
weights, loss and accuracy must be those of one epoch of a plain script. Then the traces
are judged: the operators and their dtype, how many images went through the network at a
time and in all, how often the host asked for a value, whether autograd checked itself,
and whether single images were handled. So each fault is found whatever the others are,
and whatever replaced it. No clock is read.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from exercises.nb07 import slow_script
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, remaining
from labkit.measure.machine import threads
from labkit.train.data import digits
from labkit.train.models import SimpleCNN
from steptime import each_read

_CHANNELS = 3
_SIDE = 32
_PIXELS = _CHANNELS * _SIDE**2
# images and batch; the last batch is smaller, and holds more than one
_SIZES = ((44, 6), (23, 5))
# of the largest change of a weight: float64 against float32 gives 1e-5, another batch
# 1e-1
_SAME_WEIGHTS = 2e-3
_SAME_LOSS = 1e-4
# A script may read its loss in every fourth step, and two results at the end.
_READS_A_STEP = 0.25
_READS_AT_END = 2
# Of this step and of the two before it: a loss may be looked at later.
_GRAPHS = 3
# on an image before the network: four prepare it, and some prepare it again for the
# accuracy
_OPERATIONS = 12
# What inference_mode shows is included: there, composite operators stay whole.
_CONVOLUTIONS = ("aten::convolution", "aten::conv2d")
_PRODUCTS = (
    *_CONVOLUTIONS,
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::matmul",
    "aten::linear",
)


class _GraphMark:
    """Lives as long as the graph of one forward pass."""


class _ScriptWatch(TorchDispatchMode):
    """Sees every operator of this thread, forward and backward, and counts the traces
    of faults.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.forward: list[int] = []  # images in each pass through the network
        self.trained: list[int] = []  # images in each backward pass
        self.reads = 0  # moments at which the host asked for a value
        self.checked = False  # whether autograd's anomaly mode was on
        self.wide = 0  # convolutions and matrix products on float64
        self.singles = 0  # operations on one image's pixels before the network
        self.listed = 0  # images turned into Python lists
        self.prepared = 0  # images in the results of operators before the network
        self.kept = False  # whether graphs of steps that are over stayed in memory
        # one for each graph of a forward pass that is still in memory
        self._graphs: weakref.WeakSet[_GraphMark] = weakref.WeakSet()
        self._pass_since_read = False

    def mark_graph(self, result: Tensor) -> None:
        """Note that a forward pass has begun, whose graph `result` belongs to.

        What keeps the graph in memory, be it a loss, logits or a sum of them, keeps the
        node of this first convolution, and so its mark.
        """
        node: Any = result.grad_fn  # torch takes its metadata for a method
        if node is not None:
            mark = _GraphMark()
            node.metadata["mark"] = mark
            self._graphs.add(mark)

    def judge_graphs(self) -> None:
        """Note whether more graphs are in memory than a step may need."""
        if len(self._graphs) > _GRAPHS:
            gc.collect()
            self.kept |= len(self._graphs) > _GRAPHS

    def read(self) -> None:
        """Count a read; several after the same pass are one wait. Anomaly mode reads in
        backward: another fault.
        """
        if torch._C._current_graph_task_id() == -1:
            self.reads += self._pass_since_read
            self._pass_since_read = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and count it."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        backward = torch._C._current_graph_task_id() != -1
        self.checked |= torch.is_anomaly_enabled()
        if name == "aten::convolution_backward" and args[1].shape[1] == _CHANNELS:
            self.trained.append(len(args[1]))
            self.judge_graphs()
        self.wide += name in _PRODUCTS and result.dtype == torch.float64
        if backward:
            return result
        if name in _CONVOLUTIONS and args[0].shape[1] == _CHANNELS:
            self.forward.append(len(args[0]))
            self._pass_since_read = True
        elif (
            not func.is_view
            and isinstance(result, Tensor)
            and result.numel() == _PIXELS
        ):
            self.singles += 1
        elif (
            not func.is_view
            and isinstance(result, Tensor)
            and result.shape[1:] == (_CHANNELS, _SIDE, _SIDE)
        ):
            self.prepared += len(result)
        return result


class _MethodWatch(TorchFunctionMode):
    """Sees what no operator shows: copies to the host, and pixels from Python lists."""

    def __init__(self, seen: _ScriptWatch) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run it, and count a copy or a list that becomes a tensor."""
        arguments = (*args[1:], *(kwargs or {}).values())
        # The script's device is "cpu:0", so "cpu" means back to the host. A tensor's
        # own device has no number either.
        if getattr(func, "__name__", "") == "to" and any(
            isinstance(arg, str) and arg == "cpu" for arg in arguments
        ):
            self.seen.read()
        result = func(*args, **(kwargs or {}))
        if func is torch.tensor and isinstance(args[0], list | tuple):
            self.seen.listed += result.numel() // _PIXELS
        if func is torch.conv2d and args and args[0].shape[1] == _CHANNELS:
            self.seen.mark_graph(result)
        return result


def _watched_array(images: NDArray[np.uint8], seen: _ScriptWatch) -> NDArray[np.uint8]:
    """The images as an array that counts when one of them is taken out
    or made a list.
    """

    class Watched(np.ndarray[Any, Any]):
        def __array_finalize__(self, base: object) -> None:
            seen.singles += self.size == _PIXELS

        def tolist(self) -> Any:
            seen.listed += self.size // _PIXELS
            return super().tolist()

    return images.view(Watched)


@dataclass(frozen=True)
class _Epoch:
    """What a script is given."""

    model: nn.Module
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    batch: int
    lr: float

    def run(self, fn: Callable[..., Any]) -> tuple[_ScriptWatch, nn.Module, Any]:
        """What was seen, the trained model, and what the script returned."""
        model = copy.deepcopy(self.model)
        seen = _ScriptWatch()
        images = _watched_array(self.images.copy(), seen)
        seen.singles = 0
        with _as_before(), each_read(seen.read), _MethodWatch(seen), seen:
            result = call(
                fn,
                model,
                images,
                self.labels.copy(),
                torch.device("cpu", 0),
                self.batch,
                self.lr,
            )
        return seen, model, result

    def __str__(self) -> str:
        return f"{len(self.images)} images in batches of {self.batch}"


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Undo the switches that a script may leave set, or every later cell would pay.

    One thread inside: for so few images a second one would only be in the way.
    """
    dtype = torch.get_default_dtype()
    try:
        with threads(1), torch.enable_grad(), torch.autograd.set_detect_anomaly(False):
            yield
    finally:
        torch.set_default_dtype(dtype)


def fixed_script(answer: object) -> str:
    """The fixed training script; NotYet says how many faults remain, and which traces
    they leave.
    """
    fn = function(answer)
    faults: dict[str, str] = {}
    for epoch in _epochs(random.Random(2707)):
        seen, model, result = epoch.run(fn)
        _judge_work(seen, epoch)
        with _as_before():
            _judge_learning(model, result, epoch)
        faults = dict(_traces(seen, epoch)) | faults
        if seen.kept and not faults:
            raise NotYet(
                "What is kept of each step, losses, their sum or logits, keeps the"
                " graph of every step in memory. Keep its .detach()."
            )
    if faults:
        left = remaining(list(faults.values()), of=len(slow_script.FAULTS))
        raise NotYet(f"It learns the same. {left}", faults_left=len(faults))
    return (
        "None of the six faults remains, and it learns the same: equal weights, loss"
        " and accuracy."
    )


def _epochs(draw: random.Random) -> Iterator[_Epoch]:
    pixels, labels = digits(size=_SIDE, channels=_CHANNELS)
    for images, batch in _SIZES:
        rows = torch.tensor(draw.sample(range(len(pixels)), images))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw.randrange(10**6))
            model = SimpleCNN()
        as_bytes = (pixels[rows] * 255).round().to(torch.uint8).numpy()
        yield _Epoch(
            model, as_bytes, labels[rows].numpy(), batch, draw.uniform(0.02, 0.06)
        )


def _judge_work(seen: _ScriptWatch, epoch: _Epoch) -> None:
    """Whether all images were trained on and evaluated, in batches of
    the given size.
    """
    images = len(epoch.images)
    trained = sum(seen.trained)
    if not seen.forward:
        raise NotYet(
            "No image went through the model in this thread. Train the model that the"
            " function is given."
        )
    if trained != images:
        raise NotYet(
            f"For {epoch}: {trained} images were trained on; one epoch has {images},"
            " each once."
        )
    if max(seen.trained) > epoch.batch:
        raise NotYet(
            f"For {epoch}: {max(seen.trained)} images went through the network"
            " together. Larger batches take fewer steps and learn something else: keep"
            " the given batch."
        )
    if (evaluated := sum(seen.forward) - trained) < images:
        raise NotYet(
            f"For {epoch}: {evaluated} images were classified besides the training. The"
            f" accuracy at the end needs all {images}, with the final weights."
        )


def _judge_learning(model: nn.Module, result: object, epoch: _Epoch) -> None:
    """Whether weights, loss and accuracy are those of one epoch of a plain script."""
    if not isinstance(result, dict) or set(result) != set(_WHY):
        raise NotYet(
            "Expected a dict with the keys loss and accuracy, got"
            f" {brief_repr(result)}."
        )
    right = copy.deepcopy(epoch.model)
    expected = slow_script.train(
        right, epoch.images, epoch.labels, "cpu", epoch.batch, epoch.lr
    )
    off = _distance(model, right) / _distance(epoch.model, right)
    if not off <= _SAME_WEIGHTS:
        raise NotYet(
            f"For {epoch}: it learns something else. A weight is off by {off:.2g} of"
            " what an epoch changes. Does it take the same images in the same order,"
            " each batch's mean loss, the same optimizer and rate?"
        )
    for key, why in _WHY.items():
        value = as_number(result[key], "(no unit)", f"{key}, {epoch}")
        wanted = expected[key]
        room = _SAME_LOSS * wanted if key == "loss" else 0.5 / len(epoch.images)
        if not math.isclose(value, wanted, rel_tol=0, abs_tol=room):
            raise NotYet(
                f"For {epoch}: {key} is {value:.6g}, expected {wanted:.6g}. {why}"
            )


_WHY = {
    "loss": (
        "It is the mean over the images, each before its update; the last batch has"
        " fewer of them."
    ),
    "accuracy": (
        "It is the share of all images that the final weights classify correctly, 0"
        " to 1."
    ),
}


def _distance(model: nn.Module, other: nn.Module) -> float:
    """The largest difference between two models' weights."""
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(
        float((a.detach().double().cpu() - b.detach().double()).abs().max())
        for a, b in pairs
    )


def _traces(seen: _ScriptWatch, epoch: _Epoch) -> Iterator[tuple[str, str]]:
    """(fault, the trace that it leaves) for each fault that was seen."""
    images = len(epoch.images)
    steps = math.ceil(len(epoch.images) / epoch.batch)
    passes = len(seen.trained)
    evaluated = sum(seen.forward) - images
    small = "many small operators where a few large ones would do."
    if seen.checked:
        yield (
            "anomaly mode",
            (
                "backward runs operators that no line asks for, isnan, any and a read"
                " after each: autograd checks itself."
            ),
        )
    if passes > steps:
        sizes = (
            f"{passes} backward passes for {steps} steps, of {min(seen.trained)} images"
            " at the least"
        )
        yield "one by one", f"{sizes}: {small}"
    elif 2 * (len(seen.forward) - passes) > evaluated:
        yield (
            "one by one",
            f"{len(seen.forward) - passes} passes classify {evaluated} images: {small}",
        )
    if seen.wide:
        yield (
            "float64",
            "convolutions or matrix products calculate on numbers of 8 bytes.",
        )
    if evaluated > 1.5 * images:
        yield (
            "evaluation",
            (
                f"{evaluated / images:.3g} images go forward without backward for each"
                " one trained on."
            ),
        )
    if seen.reads > _READS_AT_END + _READS_A_STEP * steps:
        yield (
            "reading back",
            (
                f"the host asked for a value at {seen.reads} moments in {steps} steps,"
                " and waited."
            ),
        )
    if max(seen.singles, 2 * seen.listed) >= images:
        yield (
            "preparation",
            (
                "before the network, pixels are handled one image after another, or"
                " become Python lists."
            ),
        )
    elif seen.prepared > _OPERATIONS * images:
        yield (
            "preparation",
            (
                f"before the network, {seen.prepared} images are calculated for"
                f" {images}: prepare each once."
            ),
        )
