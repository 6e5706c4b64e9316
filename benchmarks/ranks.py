"""How long a launch takes after a kernel's first, and how long torch's spawn takes in
the same run, which starts a fresh Python for each rank.

usage: python -m benchmarks.ranks
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import torch
from torch.multiprocessing.spawn import spawn as torch_spawn

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


def launch_seconds() -> float:
    """Seconds of one launch."""
    start_s = time.perf_counter()
    assert lab.launch(all_reduce, RANKS) == [RANKS] * RANKS
    return time.perf_counter() - start_s


def all_reduce_by_file(rank: int, folder: str) -> None:
    """The same in a process that torch spawned: it meets the others by a file."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    x = torch.ones(1)
    torch.distributed.all_reduce(x)
    assert x.item() == RANKS
    torch.distributed.destroy_process_group()


def spawn() -> None:
    """Print the seconds of one spawn."""
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        torch_spawn(all_reduce_by_file, (folder,), RANKS)
        print(time.perf_counter() - start_s)


def spawn_seconds() -> float:
    """Seconds of one spawn, in a program of its own: each rank imports the program that
    spawns it.
    """
    command = [sys.executable, "-m", "benchmarks.ranks", "spawn"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(ended.stdout)


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure: seconds, and their share of spawn's,
    both measured in turn.
    """
    launch_seconds()
    again = []
    spawned = []
    for _ in range(SPAWNS):
        again += [launch_seconds() for _ in range(LAUNCHES)]
        spawned.append(spawn_seconds())
    launch_s = statistics.median(again)
    yield f"a launch of {RANKS} ranks after the first", 0.6, launch_s, "s"
    yield (
        "its share of the time that spawn takes",
        100 / 12,
        100 * launch_s / statistics.median(spawned),
        "%",
    )


if __name__ == "__main__":
    if "spawn" in sys.argv:
        spawn()
        sys.exit()
    for name, target, value, unit in rows():
        print(f"{name}: {value:.3g} {unit}, target {target:.3g}")
