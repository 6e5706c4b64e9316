"""What a step runs on: its device and how to wait for it, torch's threads, the other ranks, and other programs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

# Begins to look at what other programs take of the machine, and returns a function that says in words what they have
# taken since, or nothing if that was too little to matter.
Watch = Callable[[], Callable[[], str]]


def unwatched() -> Callable[[], str]:
    """A Watch that never looks."""
    return str


def no_sync() -> None:
    """Return at once: the `sync` of a CPU, which finishes its work before a call returns."""


def sync_of(device: str) -> Callable[[], None]:
    """A function that waits for all queued work of "cuda"; for a CPU, `no_sync`."""
    import torch

    return no_sync if device == "cpu" else partial(torch.cuda.synchronize, device)


def name_of(device: str) -> str:
    """A GPU's name, or the number of threads that torch uses of a CPU."""
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name(device)
    n = torch.get_num_threads()
    return f"a CPU ({n} thread{'s' * (n != 1)})"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def distributed() -> bool:
    """Whether this process is one rank of several."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()
