"""Measure data parallelism: when each bucket of gradients is exchanged during a
backward pass.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from labkit.core.display import Shown
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Items, NonNegative, Positive, checked
from labkit.core.units import MIB, format_seconds
from labkit.measure.dist import Ranks, launch
from labkit.measure.standin import StandIn
from ranks import Launched, Span, now_s

_WARM = 2  # DistributedDataParallel orders its buckets anew after the first step
_FLOAT32 = 4  # bytes


@dataclass(frozen=True, repr=False)
class Backward(Shown):
    """Backward passes of stand-in layers with real exchanges: seconds of each, and the
    last one's spans on rank 0.
    """

    seconds: tuple[float, ...]
    spans: tuple[Span, ...]
    buckets: int

    @property
    def median_s(self) -> float:
        """Median seconds, from the start of the backward pass to the end of the last
        bucket's exchange.
        """
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        buckets = f"{self.buckets} bucket{'s' * (self.buckets != 1)}"
        return (
            f"backward with {buckets}: {format_seconds(self.median_s)} (simulated"
            " compute, real exchange)"
        )


@checked
def backward_by_buckets(
    backward_s: Annotated[Sequence[NonNegative], Items(1)],
    n_bytes: Sequence[NonNegative],
    *,
    bucket_bytes: Positive,
    ranks: Ranks = 2,
    steps: Count = 5,
) -> Backward:
    """Run DistributedDataParallel over layers that sleep: the run that
    lab.schedule.overlap predicts.

    `backward_s` has the seconds of each layer, last layer first, and `n_bytes` the
    bytes of its gradients. Compute is simulated, so it needs no core; the all-reduces
    between `ranks` gloo ranks are real. Raises BadArgument for empty lists, or lists of
    different lengths.
    """
    if len(backward_s) != len(n_bytes):
        raise BadArgument(
            f"Expected a number for each layer, got {len(backward_s)} seconds,"
            f" {len(n_bytes)} bytes."
        )
    launched = launch(_backward, ranks, backward_s, n_bytes, bucket_bytes / MIB, steps)
    taken, sent, zero_s = launched[0]
    return Backward(tuple(taken), _spans(launched, sorted(sent), zero_s), len(sent))


def _spans(
    launched: Launched, sent: list[tuple[float, float]], zero_s: float
) -> tuple[Span, ...]:
    """The last backward pass of rank 0, from its start, which is at `zero_s` on the
    clock of the launch's spans.
    """
    layers = [
        span
        for span in launched.spans
        if span.rank == 0 and span.kind == "B" and span.start_s >= zero_s
    ]
    passes = [
        Span(0, s.start_s - zero_s, s.end_s - zero_s, "B", str(i))
        for i, s in enumerate(layers)
    ]
    return (
        *passes,
        *(
            Span(0, start, end, "communication", f"bucket {i}")
            for i, (start, end) in enumerate(sent)
        ),
    )


class _SleepingLayer(nn.Module):
    def __init__(self, seconds: float, n_bytes: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max(1, round(n_bytes / _FLOAT32))))
        self.work = StandIn(1.0).layer(0.0, seconds)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.work(x + self.weight.mean())
        return out


def _backward(
    backward_s: Sequence[float], n_bytes: Sequence[float], bucket_mib: float, steps: int
) -> tuple[list[float], list[tuple[float, float]], float]:
    """In a rank: seconds of each backward pass; start and end of each bucket's exchange
    in the last one; its start.
    """
    dist.init_process_group("gloo")
    layers = [
        _SleepingLayer(seconds, size)
        for seconds, size in zip(backward_s, n_bytes, strict=True)
    ]
    net = nn.parallel.DistributedDataParallel(
        nn.Sequential(*layers[::-1]), bucket_cap_mb=bucket_mib
    )
    sent: list[tuple[float, float]] = []
    net.register_comm_hook(sent, _traced_exchange)
    taken = []
    for _ in range(_WARM + steps):
        loss = net(torch.zeros(1)).sum()
        dist.barrier()
        sent.clear()
        start_s = now_s()
        loss.backward()
        taken.append(now_s() - start_s)
    dist.barrier()  # so that gloo's threads are done with the hook
    return (
        taken[_WARM:],
        [(begun - start_s, end - start_s) for begun, end in sent],
        start_s,
    )


def _traced_exchange(sent: list[tuple[float, float]], bucket: Any) -> Future[Tensor]:
    """The exchange that DistributedDataParallel makes by default, with its start and
    end added to `sent`.
    """
    start_s = now_s()
    gradients = bucket.buffer().div_(dist.get_world_size())
    work: Any = dist.all_reduce(gradients, async_op=True)

    def done(future: Future[list[Tensor]]) -> Tensor:
        sent.append((start_s, now_s()))
        return future.value()[0]

    result: Future[Tensor] = work.get_future().then(done)
    return result


# torch compares annotations with its classes, and would find text here
_traced_exchange.__annotations__ = {}
