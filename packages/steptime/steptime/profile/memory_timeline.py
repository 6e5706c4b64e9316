"""Memory in use over one training step, by purpose: parameters, gradients, optimizer
state, activations.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import record_function

from steptime._tables import Shown, Table
from steptime._units import format_bytes, format_seconds, significant
from steptime.arguments import brief_repr, expected, function, instance
from steptime.errors import TooLittleSeen
from steptime.profile import allocations
from steptime.profile.allocations import Held, Phase, StepTrace, phase_at, series
from steptime.profile.chrome_trace import TraceEvent, trace_events

_NOT_COUNTED = (
    "What existed before the steps and belongs to neither model nor optimizer, a batch"
    " say, is not counted."
)


@dataclass(frozen=True, repr=False)
class MemoryTimeline(Shown):
    """Bytes of live tensors over one step on `device`, by category, at each moment when
    they changed.

    `n_bytes[category][i]` are the bytes from `times_s[i]` on, in seconds since the step
    began, by the host's clock. Parameters include buffers. Activations are what the
    forward pass allocated and is still there as backward begins.
    """

    device: str
    times_s: tuple[float, ...]
    n_bytes: Mapping[str, tuple[int, ...]]
    phases: tuple[Phase, ...]
    peak_operator: str  # what ran when the peak was reached
    notes: tuple[str, ...] = (_NOT_COUNTED,)

    @property
    def total_bytes(self) -> tuple[int, ...]:
        """Bytes of all categories at each moment."""
        return tuple(map(sum, zip(*self.n_bytes.values(), strict=True)))

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once."""
        return max(self.total_bytes)

    @property
    def peak_s(self) -> float:
        """When the peak was first reached, in seconds since the step began."""
        return self.times_s[self._peak]

    @property
    def peak_phase(self) -> str:
        """The phase in which the peak was reached, or 'between phases'."""
        return phase_at(self.phases, self.peak_s) or "between phases"

    @property
    def at_peak(self) -> dict[str, int]:
        """Bytes by category at the peak."""
        peak = self._peak
        return {category: sizes[peak] for category, sizes in self.n_bytes.items()}

    @property
    def _peak(self) -> int:
        return self.total_bytes.index(self.peak_bytes)

    def against(self, predicted: Any) -> Table:
        """Table of predicted and measured bytes by category: the most at any moment,
        and at the peak.

        `predicted` has param_bytes, master_bytes, optimizer_bytes, gradient_bytes,
        activation_bytes and total_bytes, as trainplan's TrainingMemory, or has such a
        `memory`. Master weights count as parameters, as they are under autocast;
        temporary tensors are not predicted. The last row compares the total with the
        peak.
        """
        try:
            memory: Any = getattr(predicted, "memory", predicted)
            forecast: dict[str, int | None] = {
                allocations.PARAMETERS: int(memory.param_bytes + memory.master_bytes),
                allocations.STATE: int(memory.optimizer_bytes),
                allocations.GRADIENTS: int(memory.gradient_bytes),
                allocations.ACTIVATIONS: int(memory.activation_bytes),
                allocations.OTHER: None,
            }
            total = int(memory.total_bytes)
        except AttributeError:
            words = "a TrainingMemory"
            raise TypeError(expected("predicted", words, predicted)) from None
        at_peak = self.at_peak
        rows = [
            _row(name, forecast[name], max(self.n_bytes[name]), at_peak[name])
            for name in allocations.MEMORY_CATEGORIES
        ]
        rows.append(_row("all", total, self.peak_bytes, self.peak_bytes))
        headings = ("", "predicted", "measured at most", "of predicted", "at the peak")
        return Table(
            tuple(rows), headings, f"Memory of a step on {self.device}", self.notes
        )

    def __str__(self) -> str:
        at_peak = self.at_peak
        parts = [
            f"{format_bytes(at_peak[name])} {name}"
            for name in sorted(at_peak, key=lambda name: -at_peak[name])
            if at_peak[name]
        ]
        peak = f"peak {format_bytes(self.peak_bytes)} on {self.device}"
        when = f"after {format_seconds(self.peak_s)}, in {self.peak_phase}"
        if self.peak_operator:
            when += f" ({self.peak_operator})"
        return "\n".join([f"{peak} {when}: {', '.join(parts)}", *self.notes])


def _row(name: str, forecast: int | None, most: int, at_peak: int) -> tuple[str, ...]:
    predicted = "not predicted" if forecast is None else format_bytes(forecast)
    share = f"{significant(most / forecast)}x" if forecast else ""
    return name, predicted, format_bytes(most), share, format_bytes(at_peak)


