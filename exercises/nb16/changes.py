"""Functions that change a training of notebook 16 before its first step.

Each takes a `run`: what its training has, `on` its settings, `paths` its files, `model`
what learns, `judged` what is judged, `after` what is called after each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn, optim

from exercises.nb16.pictures import decode
from labkit.train import graphs

_FLOOR = 1e-3  # added to a direction's variance


@torch.no_grad()
def whiten(layer: nn.Conv2d, images: Tensor) -> None:
    """Make a layer's n filters the n / 2 main directions of the images' patches, each
    scaled to the same spread, and their opposites.
    """
    patches = nn.functional.unfold(images, 3).transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(0)  # (patches, 27)
    spread, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    scaled = directions / (spread + _FLOOR).sqrt()  # (27, 27), a column each
    filters = scaled.T.flip(0)[: len(layer.weight) // 2]
    layer.weight[:] = torch.cat([filters, -filters]).view_as(layer.weight)


def whitened(run: SimpleNamespace) -> None:
    """Whiten the first layer by 64 of the files."""
    images, _ = decode(run.paths[:64], run.on.reduced)
    whiten(run.model[0], images)


def identity(run: SimpleNamespace) -> None:
    """Let every later convolution begin by passing its input on."""
    _, *later = (part for part in run.model.modules() if isinstance(part, nn.Conv2d))
    for layer in later:
        nn.init.dirac_(layer.weight.data[: layer.in_channels])


def averaged(run: SimpleNamespace) -> None:
    """Judge a running mean of the weights: after each step nine tenths of it, and a
    tenth of the newest.
    """
    mean = optim.swa_utils.get_ema_multi_avg_fn(0.9)
    average = optim.swa_utils.AveragedModel(
        run.model, multi_avg_fn=mean, use_buffers=True
    )
    run.judged = average.module
    run.after.append(lambda: average.update_parameters(run.model))


class Views(nn.Sequential):
    """The sum of a network's answers to an image and to the same moved by a pixel each
    way.
    """

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 10)."""
        moved = [images.roll((by, by), (2, 3)) for by in (-1, 0, 1)]
        return torch.stack([self[0](image) for image in moved]).sum(0)


def views(run: SimpleNamespace) -> None:
    """Judge the answers to several views of an image."""
    run.judged = Views(run.judged)


def cycle(run: SimpleNamespace, length: int) -> None:
    """Let the rate rise to twice as high and fall to near 0, once in `length`
    epochs.
    """
    files_a_rank = len(run.paths) // run.on.ranks
    images_a_step = run.on.batch // run.on.ranks
    steps = length * (files_a_rank // images_a_step)
    schedule = functools.partial(optim.lr_scheduler.OneCycleLR, cycle_momentum=False)
    rates = schedule(run.optimizer, 2 * run.on.rate, steps)

    def step() -> None:
        if rates.last_epoch + 1 < steps:
            rates.step()

    run.after.append(step)


def graphed(run: SimpleNamespace) -> None:
    """Capture forward and backward in one CUDA graph, which reads each batch where the
    first lay.
    """
    gradients = run.backward
    places: list[Tensor] = []
    replays: list[Callable[[], object]] = []

    def again(*batch: Tensor) -> None:
        if not places:
            places.extend(part.clone() for part in batch)
            replays.append(graphs.captured(lambda: gradients(*places)))
        for place, part in zip(places, batch, strict=True):
            place.copy_(part)
        replays[0]()

    run.backward = again
