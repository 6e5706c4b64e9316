"""Byte pair encoding, made from a text: the way GPT-2's 50,257 tokens came about."""

from __future__ import annotations

import torch
from torch import Tensor


def merged(text: Tensor, pair: tuple[int, int], number: int) -> Tensor:
    """The text (N,) with `number` in place of each pair, from the left."""
    first, second = pair
    begins = torch.zeros(len(text), dtype=torch.bool)
    begins[:-1] = (text[:-1] == first) & (text[1:] == second)
    if first == second:  # of a run such as "aaa" every second place begins a pair
        places = torch.arange(len(text))
        run_start = torch.where(begins & ~begins.roll(1), places, 0).cummax(0).values
        begins &= (places - run_start) % 2 == 0
    result = torch.where(begins, number, text)
    return result[~begins.roll(1)]


def learned(
    text: Tensor, rows: int, merges: int
) -> tuple[Tensor, list[tuple[int, int]]]:
    """(the text in tokens, the pairs that were merged one after the other, each time
    the most frequent one).

    text: numbers below `rows` (N,). The pair at place i becomes the token rows + i.
    Source: R. Sennrich, B. Haddow and A. Birch, Neural machine translation of rare
    words with subword units (2016), section 3.2. Pairs may reach across words here.
    """
    pairs: list[tuple[int, int]] = []
    for number in range(rows, rows + merges):
        codes = text[:-1] * number + text[1:]  # (N - 1,): one number a pair
        most_frequent = int(codes.bincount().argmax())
        pair = divmod(most_frequent, number)
        pairs.append(pair)
        text = merged(text, pair, number)
    return text, pairs


def encoded(text: Tensor, rows: int, pairs: list[tuple[int, int]]) -> Tensor:
    """The text (N,) in tokens (M,), M <= N, by the merges in their order."""
    for number, pair in enumerate(pairs, rows):
        text = merged(text, pair, number)
    return text


def names(characters: str, pairs: list[tuple[int, int]]) -> list[str]:
    """What each token stands for, by its number."""
    texts = list(characters)
    for first, second in pairs:
        texts.append(texts[first] + texts[second])
    return texts
