"""The training loop that every comparison shares: seeded, timed without its evaluation, watched for NaN."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labkit.core.arguments import check_function, check_number, is_whole
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.measure.bench import Clock, sync_of
from labkit.train.training.finite import bad_parameter, explain
from labkit.train.training.runs import Run, Runs, check_accuracy
from labkit.train.training.split import Labelled, accuracy, check_labelled, digits_held_out

Step = Callable[[Tensor, Tensor], Tensor]
Setup = Callable[[], tuple[nn.Module, Step]]

_MOST_EPOCHS = 1000


def fit(
    setup: Setup,
    *,
    seed: int,
    batch: int,
    data: Labelled | None = None,
    validation: Labelled | None = None,
    epochs: int | None = None,
    seconds: float | None = None,
    until: float | None = None,
    on_epoch: Callable[[Run], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Run:
    """Train from one seed until `epochs` epochs, `seconds` of training, or validation accuracy `until` (0 to 1).

    `setup()` is called after torch.manual_seed(seed) and returns (model, step); `step(images, labels)` does one whole
    training step and returns the loss, a tensor with one element. `data` and `validation` are (images, labels),
    already on the device; by default digits(size=32, channels=3), with a fifth of the training images held out.
    Each epoch takes the images in a new order in batches of `batch`; what is left over (less than a batch) sits out.
    The clock runs while training only, and waits for the device at an epoch's ends; limits are looked at there.
    A first step on a model that is thrown away comes before, so that no run pays for what only the first one needs.
    `on_epoch` gets the Run so far. Nothing reads the losses before the end of an epoch.
    Raises NotFinite for a loss or a weight that is NaN or infinite, with the step and the layer: to find them it
    trains anew from the seed up to that step. BadArgument for arguments that can't be.
    """
    check_limits(epochs, seconds, until)
    training, validation = given(data, validation)
    _check_start(setup, seed, batch, len(training[0]))
    begin(setup, seed)[1](*(part[:batch] for part in training))
    model, step = begin(setup, seed)
    batches = Batches(*training, int(batch), int(seed))
    run = Run(int(seed), int(batch), (), (), (), (), model)
    while True:
        run = _epoch(run, step, batches, sync_of(training[0].device.type), clock)
        _check_finite(setup, run, batches.again())
        run = replace(run, accuracies=(*run.accuracies, accuracy(model, *validation)))
        if on_epoch is not None:
            on_epoch(run)
        arrived = until is not None and run.accuracies[-1] >= until
        if arrived or run.epochs >= (epochs or _MOST_EPOCHS) or run.seconds[-1] >= (seconds or math.inf):
            return run


def _epoch(run: Run, step: Step, batches: Batches, sync: Callable[[], None], clock: Clock) -> Run:
    """The run with one epoch more, whose accuracy is still missing."""
    images, labels = batches.images, batches.labels
    order, losses = batches.shuffled(), []
    sync()
    start_s = clock()
    for rows in order:
        losses.append(checked_loss(step(images[rows], labels[rows])))
    sync()
    spent_s = clock() - start_s
    seconds = (*run.seconds, (run.seconds[-1] if run.seconds else 0.0) + spent_s)
    read = (*run.losses, *torch.stack(losses).tolist())
    return replace(run, losses=read, seconds=seconds, images=(*run.images, len(read) * run.batch))


def over_seeds(setup: Setup, seeds: int | Iterable[int] = 5, *, name: str = "", **how: Any) -> Runs:
    """`fit` once for each seed: 0, 1, ... up to their number, or those given. `name` is what tables call it."""
    return Runs(tuple(fit(setup, seed=seed, **how) for seed in _seeds(seeds)), name)


def in_turn(
    named: Mapping[str, tuple[Setup, int]],
    seeds: int | Iterable[int] = 5,
    *,
    on_epoch: Callable[[str, Run], object] | None = None,
    **how: Any,
) -> dict[str, Runs]:
    """`over_seeds` for several trainings by name, each (setup, batch), taken in turn: A B, B A, A B, ...

    A machine that gets slower meanwhile slows all of them alike, so times may be compared. `on_epoch` gets the name and
    the Run so far; the rest is as in `fit`. BadArgument for fewer than two trainings.
    """
    if not isinstance(named, Mapping) or len(named) < 2:
        raise BadArgument(
            f"Expected two or more trainings, {{'name': (setup, batch), ...}}, got {brief_repr(named)}."
        )
    found: dict[str, list[Run]] = {name: [] for name in named}
    for turn, seed in enumerate(_seeds(seeds)):
        for name in (list(named), list(named)[::-1])[turn % 2]:
            setup, batch = named[name]
            told = None if on_epoch is None else partial(on_epoch, name)
            found[name].append(fit(setup, seed=seed, batch=batch, on_epoch=told, **how))
    return {name: Runs(tuple(runs), name) for name, runs in found.items()}


def _seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    if not isinstance(seeds, Iterable):
        check_number("seeds", seeds, least=1, whole=True)
        seeds = range(seeds)
    if not (chosen := tuple(seeds)):
        raise BadArgument("Expected at least one seed, got none.")
    return chosen


class Batches:
    """Rows of each batch, epoch by epoch, in an order that `seed` alone decides."""

    def __init__(self, images: Tensor, labels: Tensor, batch: int, seed: int) -> None:
        self.images, self.labels, self.batch, self.seed = images, labels, batch, seed
        self.per_epoch = len(images) // batch
        self._generator = torch.Generator().manual_seed(int(seed))

    def shuffled(self) -> tuple[Tensor, ...]:
        """The rows of one epoch's batches, on the images' device."""
        order = torch.randperm(len(self.images), generator=self._generator)
        return torch.split(order[: self.per_epoch * self.batch].to(self.images.device), self.batch)

    def again(self) -> Batches:
        """The same batches from the first one on."""
        return Batches(self.images, self.labels, self.batch, self.seed)


def checked_loss(loss: object) -> Tensor:
    """A copy of a step's loss, on its device and unread; BadArgument unless it is a tensor with one element."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise BadArgument(
            f"Expected step(images, labels) to return the loss as a tensor with one element, got {brief_repr(loss)}. "
            "Return the loss itself, not loss.item(), which would wait for the device."
        )
    return loss.detach().reshape(()).clone()  # cloned: a captured graph writes each loss to the same place


