"""The check of exercise 11.1: rows in two parts, class by class, drawn by the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch

from exercises.answers import parts, whole_numbers
from labkit.lesson.checks import NotYet, call, function

_CLASS_SIZES = ((142, 143, 147, 141), (10, 7, 3, 1), (5, 5), (1000, 40))


def split(answer: object) -> str:
    """Rows in two parts, class by class, for awkward class sizes, sorted and mixed labels."""
    fn = function(answer)
    draw = random.Random(1101)
    for sizes in _CLASS_SIZES:
        for mixed in (False, True):
            labels = [3 * label + 1 for label, size in enumerate(sizes) for _ in range(size)]
            if mixed:
                draw.shuffle(labels)
            share, seed = draw.choice([0.1, 0.2, 0.25, 0.5]), draw.randrange(1000)
            _judge_split(fn, labels, share, seed, f"classes of {', '.join(map(str, sizes))} images, share {share:g}")
    return "Disjoint, complete, drawn at random by the seed, each class in proportion, in classes of 1 to 1,000."


def _judge_split(fn: Callable[..., Any], labels: list[int], share: float, seed: int, given: str) -> None:
    tensor = torch.tensor(labels)

    def called(seed: int) -> list[list[int]]:
        pair = parts(call(fn, tensor, share, seed), 2, "two parts, (training, validation)", given)
        return [_rows(part, len(labels), given) for part in pair]

    training, validation = called(seed)
    if both := set(training) & set(validation):
        raise NotYet(f"For {given}: {len(both)} images are in both parts, so training images are judged too.")
    if any(len(part) != len(set(part)) for part in (training, validation)):
        raise NotYet(f"For {given}: an image is in the same part twice.")
    if lost := len(labels) - len(training) - len(validation):
        raise NotYet(f"For {given}: {lost} of {len(labels)} images are in neither part.")
    if tensor.tolist() != labels:
        raise NotYet(f"For {given}: the labels were changed. Only read them.")
    for label in sorted(set(labels)):
        size, found = labels.count(label), sum(labels[row] == label for row in validation)
        if abs(found - share * size) >= 1:
            raise NotYet(
                f"For {given}: {found} of the {size} images of one class are in validation; share * size is "
                f"{share * size:g}. Draw class by class. Which part comes first?"
            )
    again, other = (sorted(called(s)[1]) for s in (seed, seed + 1))
    if sorted(validation) != again:
        raise NotYet(f"For {given}: the same seed gave another split later. Draw with a generator of its own.")
    if max(map(labels.count, set(labels))) > 30 and sorted(validation) == other:
        raise NotYet(
            f"For {given}: another seed gave the same split. Neighbouring digits may be by one writer, so draw at "
            "random within each class."
        )
    _judge_order(labels, set(validation), given)


def _judge_order(labels: list[int], chosen: set[int], given: str) -> None:
    """Of a large class, those held out are neither side by side nor at equal distances."""
    for label in sorted(set(labels)):
        of_class = [row for row, name in enumerate(labels) if name == label]
        places = [place for place, row in enumerate(of_class) if row in chosen]
        steps = [after - before for before, after in itertools.pairwise(places)]
        if len(places) >= 14 and max(map(steps.count, steps)) >= len(steps) - 1:
            raise NotYet(
                f"For {given}: within a class the validation images are in a row or at equal distances. Let the seed "
                "choose them; torch.randperm gives a random order."
            )


def _rows(part: Any, images: int, given: str) -> list[int]:
    """Row numbers as integers."""
    rows = whole_numbers(part, f"row numbers, integers from 0 to {images - 1}", given)
    if any(not 0 <= row < images for row in rows):
        raise NotYet(f"For {given}: a row number is not from 0 to {images - 1}.")
    return rows
