"""Backward pass and all-reduces of data-parallel training, bucket by bucket, as in
DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainplan._tables import Shown
from trainplan._units import MIB, format_seconds
from trainplan.arguments import Count, NonNegative, Positive, checked
from trainplan.costs.collectives import Link, all_reduce_s
from trainplan.schedule.timetable import ScheduleSpan

# DistributedDataParallel's defaults; its first bucket is small, so that the network
# starts early
BUCKET_BYTES = 25 * MIB
FIRST_BUCKET_BYTES = MIB


@dataclass(frozen=True, repr=False)
class Overlap(Shown):
    """When each bucket of gradients is sent while the backward pass runs; simulated,
    times in seconds.

    `buckets` are the layers of each bucket, as indices into the given lists, in the
    order of sending.
    """

    spans: tuple[ScheduleSpan, ...]
    buckets: tuple[tuple[int, ...], ...]
    backward_s: float
    communication_s: float
    total_s: float

    @property
    def exposed_s(self) -> float:
        """Seconds of communication after the end of the backward pass."""
        return self.total_s - self.backward_s

    def __str__(self) -> str:
        buckets = (
            "1 bucket" if len(self.buckets) == 1 else f"{len(self.buckets)} buckets"
        )
        return (
            f"backward {format_seconds(self.backward_s)}, communication"
            f" {format_seconds(self.communication_s)} in {buckets}, of which"
            f" {format_seconds(self.exposed_s)} exposed: {format_seconds(self.total_s)}"
            " (simulated)"
        )


@checked
def overlap(
    backward_s: Sequence[NonNegative],
    n_bytes: Sequence[NonNegative],
    *,
    link: Link,
    ranks: Count,
    bucket_bytes: Positive = BUCKET_BYTES,
) -> Overlap:
    """The Overlap of a backward pass with ring all-reduces over a `link` between
    `ranks`.

    `backward_s` and `n_bytes` are the seconds and the gradient bytes of each layer,
    last layer first. A bucket takes the layers' gradients as they come, is full at
    `bucket_bytes` or more, and is sent at once. It waits for the one before, since
    there is one stream of communication, which takes nothing from compute. With 25 MiB,
    the default, the first bucket is full at 1 MiB, as in
    torch.nn.parallel.DistributedDataParallel. Raises ValueError for numbers below
    zero, or lists of different lengths.
    """
    if not backward_s:
        raise ValueError("Expected backward_s to be a list of at least 1 item, got ().")
    if len(backward_s) != len(n_bytes):
        raise ValueError(
            f"Expected as many numbers in n_bytes as in backward_s, got {len(n_bytes)}"
            f" and {len(backward_s)}. Both need one for each layer, last layer first."
        )
    first_bytes = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    backward = []
    sent = []
    buckets: list[tuple[int, ...]] = []
    filling: list[int] = []
    filled_bytes = 0.0
    now_s = 0.0
    free_s = 0.0  # when the network is
    layers = zip(backward_s, n_bytes, strict=True)
    for layer, (took_s, layer_bytes) in enumerate(layers):
        backward.append(ScheduleSpan(0, now_s, now_s + took_s, "B", str(layer)))
        now_s += took_s
        filling.append(layer)
        filled_bytes += layer_bytes
        full = filled_bytes >= (bucket_bytes if buckets else first_bytes)
        if full or layer == len(n_bytes) - 1:
            start_s = max(now_s, free_s)
            send_s = all_reduce_s(filled_bytes, ranks, link) if filled_bytes else 0.0
            free_s = start_s + send_s
            label = f"bucket {len(buckets)}"
            sent.append(ScheduleSpan(0, start_s, free_s, "communication", label))
            buckets.append(tuple(filling))
            filling = []
            filled_bytes = 0.0
    return Overlap(
        spans=(*backward, *sent),
        buckets=tuple(buckets),
        backward_s=now_s,
        communication_s=sum(span.seconds for span in sent),
        total_s=max(now_s, free_s),
    )
