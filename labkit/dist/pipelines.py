"""torch.distributed.pipelining, watched: stages that note what they do, orders of your own, and steps that are timed.

Not loaded with labkit.dist: importing torch's pipelining takes a second or more.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from labkit.core.arguments import check_number
from labkit.measure.bench import sync_of
from labkit.core.errors import BadArgument, ScheduleError
from labkit.dist.rank_context import span
from labkit.dist.measuring import in_turn_s, together_s
from labkit.dist.standin import StandIn
from labkit.core.spans import Span

Loss = Callable[[Tensor, Tensor], Tensor]


class WatchedStage(PipelineStage):
    """torch's PipelineStage, which also records each F, B and W as a span with the micro-batch's number.

    A span's label is "3", or "3.1" for chunk 1 of a rank. `most_held` is the most micro-batches that this rank kept
    something of at once, in units of the whole rank's share. Both begin with `watch`.
    """

    most_held = 0.0
    _peers: Sequence[WatchedStage] = ()

    def watch(self, stages: Sequence[WatchedStage]) -> None:
        """Begin to record; `stages` are all of this rank's, which hold micro-batches together."""
        self._peers, self.most_held = stages, 0.0

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """What torch does, and a span "F"."""
        return self._noted("F", super().forward_one_chunk, fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """What torch does, and a span "B"."""
        return self._noted("B", super().backward_one_chunk, bwd_chunk_id, *args, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """What torch does, and a span "W"."""
        return self._noted("W", super().backward_weight_one_chunk, bwd_chunk_id, *args, **kwargs)

    def _noted(self, kind: str, work: Callable[..., Any], microbatch: int, *args: Any, **kwargs: Any) -> Any:
        if not self._peers:
            return work(microbatch, *args, **kwargs)
        chunk = self.stage_index // self.group_size
        with span(kind, f"{microbatch}.{chunk}" if len(self._peers) > 1 else f"{microbatch}"):
            result = work(microbatch, *args, **kwargs)
            if self.device.type == "cuda":  # a kernel that is only ordered hasn't run
                torch.cuda.synchronize(self.device)
        # what torch keeps for a backward that is still to come, whole or of the weights alone
        held = sum(len(stage.fwd_cache) + len(stage.backward_state) for stage in self._peers)
        self.most_held = max(self.most_held, held / len(self._peers))
        return result


class OwnSchedule(_PipelineScheduleRuntime):
    """torch's runtime for an order written as lists of "F0", "B0" and "W0" (lab.schedule has what they mean).

    torch adds the sends and receives. Chunk c of rank r is stage c * ranks + r.
    """

    def __init__(
        self, stages: Sequence[WatchedStage], n_microbatches: int, loss_fn: Loss, *, order: Sequence[Sequence[str]]
    ) -> None:
        super().__init__(list(stages), n_microbatches, loss_fn=loss_fn)  # type: ignore[no-untyped-call]
        split = any(step.startswith("W") for steps in order for step in steps)
        names = {"F": "F", "B": "I" if split else "B", "W": "W"}
        with tempfile.TemporaryDirectory() as folder:  # torch's runtime reads orders from a file
            path = Path(folder) / "order.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(
                    [_in_torchs_words(step, rank, len(order), names) for step in steps]
                    for rank, steps in enumerate(order)
                )
            self._load_csv(str(path), format="compute_only")


def _in_torchs_words(step: str, rank: int, ranks: int, names: dict[str, str]) -> str:
    """As torch writes it: stage, kind, micro-batch: "F3.1" of rank 0 of 4 is "4F3"."""
    microbatch, _, chunk = step[1:].partition(".")
    return f"{int(chunk or 0) * ranks + rank}{names[step[0]]}{microbatch}"


class StandInPart(nn.Module):
    """A part of a model that only takes time, on a lab.StandIn: for a forward, and for a backward in two halves.

    `backward_s` is the whole backward and `weight_s` the part of it that is for the weights, in seconds.
    """

    def __init__(self, forward_s: float, backward_s: float, weight_s: float = 0.0) -> None:
        super().__init__()
        if not 0 <= weight_s <= backward_s:
            raise ScheduleError(
                f"Expected weight_s to be a part of backward_s, got {weight_s:g} of {backward_s:g} s. "
                "backward_s is the whole backward, of inputs and weights."
            )
        card = StandIn(flop_per_s=1.0)  # so that FLOP are seconds
        self.weight = nn.Parameter(torch.ones(()))
        self.for_inputs = card.layer(forward_s, backward_s - weight_s)
        self.for_weights = card.layer(0.0, weight_s)

    def forward(self, x: Tensor) -> Tensor:
        """`x`, later."""
        if not x.requires_grad:  # the first stage's; a real one has layers that need their inputs' gradients
            x = x.detach().requires_grad_()
        taken: Tensor = self.for_inputs(x) * self.for_weights(self.weight)
        return taken


class Stepping:
    """One step of a schedule on each call, with forwards and backwards, and no optimizer.

    `inputs` go to the rank that has the first stage, `targets` to the one that has the last; the losses of the last
    call's micro-batches are in `losses` there.
    """

    def __init__(self, schedule: Any, stages: Sequence[WatchedStage], inputs: Tensor, targets: Tensor) -> None:
        self.schedule, self.stages = schedule, stages
        device = stages[0].device
        self._given = [inputs.to(device)] if any(stage.is_first for stage in stages) else []
        self._wanted = {"target": targets.to(device)} if any(stage.is_last for stage in stages) else {}
        self.losses: list[Tensor] = []

    def __call__(self) -> None:
        """One step."""
        self.schedule.step(*self._given, losses=self.losses, **self._wanted)

    def watch(self) -> None:
        """Let the stages record, from now on."""
        for stage in self.stages:
            stage.watch(self.stages)


@dataclass(frozen=True)
class Steps:
    """What one rank saw of its timed steps: seconds of each, the losses of the last, and micro-batches held at most."""

    seconds: tuple[float, ...]
    most_held: float
    losses: tuple[float, ...]


def timed(
    schedule: Any,
    stages: Sequence[WatchedStage],
    inputs: Tensor,
    targets: Tensor,
    *,
    steps: int = 1,
    after: Callable[[], object] | None = None,
) -> Steps:
    """Warm up with one step of `schedule`, then time `steps` of them from a common start; spans are of the last.

    `after` runs behind each step, outside the clock: an optimizer's step, say.
    """
    step, sync = Stepping(schedule, stages, inputs, targets), sync_of(str(stages[0].device))
    seconds = []
    for number in range(steps + 1):
        if number == steps:
            step.watch()
        seconds.append(together_s(step, sync))
        if after is not None:
            after()
    losses = tuple(loss.item() for loss in step.losses)
    return Steps(tuple(seconds[1:]), max(stage.most_held for stage in stages), losses)


def taken_in_turn(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, ...]]:
    """Seconds of functions that all ranks call together, A B A B, each from a common start to a common end.

    The first reading is a warm-up's, `rounds` more follow. Where the last function is a Stepping, it steps once more at
    the end, off the clock, and its stages record the spans of that step: a watched GPU is waited for at each span.
    """
    check_number("rounds", rounds, least=1, whole=True)
    device = next((way.stages[0].device for way in ways.values() if isinstance(way, Stepping)), torch.device("cpu"))
    sync = sync_of(str(device))
    seconds = in_turn_s(ways, rounds, sync)
    last = list(ways.values())[-1] if ways else None
    if isinstance(last, Stepping):
        last.watch()
        together_s(last, sync)
    return seconds


def stage_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Only what watched stages recorded: F, B and W with a micro-batch's number."""
    return tuple(one for one in spans if one.kind in ("F", "B", "W") and one.label)


def idle_share(spans: Iterable[Span]) -> float:
    """The bubble that watched stages saw, 0 to 1: the ranks' time from the first F to the last step, less F, B and W.

    Raises BadArgument where no stage was watched.
    """
    found = stage_spans(spans)
    if not found:
        raise BadArgument(
            "Expected spans of watched stages, got none. Pass the spans of a launch that watched some."
        )
    length_s = max(one.end_s for one in found) - min(one.start_s for one in found)
    return 1 - sum(one.seconds for one in found) / length_s / len({one.rank for one in found})
