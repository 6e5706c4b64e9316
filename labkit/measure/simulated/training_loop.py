"""Training on a simulated device: how the order of the host's calls decides how long a
loop takes.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.parameters import NonNegative, checked
from labkit.measure.simulated.gpu import SimulatedDevice
from steptime import each_read

LAUNCH_S = 10e-6
_OPERATOR_S = 2e-6
_LOSS_BYTES = 4
# Stops a loop that would never end.
_MOST_BATCHES = 100_000
# What a tensor tells without its numbers.
_DESCRIBES = (
    "__get__",
    "__hash__",
    "__len__",
    "dim",
    "element_size",
    "is_floating_point",
    "numel",
    "size",
    "stride",
)


class DeviceLoss(torch.Tensor):
    """A loss in the simulated device's memory: an operator on it is queued, whatever
    needs its number in Python waits.

    Its methods and operators are a tensor's, so it behaves as a loss on a GPU does.
    item(), float(), bool(), printing, cpu() and nonzero() wait, for example; a
    comparison is queued, and the `if` that takes its result waits.
    """

    job: TrainingJob

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Compute with the numbers, and let the device's clock know what a GPU would
        have queued or waited for.
        """
        job: TrainingJob = next(
            leaf.job for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls)
        )
        read: list[bool] = []
        with (
            torch._C.DisableTorchFunctionSubclass(),
            each_read(lambda: read.append(True)),
        ):
            plain, named = tree_map_only(
                cls, lambda loss: loss.as_subclass(Tensor), (args, kwargs or {})
            )
            result = func(*plain, **named)
            devices = [
                str(arg)
                for arg in (*plain[1:], *named.values())
                if isinstance(arg, str | torch.device)
            ]
            if read or "cpu" in (func.__name__, *devices):
                job.read()
                return result
            if func.__name__ not in _DESCRIBES:
                if not any(isinstance(part, Tensor) for part in tree_leaves(result)):
                    job.read()
                    return result
                job.device.launch(_OPERATOR_S, name=func.__name__)
            return tree_map_only(Tensor, job.on_device, result)


class TrainingJob:
    """Training on a simulated device: prepare() keeps the host busy, step(batch) queues
    work on the device.

    A batch takes the host `prepare_s` seconds and the device `step_s`. The losses are
    random, but fixed by `seed`; `reads` counts how often the host read from the device.
    """

    @checked
    def __init__(
        self, *, prepare_s: NonNegative, step_s: NonNegative, seed: int = 0
    ) -> None:
        self.device = SimulatedDevice(launch_s=LAUNCH_S, compile_s=0.0)
        self.prepare_s = prepare_s
        self.step_s = step_s
        self._losses: list[float] = []
        self.reads = 0
        self._random = random.Random(seed)
        self._prepared: set[int] = set()

    def prepare(self) -> int:
        """Prepare the next batch on the host and return its number. Raises
        BadMeasurement after 100,000 batches.
        """
        number = len(self._prepared) + len(self._losses)
        if number > _MOST_BATCHES:
            raise BadMeasurement(
                f"{_MOST_BATCHES:,} batches are enough: does the loop end after"
                " `steps`?"
            )
        self.device.host(self.prepare_s, name="prepare")
        self._prepared.add(number)
        return number

    @checked
    def step(self, batch: int) -> DeviceLoss:
        """Queue a training step on a prepared batch and return its loss, which stays on
        the device.

        Raises BadArgument for a batch that was not prepared, or was trained on before.
        """
        if batch not in self._prepared:
            raise BadArgument(
                f"Expected batch to be new, got {batch}, which was not prepared, or was"
                " trained on before: prepare()."
            )
        self._prepared.remove(batch)
        self.device.launch(self.step_s, name="step")
        self._losses.append(self._random.uniform(0.5, 2.5))
        return self.on_device(torch.tensor(self._losses[-1], dtype=torch.float64))

    @checked
    def on_device(self, value: Tensor) -> DeviceLoss:
        """The value as a tensor in the device's memory."""
        loss = value.as_subclass(DeviceLoss)
        loss.job = self
        return loss

    def read(self) -> None:
        """Copy a number to the host, after all queued work."""
        self.device.copy_from(_LOSS_BYTES)
        self.reads += 1

    @property
    def losses(self) -> tuple[float, ...]:
        """Every step's loss so far, read from the device."""
        self.read()
        return tuple(self._losses)

    @property
    def seconds(self) -> float:
        """Wait for all queued work, and return the seconds on the device's clock."""
        self.device.synchronize()
        return self.device.clock()
