"""How long a launch takes after a kernel's first, and how long with a fresh process for
each rank, in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

import labkit as lab

RANKS = 4
LAUNCHES = 7
SPAWNS = 3


def all_reduce() -> float:
    """What each rank does: meet the others and add one number up."""
    torch.distributed.init_process_group("gloo")
    x = torch.ones(1)
    torch.distributed.all_reduce(x)
    return x.item()


def seconds() -> float:
    """Seconds of one launch."""
    start_s = time.perf_counter()
    assert lab.launch(all_reduce, RANKS) == [RANKS] * RANKS
    return time.perf_counter() - start_s


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure: seconds, and their share of spawn's,
    both measured in turn.
    """
    # here, since each rank imports this module, and needs no agent
    from ranks.launcher import agent

    seconds()
    again = []
    spawned = []
    for _ in range(SPAWNS):
        again += [seconds() for _ in range(LAUNCHES)]
        method, agent.METHOD = agent.METHOD, "spawn"
        try:
            spawned.append(seconds())
        finally:
            agent.METHOD = method
    launch_s = statistics.median(again)
    yield f"a launch of {RANKS} ranks after the first", 0.6, launch_s, "s"
    yield (
        "its share of the time that spawn takes",
        100 / 12,
        100 * launch_s / statistics.median(spawned),
        "%",
    )


if __name__ == "__main__":
    for name, target, value, unit in rows():
        print(f"{name}: {value:.3g} {unit}, target {target:.3g}")
