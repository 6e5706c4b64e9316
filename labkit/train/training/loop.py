"""The training loop that every comparison shares: seeded, timed without its evaluation,
checked for NaN.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadArgument, NotFinite
from labkit.core.parameters import Count, Number, Positive, checked
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import sync_of
from labkit.measure.contention import CELLS, Contention, Watch
from labkit.measure.readings import Clock
from labkit.train.data import Labeled
from labkit.train.training.split import accuracy, check_labeled, digits_held_out

Accuracy = Annotated[
    float, Number(above=0, most=1, advice="It is a share: write 0.97 for 97 %.")
]
Step = Callable[[Tensor, Tensor], Tensor]
Setup = Callable[[], tuple[nn.Module, Step]]


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """One training from one seed: `losses` per step, validation `accuracies` (0 to 1)
    per epoch, the trained `model`.

    `seconds` and `images` are counted from the start to the end of each epoch;
    `seconds` leaves evaluation out. `contention` is what other programs took of the
    training.
    """

    seed: int
    batch: int
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    seconds: tuple[float, ...]
    images: tuple[int, ...]
    model: nn.Module = field(compare=False)
    contention: Contention = field(default=Contention(), compare=False)

    @property
    def steps(self) -> int:
        """Training steps taken."""
        return len(self.losses)

    @property
    def epochs(self) -> int:
        """Passes over the training images."""
        return len(self.seconds)

    @property
    def rate(self) -> float:
        """Images per second while training."""
        CELLS.note(self.contention)
        return self.images[-1] / self.seconds[-1]

    @checked
    def epochs_to(self, accuracy: Accuracy) -> int | None:
        """Return the epochs until validation first reached `accuracy` (0 to 1), None
        where it never did.
        """
        for epoch, reached in enumerate(self.accuracies, start=1):
            if reached >= accuracy:
                return epoch
        return None

    def time_to(self, accuracy: float) -> float | None:
        """Return the seconds of training to the end of the first epoch that reached
        `accuracy`, None where none did.
        """
        epochs = self.epochs_to(accuracy)
        return None if epochs is None else self.seconds[epochs - 1]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, batch {self.batch}: {self.epochs} epochs,"
            f" {self.steps:,} steps in {format_seconds(self.seconds[-1])}"
            f" ({significant(self.rate)} images/s); validation accuracy"
            f" {_percent(self.accuracies[-1])}, at best"
            f" {_percent(max(self.accuracies))}"
        )


def shuffled(images: Tensor, batch: int, seed: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each batch of one epoch after another, in a new order each
    epoch; a smaller rest sits out.

    They are on the images' device, and the same for the same seed.
    """
    generator = torch.Generator().manual_seed(seed)
    shown = len(images) // batch * batch
    while True:
        order = torch.randperm(len(images), generator=generator)[:shown]
        yield torch.split(order.to(images.device), batch)


