"""GPUs that two benchmarks of notebook 02 time: this machine's own, or a simulated one
with a clock of its own. Both have the same methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.display import Shown
from labkit.core.units import format_seconds
from labkit.measure.bench import Timing
from labkit.measure.catalog import find
from labkit.measure.machine import Machine
from labkit.measure.published import Bus
from labkit.measure.simulated import SimulatedDevice

_GPU = "H200 SXM"  # whose memory bandwidth the simulated GPU has


class SquareOnGpu(Shown):
    """A kernel on this machine's GPU that multiplies a matrix of `side` rows by
    itself; `wait` waits for the GPU.
    """

    origin = "measured"

    def __init__(self, side: int, device: str, wait: Callable[[], object]) -> None:
        import torch

        self._square = torch.rand(side, side, device=device)
        self.size = f"{side:,} x {side:,}"
        self.wait = wait
        self.clock = time.perf_counter

    def launch(self) -> None:
        """Queue the kernel."""
        self._product = self._square @ self._square

    def __str__(self) -> str:
        return f"a product of two matrices of {self.size} numbers, on this GPU"


class SimulatedKernel(Shown):
    """A kernel that keeps a simulated GPU busy for `seconds`, and 20 µs of the host's
    time to launch.
    """

    origin = "simulated"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._gpu = SimulatedDevice(launch_s=20e-6, compile_s=0.0)
        self.size = f"{format_seconds(seconds)} of work"
        self.wait = self._gpu.synchronize
        self.clock = self._gpu.clock

    def launch(self) -> None:
        """Queue the kernel."""
        self._gpu.launch(self._seconds)

    def __str__(self) -> str:
        return f"a kernel of {format_seconds(self._seconds)} on a simulated GPU"


def a_kernel(
    machine: Machine, *, seconds: float, side: int
) -> SquareOnGpu | SimulatedKernel:
    """A kernel on this machine's GPU, of matrices with `side` rows, or without one a
    simulated kernel of so many `seconds`.
    """
    if machine.gpus:
        return SquareOnGpu(side, machine.device, machine.sync)
    return SimulatedKernel(seconds)


def beside_the_waiting_one(
    timed: Callable[..., float], kernel: SquareOnGpu | SimulatedKernel, waited: Timing
) -> str:
    """The reader's time of a kernel over the one that waited, in words."""
    seconds = timed(kernel.launch, kernel.wait, kernel.clock)
    return (
        f"Your stopwatch: {format_seconds(seconds)}, {seconds / waited.median_s:.3g}"
        f" times the {format_seconds(waited.median_s)} above."
    )


class DoublingOnGpu(Shown):
    """A batch of numbers that this machine's GPU doubles; `wait` waits for the GPU."""

    origin = "measured"

    def __init__(self, batch: Any, device: str, wait: Callable[[], object]) -> None:
        import torch

        self._batch = batch
        self._device = device
        self._there = batch.to(device)
        # made once: making it is not the work
        self._result = torch.empty_like(batch)
        self.double()
        self.wait = wait
        self.clock = time.perf_counter

    def copy_over(self) -> None:
        """Copy the batch to the GPU's memory."""
        self._there = self._batch.to(self._device)

    def double(self) -> None:
        """Queue the kernel."""
        self._doubled = self._there * 2

    def copy_back(self) -> None:
        """Copy the result to main memory."""
        self._result.copy_(self._doubled)

    def __str__(self) -> str:
        return "this machine's GPU"


class SimulatedDoubling(Shown):
    """A simulated GPU that doubles a batch of `n_bytes`: its memory has the bandwidth
    of an H200's data sheet, the bus to it what others measured.
    """

    origin = "simulated"

    def __init__(self, n_bytes: int, bus: Bus) -> None:
        self._n_bytes = n_bytes
        self._bus = bus
        self._gpu = SimulatedDevice(bus_bytes_per_s=bus.bytes_per_s, compile_s=0.0)
        bandwidth = find(_GPU).bandwidth_bytes_per_s
        assert bandwidth is not None
        self._kernel_s = 2 * n_bytes / bandwidth  # each byte is read and written
        self.wait = self._gpu.synchronize
        self.clock = self._gpu.clock

    @property
    def events(self) -> Sequence[Any]:
        """What ran when, for `lab.plot.timeline`."""
        return self._gpu.events

    def copy_over(self) -> None:
        """Queue the copy of the batch to the GPU's memory."""
        self._gpu.copy_to(self._n_bytes)

    def double(self) -> None:
        """Queue the kernel."""
        self._gpu.launch(self._kernel_s, name="times 2")

    def copy_back(self) -> None:
        """Queue the copy of the result to main memory."""
        self._gpu.copy_from(self._n_bytes)

    def __str__(self) -> str:
        return f"a simulated {_GPU} behind {self._bus.link}"


def doubling(
    batch: Any, machine: Machine, bus: Bus
) -> DoublingOnGpu | SimulatedDoubling:
    """What doubles a batch of float32 numbers: this machine's GPU, or without one a
    simulated GPU behind a bus.
    """
    if machine.gpus:
        return DoublingOnGpu(batch, machine.device, machine.sync)
    return SimulatedDoubling(batch.nbytes, bus)
