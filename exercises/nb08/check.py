"""Checks of notebook 08, whether the trainer waits for data; that of the whole pipeline
is in pipeline, and that of copies to a GPU in prefetching.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from exercises.nb08.pipeline import pipeline
from exercises.nb08.prefetching import prefetched
from labkit.core.display import brief_repr
from labkit.lesson.answers import about, as_list
from labkit.lesson.checks import NotYet, call, close, function, over_cases
from labkit.measure.machine import machine
from labkit.train.graphs import operators

# 08.6 judges the moves of so many images, and compares them at every distance that
# leaves this many pairs
_MANY = 8_000
_FEWEST_PAIRS = 1_000
# in standard deviations; pairs counted twice, as when reversed, have 1.4 of them
_LARGEST_EXCESS = 10.0
# of 25 pairs of amounts, by chance once in 10**9 times
_LARGEST_CHI_SQUARE = 91.0
_SAME_AGAIN = (
    "Called twice, it moves the images by the same amounts again. Draw them anew in"
    " every call."
)


def throughput(answer: object) -> str:
    """The slowest of three limits, at random rates, and where each of the three is the
    one that counts.
    """
    draw = random.Random(2408)
    cases = [
        (1e-3, 1e-4, 0, 2, 1),  # without workers
        (1e-3, 1e-4, 1, 16, 1),  # loading is the slowest
        (1e-4, 1e-3, 8, 16, 1),  # training is the slowest
        (1e-3, 1e-4, 16, 2, 1),  # more workers than cores
        (1e-3, 1e-3, 2, 2, 2),  # training uses both cores
        (1e-3, 1e-4, 3, 4, 0),  # training is on a GPU and needs no core
    ]
    for _ in range(20):
        prepare_s = 10 ** draw.uniform(-5, -2)
        train_s = 10 ** draw.uniform(-5, -2)
        cores = draw.randint(1, 16)
        cases.append(
            (prepare_s, train_s, draw.randint(0, 32), cores, draw.randint(0, cores))
        )
    template = (
        "{prepare_s:.3g} s to prepare, {train_s:.3g} s to train, {workers} workers,"
        " {cores} cores, {train_cores} of them for training"
    )
    over_cases(
        answer,
        cases,
        _throughput,
        close("images/s", hint=_throughput_hint),
        given=template,
    )
    return (
        "Right without workers, with few, with more than cores, and where training"
        " needs none of the cores."
    )


def _limits(
    prepare_s: float, train_s: float, workers: int, cores: int, train_cores: int
) -> tuple[float, float, float]:
    """Images/s that all workers prepare, that the trainer trains, and that all cores
    together can do.
    """
    return workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s)


def _throughput(
    prepare_s: float, train_s: float, workers: int, cores: int, train_cores: int
) -> float:
    if not workers:
        return 1 / (prepare_s + train_s)
    return min(_limits(prepare_s, train_s, workers, cores, train_cores))


def _throughput_hint(
    value: float, prepare_s: float, train_s: float, workers: int, *cores: int
) -> str:
    if not workers:
        return (
            "Without workers one image is prepared and then trained on: the seconds"
            " add up."
        )
    limits = _limits(prepare_s, train_s, workers, *cores)
    if math.isclose(value, max(limits), rel_tol=1e-6):
        return "That is the fastest of the limits. The slowest one decides."
    if limits[2] == min(limits) and value > limits[2]:
        return (
            "Workers and trainer share the cores: how many core-seconds does an image"
            " cost?"
        )
    return (
        "The least of three: what all workers prepare, what the trainer trains, and"
        " what all cores together can do."
    )


def own_shards(answer: object) -> str:
    """Every shard goes to exactly one worker of one rank, and neither ranks nor workers
    get more than their part.
    """
    fn = function(answer)
    for n, ranks, workers in (
        (6, 1, 2),
        (7, 1, 3),
        (3, 1, 8),
        (4, 1, 0),
        (1, 1, 0),
        (0, 2, 2),
        (8, 2, 2),
        (7, 2, 2),
        (5, 2, 4),
        (9, 4, 0),
        (10, 3, 1),
        (3, 4, 2),
        (257, 8, 4),
    ):
        shards = [f"digits-{i:06d}.tar" for i in range(n)]
        with about(f"{n} shards, {ranks} ranks and {workers} workers each"):
            each = [
                [
                    _part(fn, shards, r, ranks, w, workers)
                    for w in range(max(workers, 1))
                ]
                for r in range(ranks)
            ]
            _judge_parts(each, shards)
    return (
        "Every shard is read exactly once, with fewer and more shards than workers, and"
        " without any worker."
    )


def _part(
    fn: Callable[..., Any],
    shards: list[str],
    rank: int,
    ranks: int,
    worker: int,
    workers: int,
) -> list[str]:
    passed = list(shards)
    got = call(fn, passed, rank, ranks, worker, workers)
    part = as_list(got)
    if part is None or not all(shard in shards for shard in part):
        raise NotYet(
            f"expected a list of some of the shards for worker {worker}, got"
            f" {brief_repr(got)}."
        )
    if passed != shards:
        raise NotYet(
            "it has changed the list that it was given, which the other workers share."
        )
    return part


def _judge_parts(each: list[list[list[str]]], shards: list[str]) -> None:
    """NotYet unless the parts of each rank's workers are all of the shards, once, and
    are equal but for one shard.
    """
    by_rank = [list(itertools.chain.from_iterable(parts_of)) for parts_of in each]
    counts = Counter(itertools.chain.from_iterable(by_rank))
    if doubled := [n for n in counts.values() if n > 1]:
        raise NotYet(
            f"{len(doubled)} shards are read {doubled[0]} times an epoch: each image"
            " comes again."
        )
    if missing := [shard for shard in shards if not counts[shard]]:
        raise NotYet(
            f"nobody reads {len(missing)} of the shards, {missing[0]} among them."
        )
    for who, dealt in (
        ("rank", by_rank),
        *(("worker of a rank", parts_of) for parts_of in each),
    ):
        most = max(map(len, dealt))
        least = min(map(len, dealt))
        if most > least + 1:
            raise NotYet(
                f"one {who} gets {most} shards and another {least}. The others would"
                " wait for it."
            )


def shift_batch(answer: object) -> str:
    """Shifts a whole batch, each image by an amount of its own, judged on pixels that
    are all different.
    """
    fn = function(answer)
    for shape, most, dtype in (
        ((3, 3, 5, 7), 2, torch.uint8),
        ((1, 1, 6, 4), 1, torch.float32),
        ((5, 2, 3, 3), 0, torch.uint8),
        ((0, 3, 4, 4), 1, torch.float32),
    ):
        _shifts(fn, shape, most, dtype)
    moves = _shifts(fn, (_MANY, 1, 3, 5), 2, torch.uint8)
    later = _shifts(fn, (_MANY, 1, 3, 5), 2, torch.uint8)
    _judge_shifts(moves, later, 2)
    same = torch.randint(1, 256, (40, 1, 6, 5)).to(torch.uint8)
    first, second = (_shifts(fn, (40, 1, 6, 5), 2, torch.uint8, same) for _ in range(2))
    if first == second:
        raise NotYet(_SAME_AGAIN)
    few = torch.zeros(100, 1, 4, 4)
    many = torch.zeros(400, 1, 4, 4)
    lines = _lines(fn, many) - _lines(fn, few)
    # map() runs no lines
    launched = (
        operators(lambda: fn(many, 1)).total - operators(lambda: fn(few, 1)).total
    )
    # one for every other image; a loop over images runs one for each at least
    if max(lines, launched) >= 150:
        raise NotYet(
            f"Right, but 300 more images run {lines:,} more lines of Python and"
            f" {launched:,} more operators. Move the whole batch at once."
        )
    return (
        "Every image moved by an amount of its own, zeros behind it, colors together,"
        " all amounts equally often."
    )


def _lines(fn: Callable[..., Any], images: Tensor) -> int:
    """Lines of Python that a call runs, in the answer and in what it calls."""
    count = itertools.count()
    before = sys.gettrace()

    def trace(*_: object) -> Any:
        next(count)
        return trace

    sys.settrace(trace)
    try:
        call(fn, images, 1)
    finally:
        sys.settrace(before)
    return next(count)


def _shifts(
    fn: Callable[..., Any],
    shape: tuple[int, ...],
    most: int,
    dtype: torch.dtype,
    images: Tensor | None = None,
) -> list[tuple[int, int]]:
    """How far (down, right) each image of a random batch was moved; NotYet where that
    is not what was asked for.
    """
    images = torch.randint(1, 256, shape).to(dtype) if images is None else images
    kept = images.clone()
    where = (
        f"For a batch {tuple(shape)} of {str(dtype).removeprefix('torch.')},"
        f" most={most}"
    )
    moved = call(fn, images.to(machine().device) if len(images) > 100 else images, most)
    if (
        not isinstance(moved, Tensor)
        or moved.shape != images.shape
        or moved.dtype != dtype
    ):
        got = (
            f"{tuple(moved.shape)} of {moved.dtype}"
            if isinstance(moved, Tensor)
            else brief_repr(moved)
        )
        raise NotYet(
            f"{where}: expected a tensor of the same shape and dtype, got {got}."
        )
    moved = moved.cpu()
    if not torch.equal(images, kept):
        raise NotYet(
            f"{where}: it has changed the images that it was given, and the cache with"
            " them. Make new ones."
        )
    padded = functional.pad(images, (most,) * 4)
    # (N, C, places, places, height, width)
    windows = padded.unfold(2, shape[2], 1).unfold(3, shape[3], 1)
    # (N, places, places)
    same = (windows == moved[:, :, None, None]).all(5).all(4).all(1)
    if not (matches := same.flatten(1).any(1)).all():
        wrong = int((~matches).nonzero()[0, 0])
        raise NotYet(f"{where}: {_wrong_shift(images[wrong], moved[wrong])}")
    # a window is most - amount away from the corner
    at = same.flatten(1).float().argmax(1)
    return [
        (most - i // (2 * most + 1), most - i % (2 * most + 1)) for i in at.tolist()
    ]


def _wrong_shift(image: Tensor, to: Tensor) -> str:
    """What became of an image that is not moved as it should be."""
    if not to.any():
        return "an image came out empty."
    amounts = list(
        itertools.product(*(range(1 - size, size) for size in image.shape[1:]))
    )
    for amount in amounts:
        if torch.equal(_shifted(image, *amount), to):
            return (
                f"an image was moved by {max(map(abs, amount))} pixels, more than most."
            )
        if torch.equal(torch.roll(image, amount, (1, 2)), to):
            return (
                "what leaves an image at one side comes in at the other. Zeros should"
                " come in."
            )
    pairs = zip(image[:, None], to[:, None], strict=True)
    if len(image) > 1 and all(
        any(torch.equal(_shifted(a, *amount), b) for amount in amounts)
        for a, b in pairs
    ):
        return "the colors of an image are moved apart. Move all by one amount."
    return "an image is not the one that was given, moved with zeros behind it."


def _shifted(image: Tensor, down: int, right: int) -> Tensor:
    # a negative width cuts off
    return functional.pad(image, (right, -right, down, -down))


def _judge_shifts(
    moves: list[tuple[int, int]], later: list[tuple[int, int]], most: int
) -> None:
    """NotYet unless both directions take all their values equally often, and no image's
    move follows from another's, in this call or a later one.
    """
    if len(set(moves)) == 1:
        raise NotYet(
            "All images of a batch are moved by the same amount. Each should get its"
            " own."
        )
    amounts = 2 * most + 1
    pairs = _numbered(moves, most)
    counts = torch.bincount(pairs, minlength=amounts**2)
    shares = counts.reshape(amounts, amounts) / len(moves)
    along = {"down": shares.sum(1), "right": shares.sum(0)}
    if shares.min() == 0 and all(share.min() > 0 for share in along.values()):
        raise NotYet(
            "Down and right go together: draw the two apart, so that every pair of"
            " amounts occurs."
        )
    for name, share in along.items():
        if (share - 1 / amounts).abs().max() > 0.05:
            frequencies = ", ".join(
                f"{i - most:+d}: {part:.0%}" for i, part in enumerate(share.tolist())
            )
            raise NotYet(
                f"Amounts {name} are not equally frequent ({frequencies}). Draw"
                " integers from -most to most, both included."
            )
    _judge_independence(pairs, _numbered(later, most), amounts)
    expected = len(moves) / amounts**2
    if (counts - expected).square().sum() / expected > _LARGEST_CHI_SQUARE:
        raise NotYet(
            f"Some of the {amounts**2} pairs of amounts come more often than others,"
            f" {counts.max()} and {counts.min()} times in {len(moves):,} images. Draw"
            " each amount anew, not from moves that were drawn before."
        )


def _numbered(moves: list[tuple[int, int]], most: int) -> Tensor:
    """Each move as one number from 0: (N,) for N moves."""
    amounts = 2 * most + 1
    return torch.tensor(
        [(down + most) * amounts + right + most for down, right in moves]
    )


def _judge_independence(first: Tensor, later: Tensor, amounts: int) -> None:
    """NotYet where moves follow from each other: one image's from another's, down from
    right, or those of a call from those of an earlier one.

    first, later: (_MANY,) each, the moves of two calls as `_numbered` gives them.
    """
    if torch.equal(first, later):
        raise NotYet(_SAME_AGAIN)
    down = first // amounts
    right = first % amounts
    if _alike(down, right, amounts):
        raise NotYet(
            "How far an image moves right follows from how far one moves down: draw the"
            " two apart."
        )
    pairs = amounts**2
    of_batch = max(
        _alike(first, first, pairs, least=1), _alike(first, first.flip(0), pairs)
    )
    of_calls = _alike(first, later, pairs)
    if share := max(of_batch, of_calls):
        where = "another one of the batch" if of_batch else "one in the call before"
        raise NotYet(
            f"{share:.0%} of the images are moved exactly as {where}, {1 / pairs:.0%}"
            " would be by chance. Each gets its own random amount, drawn anew in every"
            " call."
        )


def _alike(a: Tensor, b: Tensor, values: int, least: int = 1 - _MANY) -> float:
    """The share of a[i + offset] that equal b[i], at the offset from `least` on where
    that is most; 0 where chance would give as much.

    a, b: (_MANY,), each element one of `values` numbers from 0.
    """
    spectra = [
        torch.fft.rfft(functional.one_hot(part, values).T.double(), 2 * _MANY)
        for part in (a, b)
    ]  # (values, _MANY + 1) each
    products = (spectra[0] * spectra[1].conj()).sum(0)
    equal = torch.fft.irfft(products, 2 * _MANY)  # at each offset, negative ones last
    offsets = torch.arange(max(least, _FEWEST_PAIRS - _MANY), _MANY - _FEWEST_PAIRS)
    compared = _MANY - offsets.abs()
    by_chance = compared / values
    equal = equal[offsets]
    excess = (equal - by_chance) / by_chance.sqrt()
    at = int(excess.argmax())
    if excess[at] < _LARGEST_EXCESS:
        return 0.0
    return float(equal[at] / compared[at])


CHECKS = {
    "08.2": throughput,
    "08.4": own_shards,
    "08.6": shift_batch,
    "08.6b": prefetched,
    "08.7": pipeline,
}
