"""A reader's own ring in turn with gloo's all-reduce, on four ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

import labkit as lab
from labkit.core.parameters import Count, checked
from labkit.measure.bench import Ratio, Timing
from labkit.plot.picture import Picture

RANKS = 4
_FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class RingRace:
    """How many times as long as gloo's all-reduce the ring takes, and its last call as
    a picture.
    """

    slower: Ratio
    last_call: Picture


@checked
def against_gloo(
    ring: Callable[[Tensor], Tensor], rounds: Count, *, n_bytes: Count = 2**22
) -> RingRace:
    """Time `ring` and dist.all_reduce in turn, `rounds` times each, on a tensor of
    `n_bytes` bytes.
    """
    ran = lab.launch(_both_ways, RANKS, ring, n_bytes, rounds)
    timings = ran[0]
    slower = lab.speedup(timings["my ring"], timings["all_reduce"])
    # the two take turns, and the ring is second
    begun_s = max(span.end_s for span in ran.spans if span.label == "all_reduce")
    last = [s for s in ran.spans if s.label != "barrier" and s.start_s > begun_s]
    title = f"My ring, {RANKS} ranks, {n_bytes / 2**20:.3g} MiB"
    return RingRace(slower, lab.plot.gantt(last, title=title))


def _both_ways(
    ring: Callable[[Tensor], Tensor], n_bytes: int, rounds: int
) -> dict[str, Timing]:
    dist.init_process_group("gloo")
    x = torch.zeros(n_bytes // _FLOAT32)
    ways = {"all_reduce": lambda: dist.all_reduce(x), "my ring": lambda: ring(x)}
    return lab.dist.interleaved(ways, rounds)
