"""A toy of GRPO: a model writes several answers to each prompt, and learns from which
of them got more reward than their group.

Source: Shao et al., DeepSeekMath (2024), arXiv 2402.03300, section 4.1.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from exercises.nb19.engine import BLOCK, PagedCache, read_on
from labkit.core import live_line
from labkit.core.display import Table
from labkit.measure import published
from labkit.measure.bench import sync_of
from labkit.measure.machine import threads
from labkit.train.models import SmallGPT

_GROUP = 8  # answers to each prompt
_LENGTH = 48  # tokens of an answer


class Step(NamedTuple):
    """Seconds of writing the answers, of the whole step, and the mean reward."""

    written_s: float
    total_s: float
    reward: float


def train(
    model: SmallGPT,
    prompts: Tensor,
    reward: Callable[[Tensor], Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    steps: int,
    *,
    cached: bool,
) -> list[Step]:
    """Train a copy of the model by so many steps, each of eight answers to prompts
    (P, T).

    reward: answers (P, 8, 48) to rewards (P, 8); loss_of: log-probabilities of their
    tokens (P, 8, 48) and rewards to a loss. It says how far it is; after Ctrl-C it has
    the steps until then, but for the first, which it needs.
    """
    learner = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-4)
    asked = prompts.repeat_interleave(_GROUP, 0)  # (P * 8, T)
    sync = sync_of(asked.device.type)
    shape = (len(prompts), _GROUP, _LENGTH)
    trained: list[Step] = []
    try:
        for number in range(1, steps + 1):
            cache = "with" if cached else "without"
            live_line.tell(f"Step {number} of {steps}, {cache} a cache.")
            with threads(1):
                begin_s = time.perf_counter()
                rows = rollouts(learner, asked, _LENGTH, cached=cached)
                sync()
                written_s = time.perf_counter() - begin_s
                rewards = reward(rows[:, -_LENGTH:].view(shape))  # (P, 8)
                chances = log_chances(learner, rows, _LENGTH).view(shape)
                optimizer.zero_grad()
                loss_of(chances, rewards).backward()
                optimizer.step()
                sync()
                total_s = time.perf_counter() - begin_s
            trained.append(Step(written_s, total_s, rewards.mean().item()))
    except KeyboardInterrupt:
        if not trained:
            raise
        live_line.tell("Stopped; the steps until then are kept.")
    live_line.end()
    return trained


@torch.no_grad()
def rollouts(model: SmallGPT, prompts: Tensor, n_new: int, *, cached: bool) -> Tensor:
    """Rows (B, T + n_new) that continue prompts (B, T), sampled; without the cache each
    step reads all tokens again.
    """
    rows = prompts
    n_blocks = -(-(prompts.shape[1] + n_new) // BLOCK)
    cache = PagedCache(model, n_blocks * len(prompts) if cached else 0)
    n_cached = 0
    for _ in range(n_new):
        if cached:
            length = rows.shape[1]
            # each row has its blocks from the beginning: all end at the same step
            firsts = [n_blocks * BLOCK * i for i in range(len(rows))]
            pages = [[*range(first, first + length)] for first in firsts]
            new = rows[:, n_cached:].tolist()
            logits = read_on(model, cache, new, [n_cached] * len(rows), pages)
            n_cached = length
        else:
            logits = model(rows)
        chances = logits[:, -1].softmax(-1)
        rows = torch.cat([rows, torch.multinomial(chances, 1)], 1)
    return rows


def log_chances(model: SmallGPT, rows: Tensor, n_new: int) -> Tensor:
    """The log of the probability of each of the last n_new tokens, (B, n_new)."""
    logits: Tensor = model(rows[:, :-1])[:, -n_new:]  # (B, n_new, rows of the table)
    picked: Tensor = logits.log_softmax(-1).gather(2, rows[:, -n_new:, None])
    return picked.squeeze(2)


def shares(trainings: Mapping[str, Sequence[Step]]) -> Table:
    """Which share of all steps was spent writing: here, and as others published it."""
    rows = []
    for name, steps in trainings.items():
        rows.append((f"here, {name}", f"{written_share(steps):.0%}", "measured here"))
    for row in published.table("rl_generation"):
        least = "more than " if row["at_least"] == "yes" else ""
        origin = f"published: {row['who']}"
        rows.append((row["training"], f"{least}{row['percent']}%", origin))
    links = "; ".join(row["source"] for row in published.table("rl_generation"))
    headings = ("training", "of its time spent writing", "origin")
    return Table(tuple(rows), headings, notes=(f"Sources: {links}.",))


def written_share(steps: Sequence[Step]) -> float:
    """The share of the seconds of some steps that was spent writing."""
    written_s = sum(step.written_s for step in steps)
    return written_s / sum(step.total_s for step in steps)
