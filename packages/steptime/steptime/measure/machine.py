"""What a step runs on, and how much of it other programs take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from steptime.arguments import choice

# Begins to look at what other programs take of the machine, and returns a function that
# says in words what they have taken since, or nothing if that was too little to matter.
Watch = Callable[[], Callable[[], str]]
# a share from which on times are in doubt; each thread's first moments wait
_BUSY = 0.05
_TICK_NS = 25_000_000


def core_waits() -> Callable[[], str]:
    """A Watch on how long this process's threads wait for a core, on Linux; elsewhere
    it says nothing.

    Source: Linux, Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    """
    ran_before, waited_before = _ran_and_waited()

    def so_far() -> str:
        ran, waited = _ran_and_waited()
        ran -= ran_before
        waited -= waited_before
        share = waited / max(ran + waited, 1)
        if share <= _BUSY or waited <= _TICK_NS:
            return ""
        return f"this process waited for a core {share:.0%} of its time"

    return so_far


def _ran_and_waited() -> tuple[int, int]:
    """Nanoseconds on a core and waiting for one, of all threads."""
    ran = waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError):  # the thread has ended
            thread_ran, thread_waited = map(int, path.read_text().split()[:2])
            ran += thread_ran
            waited += thread_waited
    return ran, waited


def device_named(name: str | None) -> str:
    """The device, "cpu" or "cuda"; for None, "cuda" where torch has a GPU."""
    has_gpu = torch.cuda.is_available()
    if name is None:
        return "cuda" if has_gpu else "cpu"
    choice("device", name, ("cpu", "cuda"))
    if name == "cuda" and not has_gpu:
        raise ValueError(
            "Expected a GPU that torch can use for device='cuda', found none. Pass"
            " device='cpu'."
        )
    return name


def no_sync() -> None:
    """Return at once: the `sync` of a CPU, which finishes its work before a call
    returns.
    """


def sync_of(device: str) -> Callable[[], None]:
    """A function that waits for all queued work of "cuda"; for a CPU, `no_sync`."""
    return no_sync if device == "cpu" else partial(torch.cuda.synchronize, device)


def name_of(device: str) -> str:
    """A GPU's name, or "a CPU"."""
    return "a CPU" if device == "cpu" else torch.cuda.get_device_name(device)


@contextlib.contextmanager
def one_thread(n: int = 1) -> Iterator[None]:
    """Let torch use one CPU thread within the block, or `n`."""
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(n)
        yield


def rank() -> int:
    """The number of this process among the ranks; 0 where there is one."""
    return torch.distributed.get_rank() if distributed() else 0


def distributed() -> bool:
    """Whether this process is one rank of several."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
