"""The check of exercise 12.2: the articles' loop, mended, on two and three real ranks, and replayed on one process."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exercises.several_ranks import body, on_ranks, rows_read
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo

if TYPE_CHECKING:
    from torch import Tensor, nn

_IMAGES = (48, 37)  # divisible by ranks and batch, and not
_BATCH, _RATE, _EPOCHS = 4, 0.2, 3


@dataclass
class Seen:
    """One training on one rank: the rows of each batch that its model was given, its weights before and after."""

    batches: list[list[int]]
    before: Tensor
    after: Tensor
    returned: bool


def mended(answer: object) -> str:
    """Shares without overlap, a new order each epoch, and at the end the weights that one process would have."""
    fn = body(answer)
    for ranks in (2, 3):
        seed = time.time_ns() % 2**31
        seen = on_ranks(_observe, ranks, fn, seed)
        for i, images in enumerate(_IMAGES):
            given = f"{images} images, batches of {_BATCH}, {_EPOCHS} epochs, {ranks} ranks"
            one_each = [seen[rank][i] for rank in range(ranks)]
            if not any(one.returned for one in one_each):
                raise Todo("mended returns nothing yet: return the trained model.")
            _judge_rows(one_each, images, given)
            _judge_weights(one_each, _dataset(images, seed), given)
    return (
        "Each image is read by one rank an epoch (or a few by two, where 37 images don't divide), in a new order each "
        "time, and the copies end as one process with the joint batches would: replayed on 48 and 37 images, 2 and 3 "
        "ranks."
    )


def _dataset(images: int, seed: int) -> tuple[Tensor, Tensor]:
    import torch

    draw = torch.Generator().manual_seed(seed + images)
    return torch.randn(images, 6, generator=draw, dtype=torch.float64), torch.randint(3, (images,), generator=draw)


def _network() -> nn.Module:
    from torch import nn

    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def _flat(model: nn.Module) -> Tensor:
    import torch

    return torch.cat([weight.detach().ravel() for weight in model.parameters()]).clone()


def _observe(fn: Any, seed: int) -> list[Seen]:
    """Runs on each rank."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import TensorDataset

    dist.init_process_group("gloo")
    all_seen = []
    for images in _IMAGES:
        x, y = _dataset(images, seed)
        torch.manual_seed(seed + 1 + dist.get_rank())  # copies begin apart, as without a seed on several machines
        model = _network()
        before = _flat(model)
        with rows_read(model, x) as batches:
            result = fn(model, TensorDataset(x, y), _BATCH, _RATE, _EPOCHS)
        if not isinstance(result, nn.Module | None):
            raise TypeError(f"expected the trained model to come back, got {brief_repr(result)}")
        all_seen.append(Seen(batches, before, _flat(model if result is None else result), result is not None))
        dist.barrier()
    return all_seen


def _judge_rows(seen: Sequence[Seen], images: int, given: str) -> None:
    ranks = len(seen)
    for rank, one in enumerate(seen):
        reads = sum(map(len, one.batches))
        if reads == 0:
            raise NotYet(f"For {given}: rank {rank}'s model was given none of the images.")
        if reads >= _EPOCHS * images:
            raise NotYet(
                f"For {given}: rank {rank} reads all {images} images in every epoch, as every other rank does: {ranks} "
                "ranks do the same work. Which sampler gives each rank a share?"
            )
        if any(len(batch) > _BATCH for batch in one.batches):
            raise NotYet(f"For {given}: rank {rank} has a batch of {max(map(len, one.batches))}. `batch` is a rank's.")
        steps = _EPOCHS * math.ceil(math.ceil(images / ranks) / _BATCH)
        if len(one.batches) > steps:
            raise NotYet(
                f"For {given}: rank {rank} takes {len(one.batches)} steps, where {steps} do: a rank's batch has "
                "`batch` images, and is not cut again."
            )
    per_epoch = [_epochs(one.batches, given) for one in seen]
    for epoch in range(_EPOCHS):
        read = Counter(row for own in per_epoch for row in own[epoch])
        if len(read) < images:
            raise NotYet(f"For {given}: in an epoch {images - len(read)} images are read by no rank.")
        if read.total() > ranks * math.ceil(images / ranks):
            raise NotYet(f"For {given}: in an epoch {read.total() - images} images are read twice. Whose are they?")
    if per_epoch[0][0] == per_epoch[0][1]:
        raise NotYet(
            f"For {given}: rank 0 reads its images in the same order in every epoch. A DistributedSampler draws anew "
            "only after sampler.set_epoch(epoch)."
        )


def _epochs(batches: list[list[int]], given: str) -> list[list[int]]:
    rows = [row for batch in batches for row in batch]
    if len(rows) % _EPOCHS:
        raise NotYet(f"For {given}: a rank reads {len(rows)} images in all, which is not the same in each epoch.")
    each = len(rows) // _EPOCHS
    return [rows[i * each : (i + 1) * each] for i in range(_EPOCHS)]


def _judge_weights(seen: Sequence[Seen], data: tuple[Tensor, Tensor], given: str) -> None:
    after = [one.after for one in seen]
    apart = max(_distance(other, after[0]) for other in after[1:])
    if apart > 1e-9:
        moves = [one.after - one.before for one in seen]
        if all(_distance(move, moves[0]) < 1e-9 for move in moves):
            raise NotYet(
                f"For {given}: all copies take the same steps, but they began with different weights, so they end "
                f"{apart:.1g} apart (relative). Who begins with whose?"
            )
        raise NotYet(
            f"For {given}: the copies end {apart:.1g} apart (relative). They take different steps: nothing makes one "
            "gradient of all ranks' gradients."
        )
    replays = [_replay(one.before, seen, data, exact=exact) for one in seen for exact in (False, True)]
    if any(_distance(after[0], replay) < 1e-7 for replay in replays):
        return
    summed = [_replay(one.before, seen, data, exact=False, times=len(seen)) for one in seen]
    if any(_distance(after[0], replay) < 1e-7 for replay in summed):
        raise NotYet(f"For {given}: the gradients are summed over ranks, so each step is {len(seen)} times too long.")
    raise NotYet(
        f"For {given}: the copies agree, but they are not what one process with the joint batches would have: "
        f"{_distance(after[0], replays[0]):.1g} away (relative). Gradients have to be averaged in every step, before "
        "the plain SGD step at `rate`."
    )


def _steps(seen: Sequence[Seen]) -> Iterator[list[list[int]]]:
    """What the ranks read in each step; one that has nothing left in an epoch's last step is not in it."""
    each = [len(one.batches) // _EPOCHS for one in seen]
    for epoch in range(_EPOCHS):
        for i in range(max(each)):
            parts = [one.batches[epoch * n + i] for one, n in zip(seen, each, strict=True) if i < n]
            yield [part for part in parts if part]


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def _replay(
    start: Tensor, seen: Sequence[Seen], data: tuple[Tensor, Tensor], *, exact: bool, times: float = 1.0
) -> Tensor:
    """The weights of one process that reads, step by step, what all ranks read; `exact` weighs every image alike."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils import vector_to_parameters

    model, (x, y) = _network(), data
    vector_to_parameters(start.clone(), model.parameters())
    for parts in _steps(seen):
        if exact:
            parts = [[row for part in parts for row in part]]
        loss = sum(cross_entropy(model(x[rows]), y[rows]) for rows in parts) / len(parts)
        gradients = torch.autograd.grad(loss, list(model.parameters()))  # type: ignore[arg-type]
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight.sub_(times * _RATE * gradient)
    return _flat(model)
