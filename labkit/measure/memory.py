"""Measure the most memory that a piece of work holds at once, on a GPU or a CPU."""

from __future__ import annotations

import gc
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.arguments import check_function
from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.units import format_bytes
from labkit.measure.bench import sync_of
from labkit.measure.chrome_trace import profiled
from labkit.measure.machine import machine

_ON_CPU = "every allocation that torch's profiler saw, summed in their order"


@dataclass(frozen=True, repr=False)
class PeakMemory(Shown):
    """The most bytes that a call's tensors held at once, what they held at its end, and how that was found.

    Both are beyond what was held before the call; what it returned is alive at its end. Tensors and what torch's
    allocator gives to libraries as workspace count. The driver's context and memory that a library takes behind
    torch's back don't, so a process holds more.
    """

    peak_bytes: int
    held_bytes: int
    device: str
    how: str

    def __str__(self) -> str:
        held = f"{format_bytes(self.held_bytes)} at the end"
        return f"at most {format_bytes(self.peak_bytes)} at once on {self.device}, {held} ({self.how})"


def peak_memory(work: Callable[[], object], *, device: str | None = None) -> PeakMemory:
    """Run `work` once and measure the most bytes its tensors held at once on `device` ("cpu", "cuda"; None: machine's).

    What `work` itself creates counts, also when it is freed again before the end; so let it build the model too if
    parameters should count. Raises BadArgument for another device and for "cuda" on a machine without one,
    BadMeasurement where nothing was allocated there.
    """
    import torch

    check_function("work", work)
    device = machine().device if device is None else device
    if device not in ("cpu", "cuda"):
        raise BadArgument(
            f"Expected device to be 'cpu' or 'cuda', got {brief_repr(device)}. Pass lab.start()'s .device."
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise BadArgument("Expected a GPU that torch can use for device='cuda', found none. Pass device='cpu'.")
    gc.collect()  # what earlier cells dropped must not be freed inside
    if device == "cuda":
        (peak_bytes, held_bytes), how = _on_gpu(work), "torch.cuda.max_memory_allocated"
    else:
        (peak_bytes, held_bytes), how = peak_and_end(trace_events(work)), _ON_CPU
    if peak_bytes <= 0:
        raise BadMeasurement(
            f"Expected some memory to be allocated on {device}, got none. Does the work create its tensors there?"
        )
    return PeakMemory(peak_bytes, held_bytes, device, how)


def _on_gpu(work: Callable[[], object]) -> tuple[int, int]:
    import torch

    sync = sync_of("cuda")
    sync()
    torch.cuda.reset_peak_memory_stats()
    before = int(torch.cuda.memory_allocated())
    result = work()
    sync()
    peak, held = int(torch.cuda.max_memory_allocated()), int(torch.cuda.memory_allocated())
    del result  # alive until here, so that what it holds is in `held`
    return peak - before, held - before


def trace_events(work: Callable[[], object], *, quiet: bool = False) -> list[dict[str, Any]]:
    """Run `work` once under torch's profiler; the events of its Chrome trace, "[memory]" events among them.

    Allocators report from the host, a GPU's too, so nothing else is traced. What `work` returned is alive until the
    last event. `quiet` also holds back what C++ code writes to stderr meanwhile: torch warns there of memory that is
    freed and was allocated before.
    """
    with tempfile.TemporaryDirectory() as folder:
        return profiled(work, Path(folder) / "trace.json", quiet=quiet, profile_memory=True)


def peak_and_end(events: list[dict[str, Any]]) -> tuple[int, int]:
    """Peak and end in bytes of the running sum over a trace's "[memory]" events of the CPU, by their time.

    No clock decides anything in it, so two runs agree.
    """
    on_cpu = [e for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type") == 0]
    steps = (int(e["args"]["Bytes"]) for e in sorted(on_cpu, key=lambda e: float(e["ts"])))
    sums = list(itertools.accumulate(steps, initial=0))
    return max(sums), sums[-1]
