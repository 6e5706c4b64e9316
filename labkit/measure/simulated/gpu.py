"""A simulated asynchronous accelerator: how a GPU's queue misleads a timer, shown on
any machine, in exact numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Literal

from labkit.core.display import Shown
from labkit.core.errors import BadMeasurement
from labkit.core.parameters import NonNegative, Number, Positive, checked
from labkit.core.units import format_seconds, format_si

# The log keeps the latest events only, since a benchmark may launch hundreds of
# thousands of kernels.
LOGGED_EVENTS = 10_000
# More than any program needs; one that waits for a virtual clock to advance by itself
# would never end.
_MOST_IDLE_CALLS = 1_000_000


@dataclass(frozen=True)
class Event:
    """What ran, where (host, device, or the bus between them), and when, in seconds of
    the virtual clock.
    """

    name: str
    where: Literal["host", "device", "bus"]
    start_s: float
    end_s: float


# Infinity makes copies take no time.
Rate = Annotated[float, Number(above=0, finite=False)]


class SimulatedDevice(Shown):
    """An accelerator that queues work and runs it in order while the host continues.

    `launch` and `copy_to` return after `launch_s` seconds, whatever they queued;
    `copy_from` and `synchronize` wait until the queue is empty. The first launch of
    each kernel name blocks the host for another `compile_s`. The queue is unlimited; a
    real one blocks the host when it is full.

    Only launches, host work and waits advance the virtual clock. A million readings or
    waits in a row that don't advance it raise BadMeasurement. The defaults are round
    numbers for teaching, of no particular card. Raises BadArgument for impossible times
    and rates.
    """

    @checked
    def __init__(
        self,
        *,
        launch_s: Positive = 10e-6,
        bus_bytes_per_s: Rate = 10e9,
        compile_s: NonNegative = 0.5,
    ) -> None:
        self.launch_s = launch_s
        self.bus_bytes_per_s = bus_bytes_per_s
        self.compile_s = compile_s
        self._now_s = 0.0
        self._idle_calls = 0  # readings and waits since the clock last moved
        self._idle_from_s = 0.0  # when the queue will be empty
        self._compiled: set[str] = set()
        self._events: deque[Event] = deque(maxlen=LOGGED_EVENTS)

    def clock(self) -> float:
        """Seconds on the virtual clock, which starts at 0."""
        self._count_idle_call()
        return self._now_s

    @checked
    def launch(self, kernel_s: NonNegative, *, name: str = "kernel") -> None:
        """Queue `kernel_s` seconds of device work, and return after `launch_s` (and
        `compile_s` the first time).
        """
        if name not in self._compiled:
            self._compiled.add(name)
            self.host(self.compile_s, name=f"compile {name}")
        self._queue(name, "device", kernel_s)

    @checked
    def copy_to(self, n_bytes: NonNegative) -> None:
        """Queue a copy of `n_bytes` from host to device, and return
        after `launch_s`.
        """
        self._queue("copy to device", "bus", n_bytes / self.bus_bytes_per_s)

    @checked
    def copy_from(self, n_bytes: NonNegative) -> None:
        """Copy `n_bytes` from device to host, and wait for that and for all work queued
        before.
        """
        self._queue("copy to host", "bus", n_bytes / self.bus_bytes_per_s)
        self.synchronize()

    @checked
    def host(self, seconds: NonNegative, *, name: str = "host work") -> None:
        """Keep the host busy for `seconds`, while the device continues
        with its queue.
        """
        start_s = self._now_s
        self._wait_until(start_s + seconds)
        self._events.append(Event(name, "host", start_s, start_s + seconds))

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self._wait_until(self._idle_from_s)

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest 10,000 events in the order they were queued; device work may end
        in the future.
        """
        return tuple(self._events)

    def _queue(self, name: str, where: Literal["device", "bus"], work_s: float) -> None:
        self.host(self.launch_s, name=f"launch {name}")
        start_s = max(self._now_s, self._idle_from_s)
        self._idle_from_s = start_s + work_s
        self._events.append(Event(name, where, start_s, self._idle_from_s))

    def _wait_until(self, moment_s: float) -> None:
        if moment_s > self._now_s:
            self._now_s = moment_s
            self._idle_calls = 0
        else:
            self._count_idle_call()

    def _count_idle_call(self) -> None:
        self._idle_calls += 1
        if self._idle_calls > _MOST_IDLE_CALLS:
            raise BadMeasurement(
                f"The clock has not moved in {_MOST_IDLE_CALLS:,} readings: it is"
                " virtual, and only queued work, host work and waits move it."
            )

    def __str__(self) -> str:
        return (
            "simulated device: no time below was measured on hardware (virtual clock,"
            f" launch {format_seconds(self.launch_s)}, bus"
            f" {format_si(self.bus_bytes_per_s, 'B/s')}, first call"
            f" {format_seconds(self.compile_s)} more)"
        )
