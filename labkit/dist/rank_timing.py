"""Time what all ranks of a process group do together, and name the backend that they can use."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from labkit.core.arguments import check_function, check_number
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.dist.launching import launch
from labkit.measure.bench import Timing, sync_of

_RUNS, _WARM = 9, 3  # an odd number of runs, whose median is one of them


def backend(nproc: int | None = None) -> str:
    """Name the backend for `nproc` ranks of this machine: "nccl" where each can have a GPU of its own, else "gloo".

    Inside a rank `nproc` defaults to the number of ranks that run on this machine.
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
    dist.barrier()  # or a rank that only sends would be done before its peers have received
    return time.perf_counter() - start_s


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Time functions in turn, A B A B, `rounds` times each after a round to warm up: a disturbance hits all alike.

    All ranks of a process group have to call it alike. A reading begins when the last rank is ready and ends when the
    last one is done; every rank gets its own readings, in seconds. BadArgument for fewer than 2 rounds, and for
    what can't be called.
    """
    check_number("rounds", rounds, least=2, whole=True, advice="Fewer have no spread.")
    for name, way in ways.items():
        check_function(name, way)
    sync = group_sync()
    readings_s: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            readings_s[name].append(together_s(way, sync))
    return {name: Timing(name, first_s, tuple(rest)) for name, (first_s, *rest) in readings_s.items()}


def group_sync() -> Callable[[], None]:
    """What blocks until the device that the process group uses is done: a GPU under NCCL, else nothing to wait for."""
    import torch.distributed as dist

    return sync_of("cuda" if dist.get_backend() == "nccl" else "cpu")


def all_reduce_seconds(
    sizes: Sequence[int], nproc: int, *, over: str | None = None, timeout_s: float = 120.0
) -> dict[int, float]:
    """Seconds that an all-reduce of each size, in bytes, takes between `nproc` ranks of this machine.

    For each size the median of 9 runs after 3 to warm up; of each run, which starts with a barrier, the slowest
    rank's time. float32, so sizes are rounded up to 4 bytes. `over` is "gloo", between processor cores, or "nccl",
    between GPUs; without it what `backend` says. BadArgument for other sizes and backends.
    """
    if not isinstance(sizes, list | tuple | range) or not sizes:
        raise BadArgument(f"Expected sizes to be a list of bytes, got {brief_repr(sizes)}.")
    for size in sizes:
        check_number("a size", size, least=1, whole=True)
    if over not in (None, "gloo", "nccl"):
        raise BadArgument(f'Expected over to be "gloo", "nccl" or nothing, got {brief_repr(over)}.')
    ranks = launch(_time_sizes, nproc, [int(size) for size in sizes], over, timeout_s=timeout_s)
    slowest = ([max(run) for run in zip(*readings, strict=True)] for readings in zip(*ranks, strict=True))
    return {int(size): statistics.median(runs) for size, runs in zip(sizes, slowest, strict=True)}


def _time_sizes(sizes: list[int], over: str | None) -> list[list[float]]:
    """In a rank: seconds of each run, size by size."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(over or backend())
    sync = group_sync()
    seconds = []
    for size in sizes:
        x = torch.zeros(-(-size // 4), device="cuda" if dist.get_backend() == "nccl" else "cpu")
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
