"""What limits a training loop, in shares of its time and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steptime.arguments import choice
from steptime.tables import Shown, Table
from steptime.units import significant

HOST = "other host work"
LIMITS = ("input", "launch overhead", "memory bandwidth", "arithmetic", "communication", HOST, "unknown")
_ESTIMATED = ("launch overhead", "unknown")  # without a measured time of their own, there is no bound
_DOMINATES = 0.5  # share of the loop's time: without it, the loop would be twice as fast


@dataclass(frozen=True, repr=False)
class Limit(Shown):
    """What limits a training loop: `shares` of its time by limit, which sum to 1, and a sentence per experiment.

    `where` is the line of Python that holds most of the host's time between operators, `unexplained` the operator that
    holds most of what is unknown. `input_s` are the seconds in which the input alone gives a batch: no loop is faster.
    `busy` says how busy the machine was, if other programs took so much that the shares are in doubt.
    """

    shares: dict[str, float]
    evidence: tuple[str, ...]
    loop_s: float
    busy: str = ""
    where: str = ""
    unexplained: str = ""
    input_s: float = 0.0

    @property
    def largest(self) -> str:
        """The limit with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def dominant(self) -> str | None:
        """The limit that takes more than half of the time; None if none does."""
        return self.largest if self.shares[self.largest] > _DOMINATES else None

    def bound(self, limit: str) -> float:
        """The highest speed-up from removing `limit`, if nothing else changes (Amdahl 1967) and input stays as fast.

        For launch overhead and what is unknown this is an estimate: their time is what other limits leave.
        """
        rest_s = self.loop_s * (1 - self.shares[choice("limit", limit, self.shares)])
        if limit != "input":
            rest_s = min(max(rest_s, self.input_s), self.loop_s)  # input that was hidden before shows up now
        return self.loop_s / rest_s if rest_s > 0 else math.inf

    def words(self, limit: str) -> str:
        """The bound in words: "at most 2.50x", or "about 2.50x" where it is an estimate."""
        bound = significant(self.bound(limit))
        return f"{'about' if limit in _ESTIMATED else 'at most'} {bound}x"

    def table(self) -> Table:
        """A row for each limit, the largest first, and the evidence below."""
        ordered = sorted(self.shares, key=lambda name: -self.shares[name])
        rows = tuple((name, f"{self.shares[name]:.0%}", self.words(name)) for name in ordered)
        largest = self.largest
        title = f"Nothing dominates: without {largest}, the largest, {self.words(largest)}."
        if self.dominant == "unknown":
            title = "What limits this loop is unknown."
        elif self.dominant:
            title = f"{largest.capitalize()} limits this loop: without it, {self.words(largest)}."
        place = {HOST: self.where, "unknown": self.unexplained}.get(largest)
        title += f" Most of it: {place}." if place else ""
        if self.busy:
            title = f"In doubt, since {self.busy}. {title}"
        return Table(rows, ("limit", "share of the time", "without it"), title, self.evidence)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
