"""What the claims of notebook 18 are judged by: memory, FLOP, and whether two results
are the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kerneltrace import tiles
from labkit.core.parameters import checked
from labkit.measure.bench import Comparison, speedup, time_call
from labkit.measure.machine import machine, pick
from labkit.measure.memory import peak_memory
from labkit.measure.profiling import counted_flop

HEADS = 4
WIDTH = 64  # numbers of a head
TILE = 64  # queries and keys of a tile
APART = 1e-3  # results further apart than this are other results
GROWN = 6  # times the memory for 4 times the tokens: 4 is linear, 16 quadratic

Way = Callable[[Tensor, Tensor, Tensor], Tensor]


@checked
def most_memory(
    ways: Mapping[str, Way], lengths: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Way of attention -> number of tokens -> MiB that it held at most, its arguments
    included, for four heads of 64 numbers.
    """
    return {
        name: {tokens: _most_mib(way, tokens) for tokens in lengths}
        for name, way in ways.items()
    }


def _most_mib(way: Way, tokens: int) -> float:
    qkv = _qkv(tokens)
    return peak_memory(lambda: way(*qkv)).peak_bytes / 2**20


def _qkv(tokens: int) -> Tensor:
    """Queries, keys and values: (3, 1, HEADS, tokens, WIDTH)."""
    return torch.rand(3, 1, HEADS, tokens, WIDTH, device=machine().device)


@checked
def without_scores(
    ways: Mapping[str, Way], memory: Mapping[str, Mapping[int, float]]
) -> dict[str, Any]:
    """What C34 is judged by, as arguments of `lab.verdict`: whether "in one call" has
    the result of "in steps", and how its memory grows from the fewest to the most
    tokens of `memory`, which are four times as many.
    """
    of_call = memory["in one call"]
    fewest = min(of_call)
    most = max(of_call)
    grown = of_call[most] / of_call[fewest]
    qkv = _qkv(most)
    results = [ways[name](*qkv) for name in ("in steps", "in one call")]
    apart = (results[0] - results[1]).abs().max().item()
    because = (
        f"{grown:.1f} x the memory for {most / fewest:g} x the tokens, results"
        f" {apart:.0e} apart"
    )
    return {"evidence": grown < GROWN and apart < APART, "because": because}


def masked_ways(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Causal attention of (1, heads, tokens, width) in one call, and in steps with the
    scores of later tokens at -inf.
    """
    tokens, width = q.shape[-2:]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)

    def in_steps() -> Tensor:
        scores = q @ k.mT / math.sqrt(width)  # (1, heads, tokens, tokens)
        return scores.masked_fill(later, -torch.inf).softmax(-1) @ v

    def in_one_call() -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    return {"in one call": in_one_call, "in steps": in_steps}


def causal_trace(attention: Any) -> tiles.TileTrace:
    """The trace of a kernel of causal attention for one head of some hundred tokens, a
    program for each 64 queries.
    """
    tokens = pick(ci=256, cpu=512, gpu=512)
    q, k, v, out = torch.rand(4, 1, tokens, WIDTH).half()
    sizes = {"WIDTH": WIDTH, "TILE": TILE}
    scale = WIDTH**-0.5
    return tiles.trace(attention, tokens // TILE, q, k, v, out, tokens, scale, **sizes)


def share_with_mask(trace: tiles.TileTrace) -> float:
    """The FLOP of tl.dot in a trace of causal attention of one head, over those of all
    scores: 2 products of 2 FLOP for each, 64 wide.
    """
    tokens = trace.programs * TILE
    return sum(trace.dot_flop.values()) / (4 * tokens**2 * WIDTH)


@checked
def fewer_flop(
    race: Comparison, ways: Mapping[str, Way], attention: Any
) -> dict[str, Any]:
    """What C33 is judged by, as arguments of `lab.verdict`.

    `race` timed "in one call" and "in steps" with a mask. If the call is faster by more
    than its FLOP are fewer, these don't explain it. A smaller gain may come from them
    or not: nothing is shown. `attention` is the reader's kernel, whose FLOP are
    counted, and false while it is open.
    """
    call, steps = race.timings[:2]
    gain = speedup(steps, call)
    with_mask = _share(attention)
    worth = 1 / with_mask
    evidence = False if gain.low > worth else "not shown"
    qkv = _qkv(8 * TILE)
    flop = {
        name: counted_flop(functools.partial(way, *qkv)) for name, way in ways.items()
    }
    without_mask = flop["in one call"] / flop["in steps"]
    words = (
        f"{without_mask:.2f} x the FLOP without a mask, {with_mask:.2f} x with it,"
        f" worth {worth:.1f} x"
    )
    return {"evidence": evidence, "because": [words, gain]}


def _share(attention: Any) -> float:
    """The share of the FLOP that a causal mask leaves: counted in the reader's kernel,
    or calculated for tiles of 64 x 64 of 512 tokens where it multiplies nothing yet.
    """
    counted = share_with_mask(causal_trace(attention)) if attention else 0.0
    n_tiles = 512 // TILE
    return counted or (n_tiles + 1) / (2 * n_tiles)


@checked
def backward(forward: Callable[[], Tensor]) -> float:
    """How many times as long as `forward` its backward pass takes."""
    timing: dict[str, Any] = {
        "sync": machine().sync,
        "budget_s": pick(ci=0.3, cpu=1.0, gpu=1.0),
    }
    alone = time_call(forward, label="forward", **timing)
    both = time_call(lambda: forward().sum().backward(), label="both", **timing)
    return both.median_s / alone.median_s - 1
