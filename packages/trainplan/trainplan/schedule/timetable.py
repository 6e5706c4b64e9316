"""The result of a simulated schedule: when each rank does what, the bubble, and the
activations held.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from trainplan._tables import Shown
from trainplan._units import format_seconds, significant
from trainplan.schedule.parsing import CheckedSchedule


@dataclass(frozen=True, order=True)
class ScheduleSpan:
    """`rank` does `kind` from `start_s` to `end_s`, in seconds on one clock.

    `kind` is "F" (forward), "B" (backward), "W" (backward of the weights alone) or
    "communication"; `label` is what a picture writes on it, such as the micro-batch.
    """

    rank: int
    start_s: float
    end_s: float
    kind: str
    label: str = ""

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end_s - self.start_s


@dataclass(frozen=True, repr=False)
class Timetable(Shown):
    """When each rank does each step of a schedule. All of it is simulated; nothing was
    measured.

    `starts_s` and `ends_s` are seconds from the start, in the order of each rank's
    steps; `peak_activations` is the most that each rank held at once, in units of a
    rank's share of one micro-batch.
    """

    schedule: CheckedSchedule
    starts_s: tuple[tuple[float, ...], ...]
    ends_s: tuple[tuple[float, ...], ...]
    peak_activations: tuple[float, ...]
    communication: tuple[ScheduleSpan, ...] = ()

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.schedule.ranks

    @functools.cached_property
    def spans(self) -> tuple[ScheduleSpan, ...]:
        """Each step, labeled with its micro-batch ("3", or "3.1" with a chunk), and
        each blocking transfer.
        """
        names = {
            code: self.schedule.name(code)
            for steps in self.schedule.steps
            for code in steps
        }
        spans = []
        for rank, steps in enumerate(self.schedule.steps):
            times = zip(steps, self.starts_s[rank], self.ends_s[rank], strict=True)
            for code, start_s, end_s in times:
                name = names[code]
                spans.append(ScheduleSpan(rank, start_s, end_s, name[0], name[1:]))
        if self.communication:
            spans = sorted([*spans, *self.communication])
        return tuple(spans)

    @functools.cached_property
    def makespan_s(self) -> float:
        """Seconds from the first step's start to the last one's end."""
        return max(ends[-1] for ends in self.ends_s)

    @functools.cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each rank spends computing."""
        return tuple(
            math.fsum(ends) - math.fsum(starts)
            for starts, ends in zip(self.starts_s, self.ends_s, strict=True)
        )

    @functools.cached_property
    def communication_s(self) -> tuple[float, ...]:
        """Seconds that each rank spends in blocking transfers; 0 where transfers
        overlap with compute.
        """
        spent = [0.0] * self.ranks
        for span in self.communication:
            spent[span.rank] += span.seconds
        return tuple(spent)

    @property
    def idle_s(self) -> tuple[float, ...]:
        """Seconds of the makespan that each rank neither computes nor communicates."""
        pairs = zip(self.busy_s, self.communication_s, strict=True)
        return tuple(max(self.makespan_s - busy - sent, 0.0) for busy, sent in pairs)

    @property
    def bubble_s(self) -> float:
        """Mean idle seconds of a rank."""
        return sum(self.idle_s) / self.ranks

    @property
    def bubble(self) -> float:
        """Share of the ranks' time that is idle, 0 to 1: GPipe's and 1F1B's is (p - 1)
        / (m + p - 1).
        """
        return self.bubble_s / self.makespan_s if self.makespan_s else 0.0

    @property
    def period_s(self) -> float:
        """Seconds between two steps of a long run: the longest that a rank takes from
        its first start to its last end.

        This is less than the makespan where ranks that start late also end late and the
        early ones need not wait for them, as if the optimizer's step were validated
        afterwards (Qi et al. 2024, section 4).
        """
        start_s = [starts[0] for starts in self.starts_s]
        end_s = [ends[-1] for ends in self.ends_s]
        for span in self.communication:
            start_s[span.rank] = min(start_s[span.rank], span.start_s)
            end_s[span.rank] = max(end_s[span.rank], span.end_s)
        return max(end - start for start, end in zip(start_s, end_s, strict=True))

    def __str__(self) -> str:
        size = f"{self.ranks} ranks, {self.schedule.microbatches} micro-batches"
        return (
            f"{size}: {format_seconds(self.makespan_s)} (simulated), bubble"
            f" {self.bubble:.1%}, at most {significant(max(self.peak_activations))}"
            " activations on a rank"
        )
