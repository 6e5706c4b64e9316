"""Training on a simulated device: how the order of the host's calls decides how long a loop takes."""

from __future__ import annotations

import random

from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.parameters import NonNegative, checked
from labkit.measure.simulated.gpu import SimulatedDevice

LAUNCH_S = 10e-6
_ADD_S = 2e-6
_LOSS_BYTES = 4
# Stops a loop that would never end.
_MOST_BATCHES = 100_000


class DeviceLoss:
    """A loss in the device's memory: `+`, `*` and `/` queue work; item(), float(), `<` and printing wait for it."""

    def __init__(self, job: TrainingJob, value: float) -> None:
        self._job, self._value = job, value

    def item(self) -> float:
        """Wait for all queued work, and return the number."""
        self._job.device.copy_from(_LOSS_BYTES)
        self._job.reads += 1
        return self._value

    def __add__(self, other: object) -> DeviceLoss:
        value = other._value if isinstance(other, DeviceLoss) else other
        if not isinstance(value, int | float):
            return NotImplemented
        return self._queued("add", self._value + value)

    __radd__ = __add__

    def __mul__(self, factor: float) -> DeviceLoss:
        return self._queued("multiply", self._value * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> DeviceLoss:
        return self * (1 / divisor)

    def _queued(self, name: str, value: float) -> DeviceLoss:
        self._job.device.launch(_ADD_S, name=name)
        return DeviceLoss(self._job, value)

    __float__ = item

    def __bool__(self) -> bool:
        return bool(self.item())

    def __lt__(self, other: float) -> bool:
        return self.item() < float(other)

    def __gt__(self, other: float) -> bool:
        return self.item() > float(other)

    def __repr__(self) -> str:
        return f"loss {self.item():.4f}"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)


class TrainingJob:
    """Training on a simulated device: prepare() keeps the host busy, step(batch) queues work on the device.

    A batch takes the host `prepare_s` seconds and the device `step_s`. `losses` has every step's loss, random but fixed
    by `seed`; `reads` counts how often the host read a loss from the device.
    """

    @checked
    def __init__(self, *, prepare_s: NonNegative, step_s: NonNegative, seed: int = 0) -> None:
        self.device = SimulatedDevice(launch_s=LAUNCH_S, compile_s=0.0)
        self.prepare_s, self.step_s = prepare_s, step_s
        self.losses: list[float] = []
        self.reads = 0
        self._random = random.Random(seed)
        self._prepared: set[int] = set()

    def prepare(self) -> int:
        """Prepare the next batch on the host and return its number. Raises BadMeasurement after 100,000 batches."""
        number = len(self._prepared) + len(self.losses)
        if number > _MOST_BATCHES:
            raise BadMeasurement(f"{_MOST_BATCHES:,} batches are enough: does the loop end after `steps`?")
        self.device.host(self.prepare_s, name="prepare")
        self._prepared.add(number)
        return number

    @checked
    def step(self, batch: int) -> DeviceLoss:
        """Queue a training step on a prepared batch and return its loss, which stays on the device.

        Raises BadArgument for a batch that was not prepared, or was trained on before.
        """
        if batch not in self._prepared:
            raise BadArgument(
                f"Expected batch to be new, got {batch}, which was not prepared, or was trained on before: prepare()."
            )
        self._prepared.remove(batch)
        self.device.launch(self.step_s, name="step")
        self.losses.append(self._random.uniform(0.5, 2.5))
        return DeviceLoss(self, self.losses[-1])

    @property
    def seconds(self) -> float:
        """Wait for all queued work, and return the seconds on the device's clock."""
        self.device.synchronize()
        return self.device.clock()
