"""The one simulated GPU: its device, context, streams and events. All work is done when
the call that asks for it returns.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kerneltrace.machine.grid import MAX_BLOCK, MAX_GRID, MAX_THREADS, WARP
from kerneltrace.source.front_end import DEFAULT_CAPABILITY

SHARED_BYTES = 48 * 1024
"""Of a block, without asking for more (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability").
"""
MULTIPROCESSORS = 108  # an A100's
MEMORY_BYTES = 16 << 30


class SimulatedStream:
    """A stream: nothing waits in it."""

    external = False

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle

    def synchronize(self) -> None:
        """Return: all is done."""

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[SimulatedStream]:
        """The stream, whose work is done at the end."""
        yield self

    def add_callback(self, callback: Callable[..., Any], arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` now."""
        callback(self, 0, arg)

    def async_done(self) -> Any:
        """A future of the running loop that is done, with this stream."""
        import asyncio

        future = asyncio.get_running_loop().create_future()
        future.set_result(self)
        return future


class SimulatedEvent:
    """An event: the moment at which it was recorded, on this machine's clock."""

    def __init__(self, timing: bool = True) -> None:
        self.timing = timing
        self._seconds = time.perf_counter()

    def record(self, stream: Any = 0) -> None:
        """Record this moment."""
        self._seconds = time.perf_counter()

    def query(self) -> bool:
        """Whether it has come, which it always has."""
        return True

    def wait(self, stream: Any = 0) -> None:
        """Return: it has come."""

    synchronize = wait

    def elapsed_time(self, other: SimulatedEvent) -> float:
        """Milliseconds to another event, of the simulation, which say nothing about a
        GPU.
        """
        return 1e3 * (other._seconds - self._seconds)


class _MemoryInfo(NamedTuple):
    free: int
    total: int


class _Deallocations:
    """Memory that waits to be given back: none."""

    def clear(self) -> None:
        """Return: nothing waits."""

    def __len__(self) -> int:
        return 0


class SimulatedCudaDevice:
    """The attributes of the GPU that tests ask for."""

    id = 0
    name = b"kerneltrace"
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    compute_capability = DEFAULT_CAPABILITY
    COMPUTE_CAPABILITY = DEFAULT_CAPABILITY
    supports_float16 = True
    supports_bfloat16 = True
    WARP_SIZE = WARP
    MAX_THREADS_PER_BLOCK = MAX_THREADS
    MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z = MAX_BLOCK
    MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z = MAX_GRID
    MAX_SHARED_MEMORY_PER_BLOCK = SHARED_BYTES
    MULTIPROCESSOR_COUNT = MULTIPROCESSORS
    COOPERATIVE_LAUNCH = 1

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"The simulated GPU has no {name}: only a real one can answer that."
        )

    def reset(self) -> None:
        """Return: nothing is kept."""


class SimulatedContext:
    """The context of the simulated GPU, also what `cuda.gpus[0]` gives."""

    id = 0
    device = SimulatedCudaDevice()
    compute_capability = DEFAULT_CAPABILITY
    deallocations = _Deallocations()
    allocations: dict[Any, Any] = {}  # noqa: RUF012  # empty, and numba's name
    create_stream = SimulatedStream
    create_event = SimulatedEvent
    defer_cleanup = contextlib.nullcontext

    def __enter__(self) -> SimulatedContext:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self).device, name)

    def push(self) -> None:
        """Return: it is the only one."""

    pop = reset = synchronize = push

    def get_memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all, which no array takes away from."""
        return _MemoryInfo(MEMORY_BYTES, MEMORY_BYTES)


CONTEXT = SimulatedContext()


class SimulatedDevices:
    """`cuda.gpus`: a sequence of one."""

    lst = (CONTEXT,)
    current = CONTEXT

    def __getitem__(self, number: int) -> SimulatedContext:
        return self.lst[number]

    def __len__(self) -> int:
        return len(self.lst)

    def __iter__(self) -> Iterator[SimulatedContext]:
        return iter(self.lst)


# -- functions of numba.cuda


def current_context(devnum: int | None = None) -> SimulatedContext:
    """The only context; IndexError for another device's."""
    return SimulatedDevices.lst[devnum or 0]


def get_current_device() -> SimulatedCudaDevice:
    """The only device."""
    return SimulatedContext.device


def nothing(*args: Any, **options: Any) -> None:
    """Return: there is nothing to wait for, to close or to profile."""


def driver_version() -> tuple[int, int]:
    """The CUDA that a driver of the simulated GPU would say it runs."""
    return (13, 0)


def yes(*args: Any, **options: Any) -> bool:
    """What a simulated GPU answers when it is asked whether it is there."""
    return True


def detect() -> bool:
    """Write what there is."""
    name = SimulatedContext.device.name.decode()
    sys.stdout.write(f"Found 1 CUDA devices\nid 0    {name:>20} {'[SUPPORTED]':>40}\n")
    return True