def check_limits(epochs: object, seconds: object, until: float | None) -> None:
    """Raise BadArgument for limits that can't be, and where there is none."""
    if epochs is None and seconds is None:
        raise BadArgument("Expected epochs= or seconds=, so that training ends even if until= is never reached.")
    if epochs is not None:
        check_number("epochs", epochs, least=1, whole=True)
    if seconds is not None:
        check_number("seconds", seconds, above=0)
    if until is not None:
        check_accuracy(until)


def given(data: Labelled | None, validation: Labelled | None) -> tuple[Labelled, Labelled]:
    """Training and validation images as given, or digits; BadArgument for one without the other."""
    if data is None and validation is None:
        return digits_held_out()
    if data is None or validation is None:
        raise BadArgument(
            "Expected data= and validation= together: images to train on and images to judge by. "
            "lab.training.held_out(images, labels) splits one set in two."
        )
    return check_labelled("data", data), check_labelled("validation", validation)


def begin(setup: Setup, seed: int) -> tuple[nn.Module, Step]:
    """A model and its step, made after seeding, in training mode; BadArgument where setup() gives something else."""
    torch.manual_seed(int(seed))
    made = setup()
    if not (isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[0], nn.Module) and callable(made[1])):
        raise BadArgument(f"Expected setup() to return (model, step), got {brief_repr(made)}.")
    model, step = made
    model.train()
    return model, step


def _check_start(setup: object, seed: object, batch: object, images: int) -> None:
    check_function("setup", setup)
    if not is_whole(seed):
        raise BadArgument(f"Expected a whole number as seed, got {brief_repr(seed)}.")
    check_number("batch", batch, least=1, whole=True)
    if batch > images:  # type: ignore[operator]
        raise BadArgument(f"Expected a batch of at most {images:,}, the training images, got {batch:,}.")


def _check_finite(setup: Setup, run: Run, batches: Batches) -> None:
    bad = next((i for i, loss in enumerate(run.losses) if not math.isfinite(loss)), None)
    if bad is not None or bad_parameter(run.model):
        at = run.steps - 1 if bad is None else bad
        raise explain(lambda: begin(setup, batches.seed), batches, run.losses, at)
