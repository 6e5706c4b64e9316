"""Speculative decoding: a draft guesses some tokens, the model checks them in one call.

The rule that keeps tokens, `accept`, is exercise 19.6b, and is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from exercises.nb19.engine import BLOCK, PagedCache, read_on
from labkit.measure.machine import threads
from labkit.train.models import SmallGPT

_TEMPERATURE = 0.5

Accept = Callable[[list[int], list[int]], tuple[list[int], int]]
Draft = Callable[[list[int], int], list[int]]


class Written(NamedTuple):
    """Tokens that follow some prompts, in how many calls of the model, and how many
    tokens those kept: the last call of a prompt may keep more than are wanted.
    """

    tokens: list[list[int]]
    n_calls: int
    n_kept: int

    @property
    def tokens_a_call(self) -> float:
        """Tokens that a call kept, on average."""
        return self.n_kept / self.n_calls


def table_draft(text: Tensor, n: int) -> Draft:
    """A draft that knows which token most often follows each run of n in a text (N,);
    it proposes token 0 after a run that it never saw.
    """
    windows = text.unfold(0, n + 1, 1)  # (N - n, n + 1)
    runs, counts = torch.unique(windows, dim=0, return_counts=True)
    # the most frequent one is entered last
    ordered = runs[counts.argsort(stable=True)].tolist()
    follower = {tuple(run[:-1]): run[-1] for run in ordered}

    def draft(tokens: list[int], k: int) -> list[int]:
        seen = tokens[-n:]
        for _ in range(k):
            seen.append(follower.get(tuple(seen[-n:]), 0))
        return seen[len(seen) - k :]

    return draft


def speculate(
    model: SmallGPT,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    k: int,
    draft: Draft | None = None,
    *,
    accept: Accept,
) -> Written:
    """What the model writes after each prompt, one prompt after the other, with k
    drafted tokens a call; without a draft k is 0, and a call writes one token.

    Tokens are sampled at a temperature of 0.5, since the greatest logits alone would
    soon repeat themselves: the greatest of logits plus noise, where the noise of a
    position is drawn once (the Gumbel-max trick). So the text is the same with a draft
    and without one. A prompt, n_new and k together are at most the model's context.
    """
    written = []
    n_calls = 0
    n_kept = 0
    with threads(1):
        for prompt in prompts:
            tokens, calls = _speculate(model, prompt, n_new, k, draft, accept)
            written.append(tokens[:n_new])
            n_calls += calls
            n_kept += len(tokens)
    return Written(written, n_calls, n_kept)


def _speculate(
    model: SmallGPT,
    prompt: Sequence[int],
    n_new: int,
    k: int,
    draft: Draft | None,
    accept: Accept,
) -> tuple[list[int], int]:
    """The tokens of one prompt, n_new or more, and the calls."""
    cache = PagedCache(model, -(-model.context // BLOCK))
    noise = _noise(model)  # (context, rows)
    slots = list(range(model.context))  # one sequence alone has its places in a row
    tokens = list(prompt)
    n_calls = 0
    # the cache never has the last token: reading it gives the next one
    n_cached = len(tokens) - 1
    read_on(model, cache, [tokens[:-1]], [0], [slots[:n_cached]])
    while len(tokens) < len(prompt) + n_new:
        guess = draft(tokens, k) if draft else []
        new = [tokens[-1], *guess]
        end = n_cached + len(new)
        logits = read_on(model, cache, [new], [n_cached], [slots[:end]])
        chosen = (logits[0] + noise[n_cached:end]).argmax(-1)
        kept, n_right = accept(guess, chosen.tolist())
        tokens += kept
        # the cache is rolled back: the next call writes over what follows
        n_cached += 1 + n_right
        n_calls += 1
    return tokens[len(prompt) :], n_calls


def _noise(model: SmallGPT) -> Tensor:
    """Gumbel noise for each position and token, (context, rows), always the same."""
    weight = model.tokens.weight
    draw = torch.Generator().manual_seed(19)
    uniform = torch.rand(model.context, weight.shape[0], generator=draw)
    return (-_TEMPERATURE * torch.log(-torch.log(uniform))).to(weight)


def expected_tokens(a: float, k: int) -> float:
    """Expected tokens a call, if each drafted token is right with probability a.

    Source: Leviathan, Kalman and Matias, Fast inference from transformers via
    speculative decoding (2023), arXiv 2211.17192, equation 1.
    """
    return k + 1.0 if a == 1 else (1 - a ** (k + 1)) / (1 - a)
