"""torch.distributed.pipelining with stages that record what they do, orders of your
own, and steps that are timed.

Not loaded with ranks: importing torch's pipelining takes a second or more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Items, NonNegative, Positive, checked
from labkit.measure.bench import sync_of, time_call
from labkit.measure.dist import group_sync, together_s
from labkit.measure.standin import StandIn
from ranks import Span, SpanKind, span
from trainplan.errors import ScheduleError

Loss = Callable[[Tensor, Tensor], Tensor]
_STEP = re.compile(r"([FBW])(\d+)(?:\.(\d+))?", re.ASCII)


class WatchedStage(PipelineStage):
    """torch's PipelineStage, which also records each F, B and W as a span with the
    micro-batch's number.

    A span's label is "3", or "3.1" for chunk 1 of a rank. `most_held` is the largest
    number of micro-batches for which this rank held activations at once; with several
    chunks each counts as its part of one. Both begin with `watch`.
    """

    most_held = 0.0
    _peers: Sequence[WatchedStage] = ()

    def watch(self, stages: Sequence[WatchedStage]) -> None:
        """Begin to record; `stages` are all of this rank's, this one included."""
        self._peers = stages
        self.most_held = 0.0

    def _get_init_p2p_neighbors_ops(self) -> list[Any]:
        # torch 2.11 also lets two stages of one rank greet each other, which gloo can't
        return [
            op
            for op in super()._get_init_p2p_neighbors_ops()
            if op.group_peer != self.group_rank
        ]

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch does it, inside a span "F"."""
        return self._recorded(
            "F", super().forward_one_chunk, fwd_chunk_id, *args, **kwargs
        )

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch does it, inside a span "B"."""
        return self._recorded(
            "B", super().backward_one_chunk, bwd_chunk_id, *args, **kwargs
        )

    def backward_weight_one_chunk(
        self, bwd_chunk_id: int, *args: Any, **kwargs: Any
    ) -> Any:
        """As torch does it, inside a span "W"."""
        return self._recorded(
            "W", super().backward_weight_one_chunk, bwd_chunk_id, *args, **kwargs
        )

    def _recorded(
        self,
        kind: SpanKind,
        work: Callable[..., Any],
        microbatch: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not self._peers:
            return work(microbatch, *args, **kwargs)
        chunk = self.stage_index // self.group_size
        with span(
            kind, f"{microbatch}.{chunk}" if len(self._peers) > 1 else f"{microbatch}"
        ):
            result = work(microbatch, *args, **kwargs)
            if self.device.type == "cuda":  # the kernels have only been queued
                torch.cuda.synchronize(self.device)
        # What torch keeps for a backward still to come, whole or of the weights alone.
        held = sum(
            len(_kept_forward(stage)) + len(stage.backward_state)
            for stage in self._peers
        )
        self.most_held = max(self.most_held, held / len(self._peers))
        return result


def _kept_forward(stage: WatchedStage) -> Sized:
    """What a stage keeps of each forward until its backward."""
    if hasattr(stage, "fwd_cache"):
        kept: Sized = stage.fwd_cache
    else:  # since torch 2.15
        kept = stage._forward_chunk_states  # type: ignore[attr-defined]
    return kept


Stages = Annotated[Sequence[WatchedStage], Items(1)]


class OwnSchedule(_PipelineScheduleRuntime):
    """torch's own runtime for an order written as lists of "F0", "B0" and "W0", as
    `lab.schedule` explains them.

    torch adds the sends and receives. `placement` is as in `lab.schedule.simulate`:
    chunk c of rank r is stage c * ranks + r, or in a "v", where odd chunks run back, c
    * ranks + ranks - 1 - r for odd c.
    """

    @checked(error=ScheduleError)
    def __init__(
        self,
        stages: Stages,
        n_microbatches: Count,
        loss_fn: Loss,
        *,
        order: Annotated[Sequence[Sequence[str]], Items(1)],
        placement: Literal["loop", "v"] = "loop",
    ) -> None:
        super().__init__(list(stages), n_microbatches, loss_fn=loss_fn)  # type: ignore[no-untyped-call]  # torch gives it no types
        split = any(step.startswith("W") for steps in order for step in steps)
        names = {"F": "F", "B": "I" if split else "B", "W": "W"}
        self.pipeline_order = {
            rank: [
                _torch_action(step, rank, len(order), names, placement)
                for step in steps
            ]
            for rank, steps in enumerate(order)
        }
        self._prepare_schedule_with_comms(self.pipeline_order)


def _torch_action(
    step: str, rank: int, ranks: int, names: dict[str, str], placement: str = "loop"
) -> Any:
    """A step as torch writes it, stage, kind and micro-batch: "F3.1" of rank 0 of 4 is
    "4F3", in a V "7F3".
    """
    if (match := _STEP.fullmatch(step)) is None:
        raise ScheduleError(
            f"Expected order to have steps such as 'F0', 'B0.1' or 'W2', got {step!r}."
        )
    kind = match[1]
    microbatch = match[2]
    chunk = int(match[3] or 0)
    place = ranks - 1 - rank if placement == "v" and chunk % 2 else rank
    return _Action.from_str(f"{chunk * ranks + place}{names[kind]}{microbatch}")


@checked(error=ScheduleError)
class StandInPart(nn.Module):
    """A part of a model that only takes time, on a lab.StandIn: for a forward, and for
    a backward in two parts.

    `backward_s` is the whole backward and `weight_s` its part for the weights'
    gradients, in seconds.
    """

    def __init__(
        self,
        forward_s: NonNegative,
        backward_s: NonNegative,
        weight_s: NonNegative = 0.0,
    ) -> None:
        super().__init__()
        if weight_s > backward_s:
            raise ScheduleError(
                f"Expected weight_s to be a part of backward_s, got {weight_s:g} of"
                f" {backward_s:g} s. backward_s is the whole backward, of inputs and"
                " weights."
            )
        device = StandIn(flop_per_s=1.0)  # so that FLOP are seconds
        self.weight = nn.Parameter(torch.ones(()))
        self.for_inputs = device.layer(forward_s, backward_s - weight_s)
        self.for_weights = device.layer(0.0, weight_s)

    def forward(self, x: Tensor) -> Tensor:
        """`x`, after the time has passed."""
        # the first stage's input; a real stage's later layers need gradients of their
        # inputs
        if not x.requires_grad:
            x = x.detach().requires_grad_()
        taken: Tensor = self.for_inputs(x) * self.for_weights(self.weight)
        return taken


@checked(error=ScheduleError)
def stand_in_stages(
    forward_s: NonNegative,
    backward_s: NonNegative,
    weight_s: NonNegative = 0.0,
    *,
    chunks: Count = 1,
    v: bool = False,
) -> list[WatchedStage]:
    """Make this rank's stages, one a chunk, which only take time; with `v` its two
    chunks are those of a V.
    """
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    own: Sequence[int] = range(rank, ranks * chunks, ranks)
    if v:
        own = (rank, 2 * ranks - 1 - rank)
    device = torch.device("cpu")
    parts = [StandInPart(forward_s, backward_s, weight_s) for _ in own]
    return [
        WatchedStage(part, stage, ranks * chunks, device)
        for part, stage in zip(parts, own, strict=True)
    ]


def device_of_rank() -> torch.device:
    """Where this rank computes: on its GPU with NCCL, else on the CPU."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def on_device(model: nn.Module, *tensors: Tensor) -> tuple[Any, ...]:
    """A model and tensors on this rank's device."""
    device = device_of_rank()
    return model.to(device), *(tensor.to(device) for tensor in tensors)


@checked
def layer_seconds(
    layers: Annotated[Sequence[nn.Module], Items(1)], x: Tensor, *, budget_s: Positive
) -> list[float]:
    """Seconds of each layer, forward and backward, one after another on the device of
    `x`, the first one's input.
    """
    sync = sync_of(x.device.type)
    seconds = []
    for layer in nn.Sequential(*layers).to(x.device):
        seconds.append(_both_ways_s(layer, x, sync, budget_s))
        x = layer(x).detach().requires_grad_()
    return seconds


def _both_ways_s(
    layer: nn.Module, x: Tensor, sync: Callable[[], None], budget_s: float
) -> float:
    def both_ways() -> None:
        layer(x).sum().backward()

    label = type(layer).__name__
    return time_call(both_ways, label=label, sync=sync, budget_s=budget_s).median_s


@checked
class PipelineStep:
    """A function without arguments: one step of a schedule, with forwards and
    backwards, and no optimizer.

    `inputs` go to the rank that has the first stage, `targets` to the one that has the
    last; the losses of the last call's micro-batches are in `losses` there.
    """

    def __init__(
        self, schedule: Any, stages: Stages, inputs: Tensor, targets: Tensor
    ) -> None:
        self.schedule = schedule
        self.stages = stages
        device = stages[0].device
        self._inputs = (
            [inputs.to(device)] if any(stage.is_first for stage in stages) else []
        )
        self._targets = (
            {"target": targets.to(device)}
            if any(stage.is_last for stage in stages)
            else {}
        )
        self.losses: list[Tensor] = []

    def __call__(self) -> None:
        """One step."""
        self.schedule.step(*self._inputs, losses=self.losses, **self._targets)

    def record_spans(self) -> float:
        """One more step, in which the stages record their spans; its seconds, from a
        common start to a common end.

        On a GPU it is slower than other steps, since each span ends with a wait for the
        GPU.
        """
        for stage in self.stages:
            stage.watch(self.stages)
        return together_s(self, group_sync())


@dataclass(frozen=True)
class Steps:
    """What one rank saw of its timed steps: seconds of each, and the largest number of
    micro-batches held at once.
    """

    seconds: tuple[float, ...]
    most_held: float


@checked
def timed(
    schedule: Any, stages: Stages, inputs: Tensor, targets: Tensor, *, steps: Count = 1
) -> Steps:
    """Warm up with one step of `schedule`, then time `steps` of them from a common
    start; spans are of the last.
    """
    step = PipelineStep(schedule, stages, inputs, targets)
    seconds = [together_s(step, group_sync()) for _ in range(steps)]
    return Steps(
        (*seconds[1:], step.record_spans()), max(stage.most_held for stage in stages)
    )


@checked
def stage_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans that watched stages recorded: F, B and W with a
    micro-batch's number.
    """
    return tuple(span for span in spans if span.kind in ("F", "B", "W") and span.label)


def idle_share(spans: Iterable[Span]) -> float:
    """The bubble that watched stages saw, 0 to 1: the ranks' time from the first F to
    the last step, less F, B and W.

    Raises BadArgument where no stage was watched.
    """
    watched = stage_spans(spans)
    if not watched:
        raise BadArgument(
            "Expected spans of watched stages, got none. Pass the spans of a launch"
            " whose stages were watched."
        )
    start_s = min(span.start_s for span in watched)
    end_s = max(span.end_s for span in watched)
    ranks = len({span.rank for span in watched})
    work_s = sum(span.seconds for span in watched)
    return 1 - work_s / (end_s - start_s) / ranks
