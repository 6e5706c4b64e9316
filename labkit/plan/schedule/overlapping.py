"""The backward pass of data-parallel training beside its all-reduces, bucket by bucket, as DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.core.arguments import as_float, check_number
from labkit.core.display import Shown, brief_repr
from labkit.core.errors import ScheduleError
from labkit.core.spans import Span
from labkit.core.units import MIB, format_seconds
from labkit.plan.costs.collectives import Link, all_reduce_s

BUCKET_BYTES = 25 * MIB  # what DistributedDataParallel takes if nothing is said
FIRST_BUCKET_BYTES = MIB  # and for its first bucket, so that the network starts early


@dataclass(frozen=True, repr=False)
class Overlap(Shown):
    """When each bucket of gradients travels while the backward pass goes on; simulated, times in seconds.

    `buckets` has the layers of each bucket, as places in the lists given, in the order in which they are sent.
    """

    spans: tuple[Span, ...]
    buckets: tuple[tuple[int, ...], ...]
    backward_s: float
    communication_s: float
    total_s: float

    @property
    def exposed_s(self) -> float:
        """Seconds of communication that go on after the backward pass has ended."""
        return self.total_s - self.backward_s

    @property
    def hidden(self) -> float:
        """Share of the communication, 0 to 1, that is beside the backward pass."""
        return 1 - self.exposed_s / self.communication_s if self.communication_s else 1.0

    def __str__(self) -> str:
        return (
            f"backward {format_seconds(self.backward_s)}, communication {format_seconds(self.communication_s)} in "
            f"{len(self.buckets)} bucket{'s' * (len(self.buckets) != 1)}, of which {format_seconds(self.exposed_s)} "
            f"exposed: {format_seconds(self.total_s)} (simulated)"
        )


def overlap(
    backward_s: Sequence[float],
    n_bytes: Sequence[float],
    *,
    link: Link | Callable[[float], float],
    ranks: int | None = None,
    bucket_bytes: float = BUCKET_BYTES,
    first_bucket_bytes: float | None = None,
    algorithm: str = "ring",
) -> Overlap:
    """Backward seconds and gradient bytes of each layer, last layer first, to the time with all-reduces beside it.

    A bucket takes the layers' gradients as they come, is full at `bucket_bytes` or more, and is sent at once; a bucket
    waits for the one before, since there is one stream of communication, which takes nothing from compute. With 25 MiB,
    the default, the first bucket is full at 1 MiB, as in torch.nn.parallel.DistributedDataParallel.
    `link` with `ranks` gives the all-reduce's time by `algorithm` ("ring", "tree", ...); a function from bytes to
    seconds, such as one measured, may stand for both. Raises ScheduleError for numbers that can't be.
    """
    layers = _layers(backward_s, n_bytes)
    seconds = _seconds(link, ranks, algorithm)
    check_number("bucket_bytes", bucket_bytes, above=0, error=ScheduleError)
    if first_bucket_bytes is None:
        first_bucket_bytes = FIRST_BUCKET_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes
    check_number("first_bucket_bytes", first_bucket_bytes, above=0, error=ScheduleError)
    spans, sent = [], []
    buckets: list[tuple[int, ...]] = []
    filling: list[int] = []
    now_s, free_s, size = 0.0, 0.0, 0.0
    for layer, (took_s, layer_bytes) in enumerate(layers):
        spans.append(Span(0, now_s, now_s + took_s, "B", str(layer)))
        now_s += took_s
        filling.append(layer)
        size += layer_bytes
        if size >= (bucket_bytes if buckets else first_bucket_bytes) or layer == len(layers) - 1:
            start_s = max(now_s, free_s)
            free_s = start_s + (seconds(size) if size else 0.0)
            sent.append(Span(0, start_s, free_s, "communication", f"bucket {len(buckets)}"))
            buckets.append(tuple(filling))
            filling, size = [], 0.0
    communication_s = sum(span.seconds for span in sent)
    return Overlap(tuple(spans + sent), tuple(buckets), now_s, communication_s, max(now_s, free_s))


def _layers(backward_s: Any, n_bytes: Any) -> list[tuple[float, float]]:
    lists: list[list[float]] = []
    for name, values in (("backward_s", backward_s), ("n_bytes", n_bytes)):
        values = values.tolist() if hasattr(values, "tolist") else values
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ScheduleError(f"Expected {name} to be a list with a number for each layer, got {brief_repr(values)}.")
        for value in values:
            check_number(f"every number in {name}", value, least=0, error=ScheduleError)
        lists.append([float(value) for value in values])
    if len(lists[0]) != len(lists[1]):
        raise ScheduleError(
            f"Expected as many numbers in n_bytes as in backward_s, got {len(lists[1])} and {len(lists[0])}. "
            "Both have one for each layer, last layer first."
        )
    return list(zip(*lists, strict=True))


def _seconds(link: Link | Callable[[float], float], ranks: int | None, algorithm: str) -> Callable[[float], float]:
    """Bytes to the seconds of an all-reduce."""
    if isinstance(link, Link):
        check_number("ranks", ranks, least=1, whole=True, advice="Say among how many.", error=ScheduleError)
        assert ranks is not None  # check_number saw a number
        return lambda n_bytes: all_reduce_s(n_bytes, ranks, link, algorithm)
    if not callable(link):
        raise ScheduleError(f"Expected link to be a Link, or a function from bytes to seconds, got {brief_repr(link)}.")

    def checked(n_bytes: float) -> float:
        took_s = link(n_bytes)
        check_number("what the function given for link returns", took_s, least=0, error=ScheduleError)
        return float(as_float(took_s) or 0.0)

    return checked
