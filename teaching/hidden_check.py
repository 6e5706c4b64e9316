"""The hidden check of an exercise: its text goes into what a grader runs, so it imports nothing of `teaching`."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def drawn_anew(salt: str) -> Iterator[None]:
    """Let random numbers with a fixed seed depend on `salt` too, so that no answer fits the inputs that are known.

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
    np.random.default_rng = lambda seed=None: kept[1](None if seed is None else seed_of(seed))
    torch.Generator = Generator  # type: ignore[misc]
    try:
        yield
    finally:
        random.Random, np.random.default_rng, torch.Generator = kept  # type: ignore[misc]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of an answer to itself: nbgrader takes anything on the error stream for a failure."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def judge(number: str, answer: object, salt: str = "") -> object:
    """The outcome of an exercise's check for a right answer, on inputs of this salt; AssertionError for any other.

    Without a salt the inputs are those that learners can find out.

    The checks are loaded anew, so that nothing which a notebook's cell put in their place is asked.
    """
    for name in [*sys.modules]:
        if name.split(".")[0] == "exercises" or name in ("labkit.lesson.checks", "labkit.lesson.exercise_files"):
            del sys.modules[name]
    checks = importlib.import_module("labkit.lesson.checks")
    with quiet(), drawn_anew(salt) if salt else contextlib.nullcontext():
        outcome = checks.judged(number, answer)
    assert outcome.state == "passed", str(outcome)
    return outcome
