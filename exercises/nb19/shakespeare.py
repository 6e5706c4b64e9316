"""The text of notebook 19: 40,000 lines of Shakespeare's plays, as numbers of its characters."""

from __future__ import annotations

import functools
import lzma

import torch
from torch import Tensor

from labkit.core.paths import DATA


@functools.cache
def text() -> str:
    """The whole text, 1,115,394 characters of ASCII. Source: data/README.md."""
    return lzma.decompress((DATA / "shakespeare.txt.xz").read_bytes()).decode("ascii")


@functools.cache
def tokens(held_out: float = 0.1) -> tuple[Tensor, Tensor, str]:
    """The first part of the text and the last, held-out share of it, as int64 (N,); and its characters in order."""
    characters = "".join(sorted(set(text())))
    number_of = {character: number for number, character in enumerate(characters)}
    every = torch.tensor([number_of[character] for character in text()])
    first = round(len(every) * (1 - held_out))
    return every[:first], every[first:], characters
