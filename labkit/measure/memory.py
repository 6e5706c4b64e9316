"""Measure the peak memory of a piece of work, on a GPU or a CPU."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.display import Shown
from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.parameters import checked
from labkit.core.units import format_bytes
from labkit.measure.bench import sync_of
from labkit.measure.machine import machine
from steptime import trace_events

_ON_CPU = "every allocation that torch's profiler saw, summed in order"


@dataclass(frozen=True, repr=False)
class PeakMemory(Shown):
    """The most bytes that a call held at once, the bytes at its end with its result
    alive, and how they were measured.

    Both are in addition to what was held before the call. Tensors and the workspace
    that libraries get from torch's allocator count; the driver's context and memory
    that a library allocates itself don't, so a process holds more.
    """

    peak_bytes: int
    held_bytes: int
    device: str
    how: str

    def __str__(self) -> str:
        held = f"{format_bytes(self.held_bytes)} at the end"
        return (
            f"at most {format_bytes(self.peak_bytes)} at once on {self.device}, {held}"
            f" ({self.how})"
        )


@checked
def peak_memory(
    work: Callable[[], object], *, device: Literal["cpu", "cuda"] | None = None
) -> PeakMemory:
    """Run `work` once and measure the most bytes that its tensors held at once on
    `device`.

    `device` is "cpu" or "cuda", by default this machine's. Only what `work` creates
    counts: let it build the model if parameters should count. Raises BadArgument for
    another device and for "cuda" without a GPU, BadMeasurement if nothing was allocated
    there.
    """
    import torch

    here = machine().device if device is None else device
    if here == "cuda" and not torch.cuda.is_available():
        raise BadArgument(
            "Expected a GPU that torch can use for device='cuda', found none. Pass"
            " device='cpu'."
        )
    gc.collect()  # garbage of earlier cells, freed during the work, would lower the sum
    if here == "cuda":
        peak_bytes, held_bytes = _on_gpu(work)
        how = "torch.cuda.max_memory_allocated"
    else:
        peak_bytes, held_bytes = peak_and_end(trace_events(work))
        how = _ON_CPU
    if peak_bytes <= 0:
        raise BadMeasurement(
            f"Expected some memory to be allocated on {here}, got none. Does the work"
            " create its tensors there?"
        )
    return PeakMemory(peak_bytes, held_bytes, here, how)


def _on_gpu(work: Callable[[], object]) -> tuple[int, int]:
    import torch

    sync = sync_of("cuda")
    sync()
    torch.cuda.reset_peak_memory_stats()
    before = int(torch.cuda.memory_allocated())
    result = work()
    sync()
    peak = int(torch.cuda.max_memory_allocated())
    held = int(torch.cuda.memory_allocated())
    del result  # alive until here, so that what it holds is in `held`
    return peak - before, held - before


def peak_and_end(events: list[dict[str, Any]]) -> tuple[int, int]:
    """Peak and final value, in bytes, of the running sum over a trace's "[memory]"
    events on the CPU.
    """
    on_cpu = [
        event
        for event in events
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == 0
    ]
    on_cpu.sort(key=lambda event: float(event["ts"]))
    changes = (int(event["args"]["Bytes"]) for event in on_cpu)
    held = list(itertools.accumulate(changes, initial=0))
    return max(held), held[-1]
