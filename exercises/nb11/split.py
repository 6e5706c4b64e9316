"""The check of exercise 11.1: rows in two parts, class by class, drawn by the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, call, function

_CLASS_SIZES = ((142, 143, 147, 141), (10, 7, 3, 1), (5, 5), (1000, 40))


def split(answer: object) -> str:
    """Rows in two parts, class by class, for awkward class sizes, sorted and mixed labels."""
    import torch

    fn = function(answer, torch.tensor([0, 1] * 10), 0.2, 0)
    draw = random.Random(1101)
    for sizes in _CLASS_SIZES:
        for mixed in (False, True):
            labels = [3 * label + 1 for label, size in enumerate(sizes) for _ in range(size)]
            if mixed:
                draw.shuffle(labels)
            share, seed = draw.choice([0.1, 0.2, 0.25, 0.5]), draw.randrange(1000)
            given = f"classes of {', '.join(map(str, sizes))} images, share {share:g}"
            _judge_split(fn, labels, share, seed, given)
    return "Disjoint, complete, drawn at random by the seed, each class in proportion, in classes of 1 to 1,000."


def _judge_split(fn: Any, labels: list[int], share: float, seed: int, given: str) -> None:
    import torch

    tensor = torch.tensor(labels)
    parts = [_rows(part, len(labels), given) for part in _pair(call(fn, tensor, share, seed), given)]
    if both := set(parts[0]) & set(parts[1]):
        raise NotYet(f"For {given}: {len(both)} images are in both parts, so what is learnt is judged too.")
    if any(len(part) != len(set(part)) for part in parts):
        raise NotYet(f"For {given}: an image stands in the same part twice.")
    if len(parts[0]) + len(parts[1]) != len(labels):
        lost = len(labels) - len(parts[0]) - len(parts[1])
        raise NotYet(f"For {given}: {lost} of {len(labels)} images are in neither part.")
    if tensor.tolist() != labels:
        raise NotYet(f"For {given}: the labels were changed. They are to be read only.")
    for label in sorted(set(labels)):
        size, found = labels.count(label), sum(labels[row] == label for row in parts[1])
        if abs(found - share * size) >= 1:
            raise NotYet(
                f"For {given}: {found} of the {size} images of one class are in validation, where share * size "
                f"is {share * size:g}. Draw class by class. Which part comes first?"
            )
    again, other = (_pair(call(fn, tensor, share, s), given)[1] for s in (seed, seed + 1))
    torch.rand(3)  # an answer that hangs on the state of torch's own generator gives other rows now
    if sorted(parts[1]) != sorted(_rows(again, len(labels), given)):
        raise NotYet(f"For {given}: the same seed gave another split later. Draw with a generator of its own.")
    if max(labels.count(label) for label in labels) > 30 and sorted(parts[1]) == sorted(
        _rows(other, len(labels), given)
    ):
        raise NotYet(
            f"For {given}: another seed gave the same split. A writer's digits may stand side by side, so "
            "draw at random within each class."
        )
    _judge_order(labels, parts[1], given)


def _judge_order(labels: list[int], held: list[int], given: str) -> None:
    """Of a large class, those held out don't stand side by side, nor at equal distances."""
    for label in sorted(set(labels)):
        of_class = [row for row, name in enumerate(labels) if name == label]
        chosen = set(held)
        places = [place for place, row in enumerate(of_class) if row in chosen]
        steps = [after - before for before, after in itertools.pairwise(places)]
        if len(places) >= 14 and max(map(steps.count, steps)) >= len(steps) - 1:
            raise NotYet(
                f"For {given}: within a class the images held out stand in a row or at equal distances. The seed has "
                "to draw which ones; torch.randperm gives a random order."
            )


def _pair(result: Any, given: str) -> Sequence[Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise NotYet(f"For {given}: expected two parts, (training, validation), got {brief_repr(result)}.")
    return result


def _kind(part: Any) -> str:
    dtype = getattr(part, "dtype", None)
    return brief_repr(part) if dtype is None else f"{brief_repr(part)}, {dtype}"


def _rows(part: Any, images: int, given: str) -> list[int]:
    """Row numbers as integers."""
    rows = part.tolist() if hasattr(part, "tolist") else list(part) if isinstance(part, Sequence) else None
    if rows is None or not all(is_whole(row) for row in rows):
        kind = " True and False" if rows and isinstance(rows[0], bool) else f" {_kind(part)}"
        raise NotYet(f"For {given}: expected row numbers, integers from 0 to {images - 1}, got{kind}.")
    if any(not 0 <= row < images for row in rows):
        raise NotYet(f"For {given}: a row number is not from 0 to {images - 1}.")
    return rows