def memory_timeline(
    step: Callable[[], object], model: nn.Module, optimizer: Optimizer | None = None
) -> MemoryTimeline:
    """Run `step` three times, and follow the memory in use during the third, which is
    warm and finds gradients.

    The device is that of the model's parameters, "cpu" or "cuda". Memory counts from
    when the host allocates it, before a GPU's kernels run. Raises TooLittleSeen for a
    step that allocates nothing there, as when it replays a CUDA graph.
    """
    function("step", step, 0)
    instance("model", model, nn.Module)
    device = _device_of(model)
    if optimizer is not None:
        instance("optimizer", optimizer, Optimizer)
    step()  # creates the optimizer's state, and all else that is created once
    held: list[Held] = []

    def work() -> None:
        # so that the profiler has seen the allocation of what is alive when the next
        # step begins
        step()
        held.append(_held(model, optimizer))
        with record_function(allocations.BEGIN):
            pass
        step()
        with record_function(allocations.END):
            pass
        held.append(_held(model, optimizer))

    with _gradients_named(model):
        # the first step's own output to stderr was not discarded
        events = trace_events(work, quiet=True)
    notes = [_NOT_COUNTED]
    if optimizer is None:
        notes.insert(0, "No optimizer was passed, so its state is not counted.")
    before, after = held
    return timeline_of(events, device, before, after, notes=tuple(notes))


def timeline_of(
    events: Sequence[TraceEvent],
    device: str,
    before: Held,
    after: Held,
    *,
    notes: tuple[str, ...] = (),
) -> MemoryTimeline:
    """The timeline of the step between a trace's marks; `before` and `after` are what
    was held at the marks.
    """
    trace = StepTrace(events, device)
    held = trace.sort(before, after)
    if not any(allocation.start > trace.begin for allocation in held):
        raise TooLittleSeen(
            f"Expected the step to allocate memory on {device}, saw nothing. Does it"
            " run there, and as plain code? A replayed CUDA graph allocates nothing:"
            " pass the step that was captured."
        )
    times, n_bytes = series(held, trace.begin, trace.end)
    totals = list(map(sum, zip(*n_bytes.values(), strict=True)))
    return MemoryTimeline(
        device=device,
        times_s=tuple((at - trace.begin) / 1e6 for at in times),
        n_bytes={category: tuple(values) for category, values in n_bytes.items()},
        phases=trace.phases,
        peak_operator=trace.operator_at(times[totals.index(max(totals))]),
        notes=notes,
    )


def _device_of(model: nn.Module) -> str:
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError(
            f"Expected a torch module with parameters, got {brief_repr(model)}. Pass"
            " the model."
        )
    if first.device.type not in allocations.DEVICE_TYPES:
        raise ValueError(
            f"Expected a model on a CPU or a CUDA GPU, got one on {first.device}. Move"
            " it with .to()."
        )
    return str(first.device.type)


def _held(model: nn.Module, optimizer: Optimizer | None) -> Held:
    """Category and bytes of the memory that model and optimizer hold at this moment, by
    address.
    """
    tensors = list[tuple[str, Tensor]]()
    states = optimizer.state.values() if optimizer is not None else ()
    for state in states:
        for value in state.values():
            if isinstance(value, Tensor):
                tensors.append((allocations.STATE, value))
    for parameter in model.parameters():
        if parameter.grad is not None:
            tensors.append((allocations.GRADIENTS, parameter.grad))
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        tensors.append((allocations.PARAMETERS, tensor))
    device = _device_of(model)
    held = dict[int, tuple[str, int]]()
    for category, tensor in tensors:
        # Adam's step counters are on the host
        if tensor.layout == torch.strided and tensor.device.type == device:
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = category, storage.nbytes()
    return held


@contextlib.contextmanager
def _gradients_named(model: nn.Module) -> Iterator[None]:
    """Within the block, mark the address of each parameter's gradient in the trace when
    it has been accumulated.
    """

    def mark(parameter: Tensor) -> None:
        if parameter.grad is not None and parameter.grad.layout == torch.strided:
            address = parameter.grad.untyped_storage().data_ptr()
            with record_function(f"{allocations.GRADIENT}{address}"):
                pass

    with contextlib.ExitStack() as hooks:
        for parameter in model.parameters():
            if parameter.requires_grad:
                hooks.enter_context(parameter.register_post_accumulate_grad_hook(mark))
        yield


def saved_activation_bytes(
    layer: torch.nn.Module | Callable[..., Any], *inputs: torch.Tensor
) -> int:
    """Bytes that `layer(*inputs)` saves until its backward pass, inputs included.

    Its parameters and buffers don't count, and tensors that share memory count once. An
    input that needs no gradient may be saved too. Tensors that a layer keeps by itself,
    as attributes, are not seen.
    """
    function("layer", layer, len(inputs))
    for tensor in inputs:
        words = "dense tensors with values"
        if not isinstance(tensor, Tensor):
            raise TypeError(expected("inputs", words, tensor))
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(expected("inputs", words, tensor))
    own_addresses = set[int]()
    if isinstance(layer, torch.nn.Module):
        for tensor in itertools.chain(layer.parameters(), layer.buffers()):
            own_addresses.add(tensor.untyped_storage().data_ptr())
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own_addresses:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        alive = layer(*inputs)  # while it lives, no address is reused
    del alive
    return sum(kept.values())
