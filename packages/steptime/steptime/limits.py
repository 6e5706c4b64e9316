"""What limits a training loop, in shares of its time and in words."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

from steptime._page import html_page, markdown
from steptime._tables import Shown, Table
from steptime._units import significant
from steptime.arguments import choice, number

# these happen in some steps only, or limit them from outside
FIRST_EPOCH = "first epoch"
OCCASIONAL = "occasional work"
COMPILING = "compiling"
HOST = "other host work"
COLLECTING = "garbage collection"
FAULTS = "page faults"
RANKS = "other ranks"
THREADS = "too many threads"
LIMITS = (
    "input",
    "launch overhead",
    "memory bandwidth",
    "arithmetic",
    "communication",
    RANKS,
    FAULTS,
    COLLECTING,
    COMPILING,
    OCCASIONAL,
    FIRST_EPOCH,
    THREADS,
    HOST,
    "unknown",
)
_SEVERAL = (FAULTS, RANKS, THREADS)  # that limit, and don't "limits"
# what passes around operators: an edit that shortens one may shorten the others
AROUND = ("launch overhead", "unknown", HOST, FAULTS, COLLECTING)
# and fewer operators pass fewer bytes from one to the next
_FEWER_OPERATORS = ("launch overhead", "unknown")
# only other operators do without: that is no gain to promise
_NEEDED = ("arithmetic", "memory bandwidth")
# share of the loop's time: without it, the loop would be twice as fast
_DOMINATES = 0.5
_CLOSE = 0.1  # so close in share, two limits may change places
_NEAR = 0.75  # share of the ceiling from which on only fewer operations help
_ABOVE = (
    "above this machine's ceiling, which was measured too low: at a slower clock, or"
    " without a cache that holds this loop's data"
)
_SHOWN = 0.005  # share of the time, which is written as 1%
_NOTHING = 1e-3  # a share of the time that is none
# limits that an experiment takes away as a whole
_REMOVED = ("input", FAULTS, COLLECTING, THREADS)
# of these, by an edit
_EDITED_AWAY = (FAULTS, COLLECTING, THREADS)
_SURE = 1.005  # times as fast, which is written as more than 1.00x
_ROUNDED = 1.1  # times a bound by the limit's own share, up to which it is that one
_WITH_OTHERS = (
    '"At most" counts what an edit against the limit may shorten besides, too.'
)
_MORE = 1.25  # times what was tried, from which on it is said that more may be gained


FORMAT = 1
"""Of the JSON files that `save` writes; `load` reads no other."""


@dataclass(frozen=True, repr=False)
class Gain(Shown):
    """How many times faster a loop was with a `change`: the median of `pairs` pairs,
    the lowest and the highest.

    `limit` is the suspect that the change removes or halves, `at` the line to change
    where it is known. `is_bound` says that the change is no edit but takes the limit
    away as a whole: no edit gains more.
    """

    limit: str
    change: str
    times: float
    low: float
    high: float
    pairs: int
    at: str = ""
    is_bound: bool = False

    def __str__(self) -> str:
        """In words: what was changed, and what it gained."""
        fast = " as fast" if self.sure else ""
        return (
            f"Tried, {self.named}: {self.gained}{fast} ({self.span} in {self.pairs}"
            " pairs)."
        )

    @property
    def named(self) -> str:
        """The change, with its line."""
        return f"{self.change} at {self.at}" if self.at else self.change

    @property
    def sure(self) -> bool:
        """Whether the loop was faster in each pair."""
        return self.low >= _SURE

    @property
    def gained(self) -> str:
        """In words: "2.38x", "slower", or "no sure gain" if 1 is in the interval."""
        if self.sure:
            return f"{significant(self.times)}x"
        return "slower" if self.high <= 1 / _SURE else "no sure gain"

    @property
    def span(self) -> str:
        """The interval in words."""
        return f"{significant(self.low)} to {significant(self.high)}"


@dataclass(frozen=True, repr=False)
class Limit(Shown):
    """What limits a training loop: `shares` of its time by limit, which sum to 1, and a
    sentence per experiment.

    `lines` are by limit where most of it lies: a line of Python, or an operator for
    what is unknown. `input_s` are the seconds in which the input alone gives a batch:
    no loop is faster. `of_ceiling` is the share of the loop's time in which the
    machine, at its ceilings, would have done the same operators. `gains` are what was
    gained where a suspect was removed. `every` is how many steps lie between two with
    occasional work, if that is always the same. `busy` says why the shares are in
    doubt: other programs took too much, or steps took longer in the loop than by
    themselves. `interval_s` are the seconds between which the mean step lies in nine
    of ten such loops, (0, 0) where too few were seen. `flop` are those of the products
    in a usual step, `machine` the device. `remarks` are on settings that cost time and
    were read, not measured, each with the edit that changes them. `gpu_s` are the
    seconds for which a GPU works in a usual step, 0 without one. `events` is in how
    many steps occasional work was seen that comes at no fixed distance.
    """

    shares: dict[str, float]
    evidence: tuple[str, ...]
    loop_s: float
    busy: str = ""
    input_s: float = 0.0
    lines: dict[str, str] = field(default_factory=dict)
    of_ceiling: float = 0.0
    gains: tuple[Gain, ...] = ()
    every: int = 0
    interval_s: tuple[float, float] = (0.0, 0.0)
    flop: float = 0.0
    machine: str = ""
    remarks: tuple[str, ...] = ()
    gpu_s: float = 0.0
    events: int = 0

    def __post_init__(self) -> None:
        number("loop_s", self.loop_s, "seconds")

    @property
    def largest(self) -> str:
        """The limit with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def dominant(self) -> str | None:
        """The limit that takes more than half of the time; None if none does."""
        return self.largest if self.shares[self.largest] > _DOMINATES else None

    def bound(self, limit: str) -> float:
        """The highest speed-up from removing `limit`, with all that its cause may take
        besides, if nothing else changes (Amdahl 1967) and input stays as fast.

        An edit that removes a limit may shorten others: what lies on the same line,
        garbage collection, and what passes around operators. So this is no estimate of
        what is gained, but no edit against this limit alone gains more.
        """
        choice("limit", limit, self.shares)
        gone = sum(self.shares[name] for name in self._of_one_cause(limit))
        rest_s = self.loop_s * max(1 - gone, 0.0)
        if limit != "input":
            # input that was hidden before shows up now
            rest_s = min(max(rest_s, self.input_s), self.loop_s)
        if limit not in (*_NEEDED, *_FEWER_OPERATORS):
            # and so does what the GPU has done meanwhile
            rest_s = min(max(rest_s, self.gpu_s), self.loop_s)
        # so few may be one fewer than usual
        more = gone / self.events if limit == OCCASIONAL and self.events else 0.0
        loop_s = self.loop_s * (1 + more)
        return loop_s / rest_s if rest_s > _NOTHING * self.loop_s else math.inf

    def _of_one_cause(self, limit: str) -> set[str]:
        """The limits that an edit against `limit` may shorten with it."""
        names = {limit}
        if limit in _NEEDED:
            return names
        if limit in AROUND:
            names.update(AROUND)
        if limit in _FEWER_OPERATORS:
            names.add("memory bandwidth")
        if limit == "input":
            names.add(COLLECTING)
        function = self._function_of(limit)
        if function:
            names.update(
                name
                for name in self.shares
                if name not in _NEEDED and self._function_of(name) == function
            )
        return names & self.shares.keys()

    def _function_of(self, limit: str) -> str:
        """The function and the file of a limit's line."""
        function, _, _ = self.lines.get(limit, "").rpartition(", line ")
        return function

    def gain(self, limit: str) -> Gain | None:
        """The largest gain that was measured against a limit; None where nothing was
        tried that tells what is to be gained.

        An edit without a sure gain tells nothing of other edits, unless it takes the
        limit away as a whole.
        """
        gains = [
            gain
            for gain in self.gains
            if gain.limit == limit and (gain.sure or limit in _REMOVED)
        ]
        return max(gains, key=lambda gain: gain.low, default=None)

    @property
    def best(self) -> Gain | None:
        """The edit with the largest sure gain that was measured; None without any."""
        sure = [gain for gain in self.gains if gain.sure and not gain.is_bound]
        return max(sure, key=lambda gain: gain.low, default=None)

    def words(self, limit: str) -> str:
        """What is gained without a limit: "2.38x, tried" by an edit, "up to 2.38x,
        tried" where it was taken away as a whole, "no sure gain, tried", or where
        nothing was tried its bound, "at most 2.50x".

        "2.38x, tried; up to 20.0x" or "2.38x or more, tried" where other edits may gain
        more. "-" for work that is needed, and where nothing else takes time.
        """
        gain = self.gain(limit)
        bound = self.bound(limit)
        if gain is not None:
            return self._tried(gain, bound)
        if limit in _NEEDED or math.isinf(bound):
            return "-"
        return f"at most {significant(bound)}x"

    def _tried(self, gain: Gain, bound: float) -> str:
        if gain.gained == "slower":
            return "no gain, tried"
        if not gain.sure:
            return "no sure gain, tried"
        if gain.is_bound:
            return f"up to {gain.gained}, tried"
        conclusive = gain.limit in (*_NEEDED, *_EDITED_AWAY)
        if conclusive or bound <= _MORE * gain.times:
            return f"{gain.gained}, tried"
        if math.isinf(bound):
            return f"{gain.gained} or more, tried"
        return f"{gain.gained}, tried; up to {significant(bound)}x"

    def without(self, limit: str) -> str:
        """What would be gained without it, as part of a sentence."""
        words = self.words(limit)
        if limit in _NEEDED and words == "-":
            return "only fewer operations help"
        if words == "-":
            return "nothing else takes time"
        if words.startswith("no"):
            return words
        return f"without it {words}"

    @property
    def line(self) -> str:
        """Where most of the largest limit lies: a line of Python, or an operator."""
        return self.lines.get(self.largest, "")

    @property
    def doubt(self) -> str:
        """Why the largest limit may be the wrong one; "" without a reason."""
        if self.busy:
            return self.busy
        share = self.shares[self.largest]
        highs = [gain.high for gain in self.gains if gain.limit == self.largest]
        expected = 1 + (self.bound(self.largest) - 1) / 4
        if self.largest in _REMOVED and max(highs, default=math.inf) < expected:
            return (
                f"{self.largest} has {share:.0%} of the time, but without it the loop"
                " was hardly faster"
            )
        if share > _DOMINATES:
            *_, second, _ = sorted(self.shares.values())
            if share - second < _CLOSE:
                return f"{self.largest} has only {share:.0%} of the time"
        return ""

    def table(self) -> Table:
        """A row for each limit with half a percent or more, the largest first, and the
        evidence and the gains below.
        """
        shown = [name for name in self.shares if self.shares[name] >= _SHOWN]
        shown.sort(key=lambda name: -self.shares[name])
        rows = tuple(
            (name, f"{self.shares[name]:.0%}", self.words(name)) for name in shown
        )
        title = self._title()
        if self.doubt:
            title = f"In doubt, since {self.doubt}. {title}"
        bounds = (_WITH_OTHERS,) if any(map(self._counts_others, shown)) else ()
        return Table(
            rows,
            ("limit", "share of the time", "without it"),
            title,
            (*bounds, *self.remarks, *self.evidence, *map(str, self.gains)),
        )

    def _counts_others(self, limit: str) -> bool:
        """Whether its bound is shown, and more than its own share allows."""
        own = 1 - self.shares[limit]
        is_bound = self.words(limit).startswith("at most")
        return is_bound and self.bound(limit) * own > _ROUNDED

    def _title(self) -> str:
        """The verdict, and where most of it lies."""
        verdict = self._verdict()
        if self.line:
            verdict = f"{verdict} Most of it: {self.line}."
        gain = self.best
        if gain is None:
            return verdict
        return (
            f"Change first, {gain.named}: {gain.gained} as fast ({gain.span}), measured"
            f" here. {verdict}"
        )

    def _verdict(self) -> str:
        largest = self.largest
        if self.dominant is None and largest == "unknown":
            return "Nothing dominates, and what takes the most time is unknown."
        if self.dominant is None:
            return (
                f"Nothing dominates. The largest is {largest}: {self.without(largest)}."
            )
        if largest == "unknown":
            return "What limits this loop is unknown."
        verb = "limit" if largest in _SEVERAL else "limits"
        limits = f"{largest.capitalize()} {verb} this loop"
        if largest in _NEEDED:
            at = f"at {self.of_ceiling:.0%} of this machine's ceiling"
            if self.of_ceiling > 1:
                return f"{limits}, {_ABOVE}."
            # a faster type, or another known edit, is said in a remark
            if self.of_ceiling > _NEAR and not self.remarks and self.best is None:
                at += ": nothing to gain but fewer operations"
            return f"{limits}, {at}."
        if self.every and largest == OCCASIONAL:
            limits += f", every {self.every} steps"
        return f"{limits}: {self.without(largest)}."

    def save(self, path: str | Path) -> None:
        """Write the page to a file: .html is self-contained, without scripts and
        network; .md is Markdown to paste into an issue; .json is read by
        `steptime.load`.

        Raises ValueError for another ending.
        """
        path = Path(path)
        writers = {
            ".html": self._html_page,
            ".md": lambda: markdown(self.table()),
            ".json": self._json,
        }
        choice("the ending of the file's name", path.suffix, writers)
        path.write_text(writers[path.suffix](), encoding="utf-8")

    def _html_page(self) -> str:
        return html_page("What limits a training loop", self.table(), self.shares)

    def _json(self) -> str:
        return json.dumps({"steptime": FORMAT, **asdict(self)}, indent=1)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
