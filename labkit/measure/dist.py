"""`lab.dist`: launch ranks and see what other programs took meanwhile; time what all
ranks of a group do together.

What launches is the package `ranks`, whose names stand here too; what is added to it is
labkit's measuring.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import ranks
from labkit.core.parameters import Count, Items, Number, checked
from labkit.core.paths import ROOT
from labkit.measure.bench import Timing, sync_of
from labkit.measure.contention import Contention, Watch, add_ended
from labkit.measure.readings import no_sync
from ranks import MOST_RANKS, Report, report, span

__all__ = [
    "Report",
    "WatchedLaunch",
    "all_reduce_seconds",
    "backend",
    "interleaved",
    "launch",
    "report",
    "span",
    "sync_of",
]
Ranks = Annotated[
    int,
    Number(
        least=1, most=MOST_RANKS, advice="It is the number of ranks on this machine."
    ),
]
# Ranks that use `lab.dist` find it imported, and what a rank waits in is told by the
# line that called labkit.
ranks.preload(__name__, "labkit.measure.standin")
ranks.hide_frames(ROOT / "labkit")
# an odd number of runs, whose median is one of them
_RUNS = 9
_WARM = 3


@dataclass(frozen=True, repr=False, eq=False)
class WatchedLaunch(ranks.Launched):
    """What `ranks.launch` returns, with `contention`: what other programs took of the
    ranks' time.
    """

    contention: Contention = field(default=Contention())

    def __repr__(self) -> str:
        text = super().__repr__()
        reason = self.contention.reason
        return f"{text}; {reason}" if reason else text


@functools.wraps(ranks.launch)
def launch(  # noqa: D103  # ranks.launch's
    fn: Callable[..., Any], nproc: int, *args: Any, **options: Any
) -> WatchedLaunch:
    watch = Watch()
    launched = ranks.launch(fn, nproc, *args, **options)
    add_ended(launched.spent)
    return WatchedLaunch(**vars(launched), contention=watch.so_far())


@checked
def backend(nproc: Count | None = None) -> str:
    """Name the backend for `nproc` ranks of this machine: "nccl" where each can have a
    GPU of its own, else "gloo".

    Inside a rank `nproc` defaults to the number of ranks that run on this machine.
    """
    import torch
    import torch.distributed as dist

    if nproc is None:
        nproc = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    enough_gpus = torch.cuda.device_count() >= nproc
    return "nccl" if dist.is_nccl_available() and enough_gpus else "gloo"


def together_s(work: Callable[[], object], sync: Callable[[], object]) -> float:
    """Seconds of `work()`, which all ranks call, from when the last is ready until the
    last is done.

    `sync` blocks until a device's queued work is done.
    """
    import torch.distributed as dist

    dist.barrier()
    sync()
    start_s = time.perf_counter()
    work()
    sync()
    # or a rank that only sends would be done before its peers have received
    dist.barrier()
    return time.perf_counter() - start_s


@checked
def interleaved(
    ways: Mapping[str, Callable[[], object]],
    rounds: Annotated[int, Number(least=2, advice="Fewer have no spread.")],
) -> dict[str, Timing]:
    """Time functions in turn, A B A B, `rounds` times each after a round to warm up: a
    disturbance hits all alike.

    All ranks of a process group have to call it alike. A reading begins when the last
    rank is ready and ends when the last one is done; every rank gets its own readings,
    in seconds, which know what other programs took meanwhile. BadArgument for fewer
    than 2 rounds, and for what can't be called.
    """
    sync = group_sync()
    watch = Watch(gpu=sync is not no_sync)
    readings_s: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            readings_s[name].append(together_s(way, sync))
    taken = watch.so_far()
    return {
        name: Timing(name, first_s, tuple(rest), contention=taken)
        for name, (first_s, *rest) in readings_s.items()
    }


def group_sync() -> Callable[[], None]:
    """What blocks until the device that the process group uses is done: a GPU under
    NCCL, else nothing to wait for.
    """
    import torch.distributed as dist

    return sync_of("cuda" if dist.get_backend() == "nccl" else "cpu")


@checked
def all_reduce_seconds(
    sizes: Annotated[Sequence[Count], Items(1)],
    nproc: Ranks,
    *,
    over: Literal["gloo", "nccl"] | None = None,
) -> dict[int, float]:
    """Seconds that an all-reduce of each size, in bytes, takes between `nproc` ranks of
    this machine.

    For each size the median of 9 runs after 3 to warm up; of each run, which starts
    with a barrier, the slowest rank's time. The sizes take turns, so a busy moment
    slows all of them. float32, so sizes are rounded up to 4 bytes. `over` is "gloo",
    between processor cores, or "nccl", between GPUs; without it what `backend` says.
    BadArgument for other sizes and backends.
    """
    by_rank = launch(_time_sizes, nproc, sizes, over, timeout_s=120.0)
    seconds: list[list[float]] = [[] for _ in sizes]  # of the slowest rank, by round
    for round_of_ranks in zip(*by_rank, strict=True):
        for readings, of_ranks in zip(
            seconds, zip(*round_of_ranks, strict=True), strict=True
        ):
            readings.append(max(of_ranks))
    return dict(zip(sizes, map(statistics.median, seconds), strict=True))


def _time_sizes(sizes: Sequence[int], over: str | None) -> list[list[float]]:
    """In a rank: seconds of each size, round by round."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(over or backend())
    sync = group_sync()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensors = [torch.zeros(-(-size // 4), device=device) for size in sizes]
    rounds = []
    for _ in range(_WARM + _RUNS):
        seconds = []
        for x in tensors:
            dist.barrier()
            sync()
            start_s = time.perf_counter()
            dist.all_reduce(x)
            sync()
            seconds.append(time.perf_counter() - start_s)
        rounds.append(seconds)
    return rounds[_WARM:]
