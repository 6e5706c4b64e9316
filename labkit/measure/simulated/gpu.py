"""A simulated asynchronous accelerator: what a GPU's queue does to a clock, shown on any machine, in exact numbers."""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.errors import BadMeasurement
from labkit.core.units import format_seconds, format_si

# A benchmark may launch hundreds of thousands of kernels; the log keeps the last ones.
LOGGED_EVENTS = 10_000
# sleep() may return this much late, so the last stretch of a real wait is spun.
_SPUN_S = 1e-3
# Enough for any program; one that waits for a virtual clock to move by itself would wait for ever.
_MOST_IDLE_CALLS = 1_000_000


@dataclass(frozen=True)
class Event:
    """What ran, where (the host, the device, or the bus between them), and when: seconds of the device's clock."""

    name: str
    where: Literal["host", "device", "bus"]
    start_s: float
    end_s: float


class SimulatedDevice:
    """An accelerator that takes orders and works through them in turn, while the host goes on.

    `launch`, `matmul` and `copy_to` return after `launch_s` seconds, whatever they ordered; `copy_from` and
    `synchronize` wait until the queue is empty. The first launch of each kernel name holds the host for another
    `compile_s`. With `cached_share` below 1, a kernel launched again on the same input objects takes that share of its
    time. `jitter` is the sigma of a log-normal factor on each run time: 0.1 spreads runs by about 10 % around the
    median, and `seed` repeats them. The queue has no limit; a real one holds the host up once it is full.

    The clock is virtual: a number that launches, host work and waits move on, so that a lesson's results are exact and
    cost no time. With real=True the same waits are spent for real, on time.perf_counter.
    Reading a virtual clock a million times without anything that moves it raises BadMeasurement.
    The defaults are round numbers for teaching, of no particular card. Raises BadMeasurement for times and rates that
    can't be.
    """

    def __init__(
        self,
        *,
        launch_s: float = 10e-6,
        flops_per_s: float = 10e12,
        bus_bytes_per_s: float = 10e9,
        compile_s: float = 0.5,
        cached_share: float = 1.0,
        jitter: float = 0.0,
        seed: int = 0,
        real: bool = False,
    ) -> None:
        # a launch that took no time would leave an unsynchronised benchmark repeating it for ever
        for name, value in {
            "launch_s": launch_s,
            "flops_per_s": flops_per_s,
            "bus_bytes_per_s": bus_bytes_per_s,
        }.items():
            if value <= 0:
                raise BadMeasurement(f"{name} must be above 0, got {value}.")
        check_not_negative(compile_s=compile_s, cached_share=cached_share, jitter=jitter)
        self.launch_s, self.flops_per_s, self.bus_bytes_per_s = launch_s, flops_per_s, bus_bytes_per_s
        self.compile_s, self.cached_share, self.jitter, self.real = compile_s, cached_share, jitter, real
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._idle_calls = 0  # readings and waits since the virtual clock last moved
        self._idle_from_s = 0.0  # when the queue will have been worked through
        self._last_inputs: dict[str, tuple[object, ...]] = {}
        self._events: deque[Event] = deque(maxlen=LOGGED_EVENTS)

    def clock(self) -> float:
        """Seconds on the device's clock: virtual, from 0, or time.perf_counter with real=True."""
        if not self.real:
            self._count_idle_call()
        return self._moment_s()

    def launch(self, kernel_s: float, *, name: str = "kernel", inputs: tuple[object, ...] = ()) -> None:
        """Order `kernel_s` seconds of device work, and return after `launch_s` (and `compile_s` the first time)."""
        check_not_negative(kernel_s=kernel_s)
        if name not in self._last_inputs:
            self.host(self.compile_s, name=f"compile {name}")
        before = self._last_inputs.get(name, ())
        same = bool(inputs) and len(inputs) == len(before) and all(a is b for a, b in zip(inputs, before, strict=True))
        # the objects are kept, not their ids: a freed object's id may come back with another object
        self._last_inputs[name] = inputs
        self._order(name, "device", kernel_s * (self.cached_share if same else 1.0))

    def matmul(self, a: Any, b: Any) -> Any:
        """The product of (m, k) and (k, n) arrays, right at once; its simulated time is 2mkn FLOP over `flops_per_s`.

        The FLOP are m n inner products of k multiplications and k additions each.
        """
        (m, k), n = a.shape, b.shape[1]
        self.launch(2 * m * k * n / self.flops_per_s, name=f"matmul {m}x{k}x{n}", inputs=(a, b))
        return a @ b

    def copy_to(self, n_bytes: float) -> None:
        """Order a copy of `n_bytes` from host to device, and return after `launch_s`."""
        check_not_negative(n_bytes=n_bytes)
        self._order("copy to device", "bus", n_bytes / self.bus_bytes_per_s)

    def copy_from(self, n_bytes: float) -> None:
        """Copy `n_bytes` from device to host, and wait for it, as for all that was ordered before."""
        check_not_negative(n_bytes=n_bytes)
        self._order("copy to host", "bus", n_bytes / self.bus_bytes_per_s)
        self.synchronize()

    def host(self, seconds: float, *, name: str = "host work") -> None:
        """Keep the host busy for `seconds`, with random numbers for instance; the device goes on meanwhile."""
        check_not_negative(seconds=seconds)
        start_s = self._moment_s()
        self._wait_until(start_s + seconds)
        self._events.append(Event(name, "host", start_s, start_s + seconds))

    def synchronize(self) -> None:
        """Wait until everything ordered is done."""
        self._wait_until(self._idle_from_s)

    @property
    def events(self) -> tuple[Event, ...]:
        """The last 10,000 pieces of work in the order they were asked for; device work may lie in the future."""
        return tuple(self._events)

    def _order(self, name: str, where: Literal["device", "bus"], work_s: float) -> None:
        self.host(self.launch_s, name=f"launch {name}")
        start_s = max(self._moment_s(), self._idle_from_s)
        self._idle_from_s = start_s + work_s * self._random.lognormvariate(0.0, self.jitter)
        self._events.append(Event(name, where, start_s, self._idle_from_s))

    def _wait_until(self, moment_s: float) -> None:
        if not self.real:
            if moment_s > self._now_s:
                self._now_s, self._idle_calls = moment_s, 0
            else:
                self._count_idle_call()
            return
        if (left_s := moment_s - time.perf_counter() - _SPUN_S) > 0:
            time.sleep(left_s)
        while time.perf_counter() < moment_s:
            pass

    def _moment_s(self) -> float:
        return time.perf_counter() if self.real else self._now_s

    def _count_idle_call(self) -> None:
        self._idle_calls += 1
        if self._idle_calls > _MOST_IDLE_CALLS:
            raise BadMeasurement(
                f"The clock has not moved in {_MOST_IDLE_CALLS:,} readings: it is virtual, and only work, orders and "
                "waits move it."
            )

    def __str__(self) -> str:
        return (
            "simulated device: no time below was measured on hardware "
            f"({'real' if self.real else 'virtual'} clock, launch {format_seconds(self.launch_s)}, "
            f"{format_si(self.flops_per_s, 'FLOP/s')}, bus {format_si(self.bus_bytes_per_s, 'B/s')}, "
            f"first call {format_seconds(self.compile_s)} more, jitter {self.jitter:.0%})"
        )

    __repr__ = __str__


def check_not_negative(**values: float) -> None:
    """Raise BadMeasurement for a value below 0 or NaN."""
    for name, value in values.items():
        if not value >= 0:  # NaN too
            raise BadMeasurement(f"{name} must be 0 or more, got {value}.")
