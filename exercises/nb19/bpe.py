"""Byte pair encoding, made from a text: the way GPT-2's 50,257 tokens came about."""

from __future__ import annotations

import lzma
from collections.abc import Callable

import torch
from torch import Tensor

from labkit.core.display import Table

Pair = tuple[int, int]  # two tokens that became one
# (mean loss in nats a token, tokens, bytes) -> bits a byte: exercise 19.3
BitsPerByte = Callable[[float, int, int], float]


def merged(text: Tensor, pair: Pair, number: int) -> Tensor:
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


def learned(text: Tensor, rows: int, merges: int) -> tuple[Tensor, list[Pair]]:
    """(the text in tokens, the pairs that were merged one after the other, each time
    the most frequent one).

    text: numbers below `rows` (N,). The pair at place i becomes the token rows + i.
    Source: R. Sennrich, B. Haddow and A. Birch, Neural machine translation of rare
    words with subword units (2016), section 3.2. Pairs may reach across words here.
    """
    pairs: list[Pair] = []
    for number in range(rows, rows + merges):
        codes = text[:-1] * number + text[1:]  # (N - 1,): one number a pair
        most_frequent = int(codes.bincount().argmax())
        pair = divmod(most_frequent, number)
        pairs.append(pair)
        text = merged(text, pair, number)
    return text, pairs


def encoded(text: Tensor, rows: int, pairs: list[Pair]) -> Tensor:
    """The text (N,) in tokens (M,), M <= N, by the merges in their order."""
    for number, pair in enumerate(pairs, rows):
        text = merged(text, pair, number)
    return text


def names(characters: str, pairs: list[Pair]) -> list[str]:
    """What each token stands for, by its number."""
    texts = list(characters)
    for first, second in pairs:
        texts.append(texts[first] + texts[second])
    return texts


def single_loss(text: Tensor, held_out: Tensor, rows: int) -> float:
    """Mean loss on a held-out text (M,), in nats a token, of how often each of `rows`
    tokens occurs in a text (N,).
    """
    counts = 1.0 + text.bincount(minlength=rows)  # none is impossible
    surprise = -(counts / counts.sum()).log()  # (rows,)
    return surprise[held_out].mean().item()


def table_loss(text: Tensor, held_out: Tensor, rows: int) -> float:
    """Mean loss on a held-out text (M,), in nats a token, of a table of how often each
    of `rows` tokens follows each other one in a text (N,).
    """
    counts = torch.ones(rows, rows)  # no pair is impossible
    pairs = (text[:-1], text[1:])
    counts.index_put_(pairs, torch.ones(len(text) - 1), accumulate=True)
    surprise = -(counts / counts.sum(1, keepdim=True)).log()  # (rows, rows)
    return surprise[held_out[:-1], held_out[1:]].mean().item()


class TableModels:
    """Two tables of pairs as models of a text (N,): of its characters, and of the
    tokens that so many merges made of them.
    """

    def __init__(
        self, text: Tensor, held_out: Tensor, characters: str, merges: int
    ) -> None:
        rows = len(characters)
        tokens, pairs = learned(text, rows, merges)
        self.names = names(characters, pairs)
        self.characters_a_token = len(text) / len(tokens)
        texts = {
            "pairs of characters": (rows, text, held_out),
            "pairs of BPE's tokens": (
                len(self.names),
                tokens,
                encoded(held_out, rows, pairs),
            ),
        }
        # model -> (nats a token, tokens of the held-out text)
        self.losses = {
            model: (table_loss(read, judged, n_rows), len(judged))
            for model, (n_rows, read, judged) in texts.items()
        }
        self._raw = "".join(characters[number] for number in held_out.tolist()).encode()

    def vocabulary(self) -> str:
        """How many tokens there are, how long, and the last that were made."""
        return (
            f"{len(self.names)} rows, {self.characters_a_token:.2f} characters a token:"
            f" {self.names[-6:]}"
        )

    def compared(self, bits_per_byte: BitsPerByte) -> Table:
        """Nats a token and bits a byte of both tables, beside a program that compresses
        files.
        """
        n_bytes = len(self._raw)
        rows = [
            (
                model,
                f"{nats:.2f}",
                f"{bits_per_byte(nats, n_tokens, n_bytes):.2f}",
            )
            for model, (nats, n_tokens) in self.losses.items()
        ]
        compressed = 8 * len(lzma.compress(self._raw, preset=9)) / n_bytes
        rows.append(("lzma, which compresses files", "", f"{compressed:.2f}"))
        return Table(tuple(rows), ("model", "nats a token", "bits a byte"))
