"""A training loop on a simulated device, and the check of exercise 07.2: who waits for the loss, and how often."""

from __future__ import annotations

import math
import random

from labkit.lesson.checks import NotYet, as_number, call, function, number_close
from labkit.measure.simulated import SimulatedDevice

_ADD_S = 2e-6
_ORDER_S = 10e-6
_SLACK = 1.08
_MOST_STEPS = 100_000


class Loss:
    """A number in the device's memory. `+`, `*` and `/` are orders too; item(), float() and printing wait for it."""

    def __init__(self, job: Job, value: float) -> None:
        self._job, self._value = job, value

    def item(self) -> float:
        """The number, once everything ordered before is done."""
        self._job.device.copy_from(4)
        self._job.reads += 1
        return self._value

    def __add__(self, other: object) -> Loss:
        value = other._value if isinstance(other, Loss) else other
        if not isinstance(value, int | float):
            return NotImplemented
        self._job.device.launch(_ADD_S, name="add")
        return Loss(self._job, self._value + value)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Loss:
        self._job.device.launch(_ADD_S, name="multiply")
        return Loss(self._job, self._value * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Loss:
        return self * (1 / divisor)

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


class Job:
    """Training on a simulated device: prepare() is the host's work, step(batch) an order to the device.

    `prepare_s` and `step_s` are their seconds; losses are drawn from `seed`. `reads` counts how often a loss was read.
    """

    def __init__(self, *, prepare_s: float, step_s: float, seed: int = 0) -> None:
        self.device = SimulatedDevice(launch_s=_ORDER_S, compile_s=0.0)
        self.prepare_s, self.step_s = prepare_s, step_s
        self.losses: list[float] = []
        self.reads = 0
        self._draw = random.Random(seed)
        self._prepared: list[int] = []

    def prepare(self) -> int:
        """Prepare the next batch on the host; its number."""
        if len(self._prepared) + len(self.losses) > _MOST_STEPS:
            raise NotYet(f"{_MOST_STEPS:,} batches are enough: does the loop end after `steps`?")
        self.device.host(self.prepare_s, name="prepare")
        number = len(self.losses) + len(self._prepared)
        self._prepared.append(number)
        return number

    def step(self, batch: int) -> Loss:
        """Order a training step on a batch that was prepared; its loss, which stays on the device."""
        if batch not in self._prepared:
            raise NotYet(f"Batch {batch!r} was not prepared, or was trained on before: prepare() each batch anew.")
        self._prepared.remove(batch)
        self.device.launch(self.step_s, name="step")
        self.losses.append(self._draw.uniform(0.5, 2.5))
        return Loss(self, self.losses[-1])

    @property
    def seconds(self) -> float:
        """Seconds until all that was ordered is done."""
        self.device.synchronize()
        return self.device.clock()


def mean_loss(answer: object) -> str:
    """The mean loss of a loop that waits once, on jobs of which the host or the device is the slower one."""
    fn = function(answer, Job(prepare_s=1e-3, step_s=1e-3), 3)
    draw = random.Random(2702)
    for steps, host, device in ((1, 1.0, 1.0), (40, 1.0, 1.0), (25, 0.4, 1.0), (33, 1.0, 0.3), (300, 0.9, 1.0)):
        scale_s = draw.uniform(1e-3, 5e-3)
        job = Job(prepare_s=host * scale_s, step_s=device * scale_s, seed=draw.randrange(10**6))
        given = f"{steps} steps, {1e3 * job.prepare_s:.3g} ms of the host and {1e3 * job.step_s:.3g} ms of the device"
        as_given = job.device, job.prepare_s, job.step_s
        returned = call(fn, job, steps)
        reads = job.reads
        value = as_number(returned, "(no unit)", given)
        if (job.device, job.prepare_s, job.step_s) != as_given:
            raise NotYet("The loop changed the job's device or its times. Only the order of the calls is yours.")
        if len(job.losses) != steps:
            raise NotYet(f"For {given}: {len(job.losses)} steps were ordered.")
        right = math.fsum(job.losses) / steps
        number_close(value, right, rel=1e-9, unit="(no unit)", given=given, hint="The mean of all losses?")
        if not reads:
            raise NotYet(f"For {given}: the host never read a number. Return one: `.item()` of what is on the device.")
        _judge_seconds(job, steps, given)
    return "Every loss counts, and the host waits only when all has been ordered."


def _judge_seconds(job: Job, steps: int, given: str) -> None:
    """Whether host and device overlapped: the slower one sets the pace, and the other shows only once."""
    slower_s, faster_s = max(job.prepare_s, job.step_s), min(job.prepare_s, job.step_s)
    best_s = steps * slower_s + faster_s + steps * 4 * _ORDER_S
    if job.seconds <= _SLACK * best_s:
        return
    took = f"For {given}: the loop took {1e3 * job.seconds:.3g} ms, and {1e3 * best_s:.3g} ms are enough."
    if job.reads > 1 + steps // 10:
        raise NotYet(
            f"{took} The host read a loss {job.reads} times and waited for the device each time, which then had "
            "nothing to do while the next batch was prepared."
        )
    raise NotYet(
        f"{took} Host and device did not work at the same time. Order each step as soon as its batch is prepared, and "
        "wait for nothing in between."
    )
