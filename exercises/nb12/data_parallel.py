"""Checks of exercises 12.1 and 12.2 on two and three real ranks: one batch's gradients,
and a whole training.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters
from torch.utils.data import TensorDataset

from exercises.several_ranks import on_ranks, rows_read
from exercises.whole_batch import Left, WholeBatch, flat, near, network, samples
from labkit.core.display import brief_repr
from labkit.core.units import format_si
from labkit.lesson.answers import about
from labkit.lesson.checks import NotYet, function

_BATCHES = (12, 37, 7, 2)  # the last leaves one of three ranks without an image
_IMAGES = (48, 37)  # divisible by ranks and batch, and not
_BATCH = 4
_RATE = 0.2
_EPOCHS = 3


@dataclass
class SharedStep:
    """One call on one rank: which images its model was given, whether the result
    depends on others, what it left.
    """

    rows: list[int]
    needs_others: bool
    left: Left


def gradients(answer: object) -> str:
    """The whole batch's gradients and loss on every rank, each image
    read by one rank.
    """
    for images, steps in on_ranks(
        function(answer), _observe_step, _BATCHES, ranks=(2, 3)
    ):
        with about(f"{images} images on {len(steps)} ranks"):
            _judge_steps(steps, images)
    return (
        "Loss and gradients are those of the whole batch on every rank, each image is"
        " read once, and the batch size need not be divisible."
    )


def _observe_step(answer: Callable[..., object], images: int, seed: int) -> SharedStep:
    batch = WholeBatch(images, seed)
    same = WholeBatch(images, seed)
    with rows_read(batch.model, batch.x) as batches:
        left = batch.left_by(answer(batch.model, batch.x, batch.y))
    rows = sorted({row for rows in batches for row in rows})
    torch.manual_seed(seed)  # so that the next call draws the same share
    same.x[[row for row in range(images) if row not in rows]] = math.nan
    again = same.left_by(answer(same.model, same.x, same.y))
    return SharedStep(rows, _is_nan(again) and not _is_nan(left), left)


def _is_nan(left: Left) -> bool:
    loss = left.loss if isinstance(left.loss, float) else 0.0
    return math.isnan(loss) or (
        left.gradient is not None and bool(left.gradient.isnan().any())
    )


def _judge_steps(steps: Sequence[SharedStep], images: int) -> None:
    _judge_shares([step.rows for step in steps], images)
    if any(step.needs_others for step in steps):
        raise NotYet(
            "the result depends on images that a rank's model was not given. A rank"
            " works on its share only."
        )
    ranks = len(steps)
    gradients = [step.left.gradient for step in steps]
    first = gradients[0]
    if first is None or any(g is None or not near(g, first) for g in gradients):
        otherwise = (
            "the gradients differ from rank to rank. Which call sums the gradients of"
            " all ranks?"
        )
    elif images % ranks:
        otherwise = (
            "every rank has the same gradients, but not the whole batch's. If shares"
            " differ in size, the mean of their means counts the images of a small"
            " share more."
        )
    else:
        otherwise = (
            "every rank has the same gradients, but not the whole batch's. How much"
            " does a share count?"
        )
    losses = {step.left.loss for step in steps}
    for rank, step in enumerate(steps):
        with about(f"rank {rank}"):
            step.left.judge(
                no_gradient=(
                    "A rank without images must add zeros to the sum, so that it gets"
                    " the others' gradients."
                ),
                scaled={
                    ranks: (
                        "a sum of means, not a mean, or a sum over the ranks taken"
                        " twice"
                    ),
                    1 / ranks: "divided by the number of ranks once too often",
                    images
                    / ranks
                    / max(
                        1, images // ranks
                    ): "not all shares have images // ranks images",
                },
                otherwise=otherwise,
                loss=(
                    "Each rank returns another one: that of its own share."
                    if len(losses) > 1
                    else ""
                ),
            )


def _judge_shares(rows: Sequence[Sequence[int]], images: int) -> None:
    everything = [row for own in rows for row in own]
    if all(len(own) == images for own in rows):
        raise NotYet(
            f"every rank's model was given all {images} images, so no work is shared."
        )
    if len(everything) != len(set(everything)):
        raise NotYet("an image is read by two ranks. Shares must not overlap.")
    if len(everything) < images:
        left_out = format_si(images - len(everything), "images")
        raise NotYet(
            f"No rank reads {left_out} of the batch. If the batch can't be divided"
            " evenly, some shares are larger by one."
        )
    if max(map(len, rows)) > math.ceil(images / len(rows)):
        raise NotYet(
            f"shares of {', '.join(str(len(own)) for own in rows)} images. The step"
            " lasts as long as its largest share; let sizes differ by at most one."
        )


@dataclass
class TrainedCopy:
    """One rank's copy: the rows of each batch that it learned from, its weights before
    and after, and all images.
    """

    batches: list[list[int]]
    before: Tensor
    after: Tensor
    data: tuple[Tensor, Tensor]

    def epochs(self) -> list[list[int]]:
        """The rows that it read in each epoch."""
        rows = [row for batch in self.batches for row in batch]
        each, rest = divmod(len(rows), _EPOCHS)
        if rest:
            raise NotYet(
                f"a rank reads {len(rows)} images in all, so not as many in each epoch."
            )
        return [rows[i * each : (i + 1) * each] for i in range(_EPOCHS)]


def training(answer: object) -> str:
    """Shares without overlap, a new order each epoch, and at the end the weights that
    one process would have.
    """
    for images, copies in on_ranks(
        function(answer), _observe_training, _IMAGES, ranks=(2, 3)
    ):
        with about(
            f"{images} images, batches of {_BATCH}, {_EPOCHS} epochs, {len(copies)}"
            " ranks"
        ):
            _judge_batches(copies, images)
            _judge_epochs(copies, images)
            _judge_weights(copies)
    return (
        "In each epoch one rank reads each image (two ranks read a few of 37 images,"
        " which can't be divided evenly), in a new order, and the copies end up as"
        " those of one process with the joint batches: replayed on 48 and 37 images, 2"
        " and 3 ranks."
    )


def _observe_training(
    answer: Callable[..., object], images: int, seed: int
) -> TrainedCopy:
    data = samples(images, seed)
    # copies start different, as on several machines without a seed
    torch.manual_seed(seed + 1 + dist.get_rank())
    model = network()
    before = list[Tensor]()

    def note(*_: object) -> None:
        if torch.is_grad_enabled() and not before:
            before.append(flat(model))

    next(model.children()).register_forward_pre_hook(note)
    with rows_read(model, data[0], learning=True) as batches:
        result = answer(model, TensorDataset(*data), _BATCH, _RATE, _EPOCHS)
    if not isinstance(result, nn.Module):
        raise TypeError(
            f"expected the trained model to be returned, got {brief_repr(result)}"
        )
    return TrainedCopy(
        batches, before[0] if before else flat(model), flat(result), data
    )


def _judge_batches(copies: Sequence[TrainedCopy], images: int) -> None:
    ranks = len(copies)
    steps = _EPOCHS * math.ceil(math.ceil(images / ranks) / _BATCH)
    reads = [sum(map(len, copy.batches)) for copy in copies]
    if 0 in reads:
        raise NotYet(f"rank {reads.index(0)}'s model was given none of the images.")
    if min(reads) >= _EPOCHS * images:
        raise NotYet(
            f"every rank reads all {images} images in every epoch: {ranks} ranks do the"
            " same work. Which sampler gives each rank a share?"
        )
    for rank, copy in enumerate(copies):
        largest = max(map(len, copy.batches))
        if largest > _BATCH:
            raise NotYet(
                f"rank {rank} has a batch of {largest}. `batch` is the batch of one"
                " rank."
            )
        if len(copy.batches) > steps:
            raise NotYet(
                f"rank {rank} takes {len(copy.batches)} steps, and {steps} are enough:"
                " a rank's batch has `batch` images, and isn't divided by the number"
                " of ranks again."
            )


def _judge_epochs(copies: Sequence[TrainedCopy], images: int) -> None:
    per_rank = [copy.epochs() for copy in copies]
    for epoch in range(_EPOCHS):
        read = Counter(row for own in per_rank for row in own[epoch])
        if len(read) < images:
            raise NotYet(
                f"in an epoch {images - len(read)} images are read by no rank."
            )
        if read.total() > len(copies) * math.ceil(images / len(copies)):
            raise NotYet(
                f"in an epoch {read.total() - images} images are read twice. By which"
                " ranks?"
            )
    for earlier, other in itertools.combinations(range(_EPOCHS), 2):
        if per_rank[0][earlier] == per_rank[0][other]:
            raise NotYet(
                f"rank 0 reads its images in the same order in epochs {earlier} and"
                f" {other}. A DistributedSampler shuffles again only after"
                " sampler.set_epoch(epoch)."
            )


def _judge_weights(copies: Sequence[TrainedCopy]) -> None:
    first = copies[0].after
    apart = max(_distance(copy.after, first) for copy in copies[1:])
    if apart > 1e-9:
        moves = [copy.after - copy.before for copy in copies]
        if all(_distance(move, moves[0]) < 1e-9 for move in moves):
            raise NotYet(
                "all copies take the same steps, but they began with different"
                f" weights, so they end {apart:.1g} apart (relative). Which rank's"
                " weights should all begin with?"
            )
        raise NotYet(
            f"the copies end {apart:.1g} apart (relative). They take different steps:"
            " nothing averages the gradients over the ranks."
        )
    # A step with fewer images may weigh ranks alike, as DDP does, or images.
    replays = [_replay(copies, exact=exact) for exact in (False, True)]
    if any(_distance(first, replay) < 1e-7 for replay in replays):
        return
    ranks = len(copies)
    for mistake, why in (
        (
            {"times": ranks},
            (
                f"the gradients are summed over ranks, so each step is {ranks} times"
                " too long."
            ),
        ),
        (
            {"times": 1 / ranks},
            (
                f"each step is {ranks} times too short. DDP's gradients are averages"
                " already."
            ),
        ),
        (
            {"times": ranks / 2},
            "the sum over ranks is divided by 2, whatever their number.",
        ),
        (
            {"kept": True},
            (
                "the gradients of earlier steps are still in each step's: set them to"
                " zero first."
            ),
        ),
    ):
        if _distance(first, _replay(copies, exact=False, **mistake)) < 1e-7:
            raise NotYet(why)
    raise NotYet(
        "the copies agree, but one process with the joint batches would end with other"
        f" weights, {_distance(first, replays[0]):.1g} away (relative). Average the"
        " gradients in every step, before the plain SGD step at `rate`."
    )


def _distance(value: Tensor, other: Tensor) -> float:
    return float((value - other).norm() / other.norm())


def _replay(
    copies: Sequence[TrainedCopy],
    *,
    exact: bool,
    times: float = 1.0,
    kept: bool = False,
) -> Tensor:
    """The weights of one process that reads, step by step, what all ranks read.

    `exact` weighs every image alike; steps are so many `times` as long, and add to the
    gradients that are `kept`.
    """
    model = network()
    x, y = copies[0].data
    vector_to_parameters(copies[0].before.clone(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=times * _RATE)
    for batches in _joint_batches(copies):
        parts = [[row for batch in batches for row in batch]] if exact else batches
        if not kept:
            optimizer.zero_grad()
        torch.stack(
            [cross_entropy(model(x[rows]), y[rows]) for rows in parts]
        ).mean().backward()
        optimizer.step()
    return flat(model)


def _joint_batches(copies: Sequence[TrainedCopy]) -> Iterator[list[list[int]]]:
    """The ranks' batches of each step, without those of ranks that have none left in an
    epoch's last step.
    """
    steps = [len(copy.batches) // _EPOCHS for copy in copies]
    for epoch in range(_EPOCHS):
        for i in range(max(steps)):
            batches = (
                copy.batches[epoch * n + i]
                for copy, n in zip(copies, steps, strict=True)
                if i < n
            )
            yield [rows for rows in batches if rows]
