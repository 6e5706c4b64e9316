"""A simulated computer with a CPU, a GPU and a bus between them, which misleads a
careless benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from labkit.core.display import Shown
from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.parameters import NonNegative, Positive, Size, checked
from labkit.core.units import format_seconds, format_si
from labkit.measure.simulated.gpu import Rate, SimulatedDevice

# Stops a benchmark that would never end.
_MOST_RUNS = 100_000
_BYTES = {"float32": 4, "float64": 8}


@dataclass(frozen=True, eq=False)
class Numbers:
    """`n` random numbers in the memory of the CPU or the GPU. Copies share the same
    `content` object.
    """

    n: int
    dtype: str
    where: Literal["cpu", "gpu"]
    content: object

    @property
    def n_bytes(self) -> int:
        """Their size in bytes."""
        return self.n * _BYTES[self.dtype]


@dataclass(frozen=True)
class Blur:
    """One blur: its processor, its input, its seconds without caches, and those of
    copying the input to the GPU.

    `reading` is how often the clock had been read before: blurs with the same one were
    timed together or not at all.
    """

    processor: Literal["cpu", "gpu"]
    n: int
    dtype: str
    seconds: float
    transfer_s: float
    reading: int


class Workstation(Shown):
    """A simulated computer that blurs `n` numbers on its CPU or its GPU, with the
    common traps of benchmarking.

    A blur takes the input's bytes over the processor's rate. The traps: the GPU queues
    work while the host continues (unless `waits`); a processor's first blur takes
    `compile_s` more; blurring the same numbers again takes only `cached_share` of the
    time; drawing a random number takes the host `random_s`; bytes reach the GPU at
    `bus_bytes_per_s`; each blur's time varies by a log-normal factor of sigma `jitter`
    (on the CPU `cpu_jitter`, if given). The clock is virtual. `on_run` gets every Blur;
    the workstation itself keeps no record, so that a benchmark can't read its times
    there. The defaults are round numbers for teaching, of no particular machine.
    """

    @checked
    def __init__(
        self,
        *,
        cpu_bytes_per_s: Positive = 1e9,
        gpu_bytes_per_s: Positive = 5e9,
        launch_s: Positive = 1e-6,
        waits: bool = False,
        compile_s: NonNegative = 0.3,
        cached_share: NonNegative = 0.1,
        random_s: NonNegative = 10e-9,
        bus_bytes_per_s: Rate = 10e9,
        jitter: NonNegative = 0.1,
        cpu_jitter: NonNegative | None = None,
        seed: int = 0,
        on_run: Callable[[Blur], None] | None = None,
    ) -> None:
        cpu_jitter = jitter if cpu_jitter is None else cpu_jitter
        self._gpu = SimulatedDevice(
            launch_s=launch_s, bus_bytes_per_s=bus_bytes_per_s, compile_s=0.0
        )
        self._rates: dict[str, float] = {"cpu": cpu_bytes_per_s, "gpu": gpu_bytes_per_s}
        self._waits = waits
        self._compile_s = compile_s
        self._cached_share = cached_share
        self._random_s = random_s
        self._bus_bytes_per_s = bus_bytes_per_s
        self._jitter: dict[str, float] = {"cpu": cpu_jitter, "gpu": jitter}
        self._random = random.Random(seed)
        self._seen: dict[str, set[object]] = {"cpu": set(), "gpu": set()}
        self._on_run = on_run
        self._runs = self._readings = 0

    def clock(self) -> float:
        """Seconds on the workstation's virtual clock."""
        self._readings += 1
        return self._gpu.clock()

    @checked
    def random(self, n: Size, dtype: Literal["float32", "float64"]) -> Numbers:
        """Draw `n` new random numbers, "float32" or "float64", in the CPU's memory. The
        host is busy meanwhile.
        """
        self._gpu.host(n * self._random_s, name="draw random numbers")
        return Numbers(n, dtype, "cpu", object())

    @checked
    def to_gpu(self, x: Numbers) -> Numbers:
        """Queue a copy of `x` to the GPU's memory, and return at once."""
        self._gpu.copy_to(x.n_bytes)
        self._wait_if_asked()
        return Numbers(x.n, x.dtype, "gpu", x.content)

    @checked
    def cpu_blur(self, x: Numbers) -> None:
        """Blur `x` on the CPU, and return when it is done."""
        self._gpu.host(self._work_s(x, "cpu"), name="blur")

    @checked
    def gpu_blur(self, x: Numbers) -> None:
        """Queue a blur of `x`, which must be in the GPU's memory, and return at once.
        The result stays there.
        """
        self._gpu.launch(self._work_s(x, "gpu"), name="blur")
        self._wait_if_asked()

    def synchronize(self) -> None:
        """Wait until the GPU has done all queued work."""
        self._gpu.synchronize()

    def _work_s(self, x: Numbers, processor: Literal["cpu", "gpu"]) -> float:
        if x.where != processor:
            memory = {"cpu": "main memory", "gpu": "the GPU's memory"}
            raise BadArgument(
                f"{processor}_blur needs its numbers in {memory[processor]}; these are"
                f" in {memory[x.where]}."
            )
        if self._runs >= _MOST_RUNS:
            raise BadMeasurement(
                f"{_MOST_RUNS:,} blurs are enough for any benchmark. Does its loop end?"
            )
        seen = self._seen[processor]
        work_s = (
            x.n_bytes
            / self._rates[processor]
            * self._random.lognormvariate(0.0, self._jitter[processor])
        )
        transfer_s = x.n_bytes / self._bus_bytes_per_s if processor == "gpu" else 0.0
        self._runs += 1
        if self._on_run is not None:
            self._on_run(
                Blur(processor, x.n, x.dtype, work_s, transfer_s, self._readings)
            )
        cached = x.content in seen
        if not seen:
            self._gpu.host(self._compile_s, name="compile")
        seen.add(x.content)
        return work_s * (self._cached_share if cached else 1.0)

    def _wait_if_asked(self) -> None:
        if self._waits:
            self._gpu.synchronize()

    def __str__(self) -> str:
        return (
            "simulated workstation: no time was measured on hardware (CPU"
            f" {format_si(self._rates['cpu'], 'B/s')}, GPU"
            f" {format_si(self._rates['gpu'], 'B/s')}, bus"
            f" {format_si(self._bus_bytes_per_s, 'B/s')}, first call"
            f" {format_seconds(self._compile_s)} more, jitter"
            f" {self._jitter['gpu']:.0%})"
        )
