"""Mixed precision against float32 without TF32: how many times as fast a training step
is, at equal accuracy.

benchmarks.gpu calls `mixed_precision` with its own way of timing on a CUDA GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import labkit as lab
from exercises.nb09.resnet9 import ResNet9
from labkit.core.units import format_si

TARGET = 2.0  # times as fast as float32
BATCH = 1024  # of the timed step: large enough that the GPU waits for no Python
# of the trainings that accuracy is read from
EPOCHS = 5
SMALL_BATCH = 64
LEARNING_RATES = (3e-4, 1e-3, 3e-3)
MODES = {
    "float32": None,
    "bfloat16 autocast": torch.bfloat16,
    "float16 autocast, GradScaler": torch.float16,
}

Seconds = Callable[[Mapping[str, Callable[[], object]]], dict[str, float]]


class Row(NamedTuple):
    """A row of the table: its name, the least value, the value, and both sides in
    words.
    """

    name: str
    target: float
    value: float
    detail: str


def mixed_precision(
    seconds: Seconds,
    *,
    device: str = "cuda",
    network: Callable[[], nn.Module] = ResNet9,
) -> Iterator[Row]:
    """The faster of two mixed modes against float32, 0 times as fast where its accuracy
    is lower beyond chance.

    `seconds` maps names and functions to seconds of a call, as benchmarks.gpu.seconds
    does.
    """
    images, labels = (
        part[:BATCH].to(device) for part in lab.data.digits(size=32, channels=3)
    )
    images = images.contiguous(memory_format=torch.channels_last)
    steps = {name: _setup(dtype, device, network)()[1] for name, dtype in MODES.items()}
    took = seconds(
        {name: partial(step, images, labels) for name, step in steps.items()}
    )
    best = min((name for name in MODES if name != "float32"), key=took.__getitem__)
    arms = {name: _learning(MODES[name], device, network) for name in ("float32", best)}
    gain = lab.training.compare_tuned(arms, LEARNING_RATES).gain(best)
    lost = gain.verdict == "worse"
    rates = {name: format_si(len(images) / took[name], "images/s") for name in took}
    detail = f"{best}: {rates[best]}, float32: {rates['float32']}; accuracy of {gain}"
    yield Row(
        "training in mixed precision",
        TARGET,
        0.0 if lost else took["float32"] / took[best],
        detail,
    )


def _setup(
    dtype: torch.dtype | None,
    device: str,
    network: Callable[[], nn.Module],
    rate: float = 1e-3,
) -> Callable[[], tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]]:
    """A model and its training step in mixed precision, or in float32
    proper for None.
    """

    def setup() -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
        model: Any = network()  # torch's types know no memory_format
        model.to(device, memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

        def step(images: Tensor, labels: Tensor) -> Tensor:
            with lab.float32_precision("ieee"):
                optimizer.zero_grad()
                with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                    logits = model(images)
                loss = cross_entropy(logits.float(), labels)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            return loss

        return model, step

    return setup


def _learning(
    dtype: torch.dtype | None, device: str, network: Callable[[], nn.Module]
) -> Callable[[float, int], float]:
    """A function of (learning rate, seed): validation accuracy, 0 to 1, after the last
    epoch.
    """

    def accuracy(rate: float, seed: int) -> float:
        run = lab.training.fit(
            _setup(dtype, device, network, rate),
            seed=seed,
            batch=SMALL_BATCH,
            epochs=EPOCHS,
        )
        return run.accuracies[-1]

    return accuracy
