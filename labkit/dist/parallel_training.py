"""Measure data parallelism: ways to take a step, in turn on all ranks, and when buckets of gradients travel."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.core.arguments import check_function, check_number
from labkit.core.display import brief_repr
from labkit.measure.bench import Timing
from labkit.core.errors import BadArgument
from labkit.measure.machine import sync_of
from labkit.dist import Launched, StandIn, launch
from labkit.dist.rank_context import me
from labkit.dist.measuring import in_turn_s
from labkit.core.display import Shown
from labkit.core.spans import Span
from labkit.core.units import MIB, format_seconds

if TYPE_CHECKING:
    from torch.futures import Future

_WARM = 2  # DistributedDataParallel orders its buckets anew after the first step
_FLOAT32 = 4


def in_step(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Time each way to take a step on every rank of a process group, `rounds` times, A B A B after a round to warm up.

    To be called by all ranks alike. A reading begins when the last rank is ready and ends when the last one is done.
    Every rank gets its own readings, in seconds. BadArgument for fewer than 2 rounds or what can't be called.
    """
    check_number("rounds", rounds, least=2, whole=True, advice="Fewer have no spread.")
    for name, way in ways.items():
        check_function(name, way)
    sync = sync_of("cuda" if dist.get_backend() == "nccl" else "cpu")
    return {name: Timing(name, seconds[0], seconds[1:]) for name, seconds in in_turn_s(ways, rounds, sync).items()}


@dataclass(frozen=True, repr=False)
class Backward(Shown):
    """Backward passes of stand-in layers with real exchanges: seconds of each, and the last one's spans on rank 0."""

    seconds: tuple[float, ...]
    spans: tuple[Span, ...]
    buckets: int

    @property
    def median_s(self) -> float:
        """Median seconds, from the begin of backward to the last bucket's arrival."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        buckets = f"{self.buckets} bucket{'s' * (self.buckets != 1)}"
        return f"backward with {buckets}: {format_seconds(self.median_s)} (simulated compute, real exchange)"


def backward_by_buckets(
    backward_s: Sequence[float], n_bytes: Sequence[int], *, bucket_bytes: float, ranks: int = 2, steps: int = 5
) -> Backward:
    """Run DistributedDataParallel over layers that sleep: what lab.schedule.overlap predicts, as it goes.

    Backward seconds and gradient bytes of each layer, last layer first. Compute is simulated, so it needs no core; the
    all-reduces between `ranks` gloo ranks are real. Raises BadArgument for lists that are none or differ in length.
    """
    if not isinstance(backward_s, list | tuple) or not isinstance(n_bytes, list | tuple):
        raise BadArgument(f"Expected two lists with a number for each layer, got {brief_repr(backward_s)}.")
    if not backward_s or len(backward_s) != len(n_bytes):
        raise BadArgument(f"Expected a number for each layer, got {len(backward_s)} seconds, {len(n_bytes)} bytes.")
    check_number("bucket_bytes", bucket_bytes, above=0)
    check_number("steps", steps, least=1, whole=True)
    found = launch(_backward, ranks, list(backward_s), list(n_bytes), bucket_bytes / MIB, int(steps))
    taken, sent, zero_s = found[0]
    return Backward(tuple(taken), _spans(found, sorted(sent), zero_s), len(sent))


def _spans(found: Launched, sent: list[tuple[float, float]], zero_s: float) -> tuple[Span, ...]:
    """The last backward pass of rank 0, from its begin on, which is `zero_s` on the clock of the launch's spans."""
    layers = [span for span in found.spans if span.rank == 0 and span.kind == "B" and span.start_s >= zero_s]
    passes = [Span(0, s.start_s - zero_s, s.end_s - zero_s, "B", str(i)) for i, s in enumerate(layers)]
    return (*passes, *(Span(0, start, end, "communication", f"bucket {i}") for i, (start, end) in enumerate(sent)))


class _Layer(nn.Module):
    def __init__(self, seconds: float, n_bytes: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max(1, round(n_bytes / _FLOAT32))))
        self.work = StandIn(1.0).layer(0.0, seconds)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.work(x + self.weight.mean())
        return out


def _backward(
    backward_s: list[float], n_bytes: list[float], bucket_mib: float, steps: int
) -> tuple[list[float], list[tuple[float, float]], float]:
    """In a rank: seconds of each backward pass; when each bucket of the last one left and was there; its begin."""
    rank = me()
    assert rank is not None  # `backward_by_buckets` launches it
    dist.init_process_group("gloo")
    layers = [_Layer(seconds, size) for seconds, size in zip(backward_s, n_bytes, strict=True)]
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers[::-1]), bucket_cap_mb=bucket_mib)
    sent: list[tuple[float, float]] = []
    net.register_comm_hook(sent, _noted)
    taken = []
    for _ in range(_WARM + steps):
        loss = net(torch.zeros(1)).sum()
        dist.barrier()
        sent.clear()
        start_s = time.monotonic()
        loss.backward()
        taken.append(time.monotonic() - start_s)
    dist.barrier()  # gloo's threads are done with the hook
    return taken[_WARM:], [(begun - start_s, end - start_s) for begun, end in sent], start_s - rank.start_s


def _noted(sent: list[tuple[float, float]], bucket: Any) -> Future[Tensor]:
    """The exchange that DistributedDataParallel makes by itself, with the moments of its begin and end."""
    start_s = time.monotonic()
    gradients = bucket.buffer().div_(dist.get_world_size())
    work: Any = dist.all_reduce(gradients, async_op=True)

    def done(future: Future[list[Tensor]]) -> Tensor:
        sent.append((start_s, time.monotonic()))
        return future.value()[0]

    result: Future[Tensor] = work.get_future().then(done)
    return result


_noted.__annotations__ = {}  # torch compares annotations with its classes, and these are text