@checked
def fit(
    setup: Setup,
    *,
    seed: int,
    batch: Count,
    data: Labeled | None = None,
    validation: Labeled | None = None,
    epochs: Annotated[int, Number(least=1, most=1_000_000)] | None = None,
    seconds: Positive | None = None,
    until: Accuracy | None = None,
    on_epoch: Callable[[Run], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Run:
    """Train from one seed until `epochs` epochs, `seconds` of training, or validation
    accuracy `until` (0 to 1).

    `setup()` is called after torch.manual_seed(seed) and returns (model, step);
    `step(images, labels)` does one whole training step and returns the loss, a tensor
    with one element. `data` and `validation` are (images, labels), already on the
    device; by default digits(size=32, channels=3), with a fifth of the training images
    held out. Each epoch takes the images in a new order in batches of `batch`; what is
    left over (less than a batch) sits out. The clock runs only while training, and the
    device is waited for at both ends of an epoch. Limits are checked at the end of each
    epoch, and losses are read there. `on_epoch` gets the Run so far. A first step on a
    model that is thrown away comes before, so that no run pays for what only the first
    one needs. Raises NotFinite, with the step, for a loss or a weight that is NaN or
    infinite, and BadArgument for arguments that can't be used.
    """
    if epochs is None and seconds is None:
        raise BadArgument(
            "Expected epochs= or seconds=, so that training ends even if until= is"
            " never reached."
        )
    training, validation = _both_sets(data, validation)
    if batch > len(training[0]):
        raise BadArgument(
            f"Expected a batch of at most {len(training[0]):,}, the training images,"
            f" got {batch:,}."
        )
    images, labels = training
    _, first_step = _begin(setup, seed)
    first_step(images[:batch], labels[:batch])
    model, step = _begin(setup, seed)
    run = Run(seed, batch, (), (), (), (), model)
    watch = Watch(gpu=training[0].is_cuda) if clock is time.perf_counter else None
    for rows in shuffled(training[0], batch, seed):
        run = _epoch(run, step, training, rows, clock)
        _check_finite(run, training[0])
        run = replace(run, accuracies=(*run.accuracies, accuracy(model, *validation)))
        if on_epoch is not None:
            on_epoch(run)
        arrived = until is not None and run.accuracies[-1] >= until
        if (
            arrived
            or run.epochs >= (epochs or math.inf)
            or run.seconds[-1] >= (seconds or math.inf)
        ):
            break
    return run if watch is None else replace(run, contention=watch.so_far())


def _epoch(
    run: Run, step: Step, data: Labeled, order: tuple[Tensor, ...], clock: Clock
) -> Run:
    """Train for one epoch and return the run with its losses and times; its accuracy is
    still missing.
    """
    images, labels = data
    losses = []
    sync = sync_of(images.device.type)
    sync()
    start_s = clock()
    for rows in order:
        losses.append(checked_loss(step(images[rows], labels[rows])))
    sync()
    spent_s = clock() - start_s
    before_s = run.seconds[-1] if run.seconds else 0.0
    all_losses = (*run.losses, *torch.stack(losses).tolist())
    return replace(
        run,
        losses=all_losses,
        seconds=(*run.seconds, before_s + spent_s),
        images=(*run.images, len(all_losses) * run.batch),
    )


def chosen_seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """Return the seeds 0, 1, ... up to a number of them, or those given. Raises
    BadArgument for none.
    """
    numbers = tuple(range(seeds) if isinstance(seeds, int) else seeds)
    if not numbers:
        raise BadArgument("Expected at least one seed, got none.")
    return numbers


def checked_loss(loss: object) -> Tensor:
    """Return a copy of a step's loss on its device, without waiting for its value.

    Raises BadArgument unless it is a tensor with one element.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise BadArgument(
            "Expected step(images, labels) to return the loss as a tensor with one"
            f" element, got {brief_repr(loss)}. Return the loss itself, not"
            " loss.item(), which would wait for the device."
        )
    # a captured CUDA graph writes each loss to the same place
    return loss.detach().reshape(()).clone()


def _both_sets(
    data: Labeled | None, validation: Labeled | None
) -> tuple[Labeled, Labeled]:
    """Return training and validation images as given, or digits; raise BadArgument for
    one without the other.
    """
    if data is None and validation is None:
        return digits_held_out()
    if data is None or validation is None:
        raise BadArgument(
            "Expected data= and validation= together: images to train on and images to"
            " validate on. lab.training.held_out(images, labels) splits one set in two."
        )
    return check_labeled("data", data), check_labeled("validation", validation)


def _begin(setup: Setup, seed: int) -> tuple[nn.Module, Step]:
    """Seed torch and make a model in training mode and its step. Raises BadArgument for
    another result of setup().
    """
    torch.manual_seed(seed)
    pair = setup()
    if not (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and isinstance(pair[0], nn.Module)
        and callable(pair[1])
    ):
        raise BadArgument(
            f"Expected setup() to return (model, step), got {brief_repr(pair)}."
        )
    model, step = pair
    model.train()
    return model, step


def _check_finite(run: Run, images: Tensor) -> None:
    """Raise NotFinite for a loss or a weight that isn't finite, with the step, the
    losses before it and what to do.
    """
    bad_losses = [i for i, loss in enumerate(run.losses) if not math.isfinite(loss)]
    if not bad_losses and _finite_weights(run.model):
        return
    at = bad_losses[0] if bad_losses else run.steps - 1
    losses = run.losses[:at]
    step = f"step {at + 1} (seed {run.seed}, batch {run.batch})"
    if bad_losses:
        what = f"The loss of {step} is {run.losses[at]}"
    else:
        what = f"Weights are not finite after {step}"
    if losses:
        what += f", after {losses[0]:.3g} in step 1 and {losses[-1]:.3g} in step {at}"
    if not bool(images.isfinite().all()):
        advice = "the images hold NaN or infinity; check them and what prepares them"
    elif losses and max(losses) > 10 * losses[0]:
        advice = "it has grown, so the learning rate may be too high"
    else:
        advice = (
            "torch.autograd.set_detect_anomaly(True) names the operation whose gradient"
            " is NaN"
        )
    raise NotFinite(f"{what}: {advice}.")


def _finite_weights(model: nn.Module) -> bool:
    are_finite = [
        weight.detach().isfinite().all()
        for weight in model.parameters()
        if weight.is_floating_point()
    ]
    # one wait for the device, whatever the number of weights
    return not are_finite or bool(torch.stack(are_finite).all())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
