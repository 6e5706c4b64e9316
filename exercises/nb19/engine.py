"""A small inference engine for SmallGPT: a paged KV cache and continuous batching.

Two functions of it are exercise 19.6a, and are handed in: `admit` says how many
requests join the batch, `slots` gives a sequence its blocks of the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from labkit.measure.machine import threads
from labkit.train.models import SmallGPT

BLOCK = 16  # tokens in a block of the cache; vLLM's usual size, too

Slots = Callable[[list[int], list[int], int], list[int]]
Admit = Callable[[list[int], int, int], int]


class PagedCache:
    """Keys and values in blocks of 16 tokens, which no sequence owns for good.

    `layers` holds (keys, values) of each layer, both (blocks * 16, heads, width /
    heads); `free` are the numbers of the blocks that no sequence has.
    """

    def __init__(self, model: SmallGPT, n_blocks: int) -> None:
        blocks: Any = model.blocks
        weight = model.tokens.weight
        heads = blocks[0].attention.heads
        shape = (n_blocks * BLOCK, heads, weight.shape[1] // heads)
        self.layers = [
            (weight.new_zeros(shape), weight.new_zeros(shape)) for _ in blocks
        ]
        self.free = list(range(n_blocks))


@torch.no_grad()
def read_on(
    model: SmallGPT,
    cache: PagedCache,
    tokens: Sequence[Sequence[int]],
    starts: Sequence[int],
    slots: Sequence[Sequence[int]],
) -> Tensor:
    """Logits (B, n, rows) after each of n new tokens of B sequences.

    tokens: (B, n); starts: how many tokens of each sequence are in the cache already;
    slots: where the cache keeps each token of each sequence, the new ones included.
    """
    device = model.tokens.weight.device
    longest = max(map(len, slots))
    padded = [[*row, *[0] * (longest - len(row))] for row in slots]
    pages = torch.tensor(padded, device=device)  # (B, T)
    new = torch.tensor(tokens, device=device)  # (B, n)
    first = torch.tensor(starts, device=device)[:, None]  # (B, 1)
    positions = first + torch.arange(new.shape[1], device=device)  # (B, n)
    # a token sees itself and those before; padding comes after
    seen = torch.arange(longest, device=device) <= positions[:, :, None]  # (B, n, T)
    x = model.tokens(new) + model.positions(positions)  # (B, n, width)
    blocks: Any = model.blocks
    for block, (keys, values) in zip(blocks, cache.layers, strict=True):
        attention = block.attention
        qkv = attention.qkv(block.attention_norm(x))
        # each (B, n, heads, width / heads)
        q, k, v = qkv.unflatten(2, (3, attention.heads, -1)).unbind(2)
        keys[pages.gather(1, positions)] = k
        values[pages.gather(1, positions)] = v
        # a kernel of an engine reads the blocks where they are; this gathers them
        mixed = scaled_dot_product_attention(
            q.transpose(1, 2),
            keys[pages].transpose(1, 2),  # (B, heads, T, width / heads)
            values[pages].transpose(1, 2),
            attn_mask=seen[:, None],
        )
        x = x + attention.out(mixed.transpose(1, 2).flatten(2))
        x = x + block.mlp(block.mlp_norm(x))
    logits: Tensor = model.head(model.norm(x))
    return logits


@dataclass(eq=False)
class Request:
    """A prompt, how many tokens are to follow it, and what became of it."""

    prompt: list[int]
    n_new: int
    arrival_s: float = 0.0
    written: list[int] = field(default_factory=list)
    written_s: list[float] = field(default_factory=list)  # when each was
    table: list[int] = field(default_factory=list)  # its blocks, in order

    @property
    def is_done(self) -> bool:
        """Whether all of its tokens are written."""
        return len(self.written) == self.n_new

    @property
    def n_tokens(self) -> int:
        """Tokens of prompt and answer, of which the last is never in the cache."""
        return len(self.prompt) + self.n_new - 1

    @property
    def n_blocks(self) -> int:
        """Blocks that it has at its end."""
        return -(-self.n_tokens // BLOCK)


class Engine:
    """Write answers to requests, up to `places` of them in one step.

    With `static` a batch begins when the one before it has ended; otherwise a request
    joins at any step. `now` is the clock.
    """

    def __init__(
        self,
        model: SmallGPT,
        slots: Slots,
        admit: Admit,
        *,
        places: int = 8,
        n_blocks: int = 64,
        static: bool = False,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model = model
        self.cache = PagedCache(model, n_blocks)
        self.slots = slots
        self.admit = admit
        self.places = places
        self.static = static
        self.now = now
        self.running: list[Request] = []

    def serve(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Write all answers; return the requests.

        Time is virtual between steps and measured within: the clock advances by the
        seconds of each step, and jumps to the next arrival when there is nothing to do.
        """
        longest = max((request.n_tokens for request in requests), default=0)
        if longest > self.model.context:
            raise ValueError(
                f"Expected prompts and answers of at most {self.model.context} tokens"
                f" together, got {longest}. Ask for shorter answers."
            )
        waiting = sorted(requests, key=lambda request: request.arrival_s)
        clock_s = 0.0
        with threads(1):
            while waiting or self.running:
                if not self.running:
                    clock_s = max(clock_s, waiting[0].arrival_s)
                begin_s = self.now()
                arrived = [
                    request for request in waiting if request.arrival_s <= clock_s
                ]
                joining = self._join(arrived)
                waiting = waiting[len(joining) :]
                new = [*map(self._read_prompt, joining), *self._step(joining)]
                clock_s += self.now() - begin_s
                for request, token in new:
                    request.written.append(token)
                    request.written_s.append(clock_s)
                self._leave()
        return requests

    def _join(self, arrived: list[Request]) -> list[Request]:
        """The requests that join now, first come, first served."""
        if self.static and self.running:
            return []
        # what the running ones may still need is theirs
        reserved = sum(
            request.n_blocks - len(request.table) for request in self.running
        )
        free = len(self.cache.free) - reserved
        sizes = [request.n_tokens for request in arrived]
        joining = arrived[: self.admit(sizes, free, self.places - len(self.running))]
        if not joining and not self.running:
            raise RuntimeError("No request was admitted, and none is running.")
        self.running += joining
        return joining

    def _read_prompt(self, request: Request) -> tuple[Request, int]:
        """The request and its first token, which ends its time to first token."""
        n = len(request.prompt)
        pages = self.slots(request.table, self.cache.free, n)
        logits = read_on(self.model, self.cache, [request.prompt], [0], [pages])
        return request, int(logits[0, -1].argmax())

    def _step(self, joining: list[Request]) -> list[tuple[Request, int]]:
        """One more token of each request that didn't join just now, in one call."""
        batch = [request for request in self.running if request not in joining]
        if not batch:
            return []
        # a static batch is computed whole until its longest answer ends
        lengths = [
            len(request.prompt) + len(request.written) - request.is_done
            for request in batch
        ]
        pages = [
            self.slots(request.table, self.cache.free, n)
            for request, n in zip(batch, lengths, strict=True)
        ]
        last = [[request.written[-1]] for request in batch]
        logits = read_on(self.model, self.cache, last, [n - 1 for n in lengths], pages)
        tokens = logits[:, -1].argmax(-1).tolist()
        pairs = zip(batch, tokens, strict=True)
        return [(request, token) for request, token in pairs if not request.is_done]

    def _leave(self) -> None:
        """Give back the blocks of those that are done."""
        if self.static and not all(request.is_done for request in self.running):
            return
        for request in self.running:
            if request.is_done:
                self.slots(request.table, self.cache.free, 0)
        self.running = [request for request in self.running if not request.is_done]
