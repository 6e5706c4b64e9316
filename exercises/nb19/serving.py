"""What an engine is loaded with, and what its readers notice: requests that arrive,
latencies, a batch's schedule.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from exercises.nb19.engine import Admit, Request
from labkit.core.display import ShownAsTable, Table


def requests_of(
    text: Tensor, n: int, *, rate: float = 0.0, most: int = 96
) -> list[Request]:
    """Requests, always the same n: prompts of 16 to 32 tokens cut from a text (N,), and
    answers of 4 to `most` tokens, most of them short.

    With a rate they arrive at random, so many a second on average (a Poisson process);
    otherwise all at once.
    """
    draw = random.Random(19)
    arrival_s = 0.0
    requests = []
    for _ in range(n):
        length = draw.randrange(16, 33)
        start = draw.randrange(len(text) - length)
        prompt = text[start : start + length].tolist()
        n_new = min(4 + int(draw.expovariate(4 / most)), most)
        # drawn without a rate too, so that the requests are the same
        gap = draw.expovariate(1.0)
        arrival_s += gap / rate if rate else 0.0
        requests.append(Request(prompt, n_new, arrival_s))
    return requests


_HEADINGS = (
    "load",
    "batching",
    "tokens/s",
    "TTFT, ms",
    "TTFT, 95 %",
    "ITL, ms",
    "ITL, 95 %",
)


class Latency(NamedTuple):
    """Tokens a second, and seconds that half and 95 % of all are within: the time to
    first token (TTFT), and the time between tokens (ITL).
    """

    tokens_per_s: float
    ttft_s: tuple[float, float]
    itl_s: tuple[float, float]


def latency_of(served: Sequence[Request]) -> Latency:
    """What the readers of requests noticed that were served."""
    first_s = [request.written_s[0] - request.arrival_s for request in served]
    between_s = [
        later - earlier
        for request in served
        for earlier, later in itertools.pairwise(request.written_s)
    ]
    begin_s = min(request.arrival_s for request in served)
    end_s = max(request.written_s[-1] for request in served)
    n_tokens = sum(len(request.written) for request in served)
    return Latency(n_tokens / (end_s - begin_s), _within(first_s), _within(between_s))


def _within(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 95th percentile."""
    ordered = sorted(seconds)
    most = ordered[int(0.95 * (len(ordered) - 1))]
    return statistics.median(ordered), most


@dataclass(frozen=True, repr=False)
class Latencies(ShownAsTable):
    """Way of batching and load in percent -> what readers noticed."""

    of: Mapping[tuple[str, int], Latency]

    def table(self) -> Table:
        """A row for each, with times in ms."""
        rows = []
        for (way, load), latency in self.of.items():
            times_s = (*latency.ttft_s, *latency.itl_s)
            times = (f"{1e3 * s:,.1f}" for s in times_s)
            rows.append((f"{load}%", way, f"{latency.tokens_per_s:,.0f}", *times))
        return Table(tuple(rows), _HEADINGS)


class Stay(NamedTuple):
    """Request number `request` has a place of the batch from step `begin` to `end`."""

    place: int
    request: int
    begin: int
    end: int


def schedules(
    requests: Sequence[Request], admit: Admit, *, places: int = 8, n_blocks: int = 64
) -> dict[str, list[Stay]]:
    """Who is in the batch when, in steps, if all requests wait from the beginning: with
    static and with continuous batching.
    """
    sizes = {"places": places, "n_blocks": n_blocks}
    return {
        "static": _schedule(requests, admit, static=True, **sizes),
        "continuous": _schedule(requests, admit, static=False, **sizes),
    }


def _schedule(
    requests: Sequence[Request],
    admit: Admit,
    *,
    places: int,
    n_blocks: int,
    static: bool,
) -> list[Stay]:
    waiting = list(range(len(requests)))
    stays: list[Stay] = []
    step = 0
    while waiting:
        running = [stay for stay in stays if stay.end > step]
        if not (static and running):
            used = sum(requests[stay.request].n_blocks for stay in running)
            sizes = [requests[i].n_tokens for i in waiting]
            n = admit(sizes, n_blocks - used, places - len(running))
            if not running and not n:
                raise RuntimeError("No request was admitted, and none is running.")
            taken = {stay.place for stay in running}
            empty = [place for place in range(places) if place not in taken]
            for place, i in zip(empty, waiting[:n], strict=False):
                running.append(Stay(place, i, step, step + requests[i].n_new))
                stays.append(running[-1])
            waiting = waiting[n:]
        step = min(stay.end for stay in running)
    return stays


def steps_saved(stays: dict[str, list[Stay]]) -> float:
    """Steps of static batching over those of continuous batching."""
    ends = {way: max(stay.end for stay in each) for way, each in stays.items()}
    return ends["static"] / ends["continuous"]
