"""Which backend a launch can use, and how long an all-reduce takes with it on this machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from labkit.core.arguments import check_number
from labkit.core.display import brief_repr
from labkit.measure.bench import sync_of
from labkit.core.errors import BadArgument

_RUNS, _WARM = 9, 3


def backend(nproc: int | None = None) -> str:
    """Name the backend for `nproc` ranks of this machine: "nccl" where each can have a GPU of its own, else "gloo".

    RankContext a rank `nproc` is the number of ranks that run on this machine.
    """
    import torch
    import torch.distributed as dist

    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if nproc is None else nproc
    check_number("nproc", ranks, least=1, whole=True)
    return "nccl" if dist.is_nccl_available() and torch.cuda.device_count() >= ranks else "gloo"


def together_s(work: Callable[[], object], sync: Callable[[], object]) -> float:
    """Seconds of `work()`, which all ranks call, from when the last is ready until the last is done.

    `sync` blocks until a device's queued work is done.
    """
    import torch.distributed as dist

    dist.barrier()
    sync()
    start_s = time.perf_counter()
    work()
    sync()
    dist.barrier()
    return time.perf_counter() - start_s


def in_turn_s(
    ways: Mapping[str, Callable[[], object]], rounds: int, sync: Callable[[], object]
) -> dict[str, tuple[float, ...]]:
    """Seconds of each way by `together_s`, A B A B: the first reading is a warm-up's, `rounds` more follow."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            taken[name].append(together_s(way, sync))
    return {name: tuple(seconds) for name, seconds in taken.items()}


def all_reduce_seconds(
    sizes: Sequence[int], nproc: int, *, over: str | None = None, timeout_s: float = 120.0
) -> dict[int, float]:
    """Seconds that an all-reduce of each size, in bytes, takes between `nproc` ranks of this machine.

    For each size the median of 9 runs after 3 to warm up; of each run, which starts with a barrier, the slowest
    rank's time. float32, so sizes are rounded up to 4 bytes. `over` is "gloo", between processor cores, or "nccl",
    between GPUs; without it what `backend` says. BadArgument for sizes or a backend that are none.
    """
    from labkit.dist.launching import launch

    if not isinstance(sizes, list | tuple | range) or not sizes:
        raise BadArgument(f"Expected sizes to be a list of bytes, got {brief_repr(sizes)}.")
    for size in sizes:
        check_number("a size", size, least=1, whole=True)
    if over not in (None, "gloo", "nccl"):
        raise BadArgument(f'Expected over to be "gloo", "nccl" or nothing, got {brief_repr(over)}.')
    rows = launch(_time_sizes, nproc, [int(size) for size in sizes], over, timeout_s=timeout_s)
    return {int(size): statistics.median(map(max, zip(*runs, strict=True))) for size, runs in _by_size(sizes, rows)}


def _by_size(sizes: Sequence[int], rows: Sequence[list[list[float]]]) -> list[tuple[int, list[list[float]]]]:
    """For each size the readings of every rank."""
    return [(size, [row[i] for row in rows]) for i, size in enumerate(sizes)]


def _time_sizes(sizes: list[int], over: str | None) -> list[list[float]]:
    """In a rank: seconds of each run, size by size."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(over or backend())
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sync = sync_of(device)
    seconds = []
    for size in sizes:
        x = torch.zeros(-(-size // 4), device=device)
        runs = []
        for _ in range(_WARM + _RUNS):
            dist.barrier()
            sync()
            start_s = time.perf_counter()
            dist.all_reduce(x)
            sync()
            runs.append(time.perf_counter() - start_s)
        seconds.append(runs[_WARM:])
    return seconds
