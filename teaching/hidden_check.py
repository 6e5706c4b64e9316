"""An exercise's check on inputs that nobody knows."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator
from typing import Any

from labkit.lesson.checks import Outcome, judged


@contextlib.contextmanager
def drawn_anew(salt: str) -> Iterator[None]:
    """Let random numbers with a fixed seed depend on `salt` too, so that no answer fits
    the inputs that are known.

    Ranks are processes of their own: what they draw stays the same.
    """
    import numpy as np
    import torch

    def seed_of(seed: object) -> int:
        return zlib.crc32(f"{salt} {seed}".encode())

    class Random(random.Random):
        def __init__(self, seed: Any = None) -> None:
            super().__init__(None if seed is None else seed_of(seed))

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            super().manual_seed(seed_of(seed))
            return self

    kept = random.Random, np.random.default_rng, torch.Generator
    random.Random = Random  # type: ignore[assignment,misc]
    np.random.default_rng = lambda seed=None: kept[1](
        None if seed is None else seed_of(seed)
    )
    torch.Generator = Generator  # type: ignore[misc]
    try:
        yield
    finally:
        random.Random, np.random.default_rng, torch.Generator = kept  # type: ignore[misc]


def judge(number: str, answer: object, salt: str) -> Outcome:
    """What an exercise's check says of an answer, on inputs of this salt."""
    with drawn_anew(salt):
        return judged(number, answer)
