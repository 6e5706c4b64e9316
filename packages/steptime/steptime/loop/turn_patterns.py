"""What the turns of a loop show: what happens in each, in some of them, or in a slow
first epoch.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from steptime._units import format_seconds, significant
from steptime.errors import stood_still
from steptime.limits import COLLECTING, COMPILING, FIRST_EPOCH, OCCASIONAL, RANKS
from steptime.loop.turns import LONG_S, Turn
from steptime.measure.stack_samples import WAITING, Lines, longest

# a step is unusual that takes so many times as long as others, and LONG_S longer
_LONG = 1.5
_ONE_EPOCH = (
    "only a first epoch was seen: later ones are faster only if what it prepares or"
    " reads stays in memory"
)
# a line is new that usual turns spend less on than this share of what an unusual one
# does
_NEW = 0.25
_PARTS = 10  # into which turns are divided for an interval
_STUDENT = 1.833  # the 95th percentile of 9 degrees of freedom
_WORTH_TELLING = 0.02  # of a step's time
_NOWHERE = ("", "", 0)  # in place of a line


@dataclass(frozen=True)
class Seen:
    """What the turns of a loop show: seconds of a mean turn by what happens in some
    only, and the rest.

    `input_s` and `step_s` are the rest's. `where` names the line of each. `every` is
    how many turns lie between two with occasional work, 0 if that differs or happens
    once. Of a usual step, `step_faults` are the page faults, and `collecting_s` the
    seconds of garbage collection.
    """

    seconds_of: dict[str, float]
    input_s: float
    step_s: float
    where: dict[str, str]
    evidence: tuple[str, ...]
    every: int = 0
    events: int = 0  # turns with occasional work, where that differs
    step_faults: float = 0.0
    collecting_s: float = 0.0
    doubt: str = ""  # of a first epoch's share, or of an only event's
    # of the mean turn, as shares of it; (0, 0) where it is unknown
    interval: tuple[float, float] = (0.0, 0.0)


class _SlowFirstEpoch(NamedTuple):
    """Seconds of a mean turn, the line and a sentence."""

    share_s: float
    place: str
    words: str


class _Event(NamedTuple):
    """What happens in the turns at `indices` only, and takes `more_s` more seconds in
    all than as many usual turns; `place` is its line.
    """

    more_s: float
    name: str
    place: str
    indices: list[int]

    def turns(self, watched: int) -> int:
        """In how many turns it happens so often: in whole periods, if these fill the
        loop, else in those that were `watched`.
        """
        distances = {
            after - before for before, after in itertools.pairwise(self.indices)
        }
        if len(self.indices) < 3 or len(distances) > 1:
            return watched
        period = distances.pop()
        # some turns in a row, at the start of a loop, aren't periodic
        fills = self.indices[0] < period and watched - self.indices[-1] <= period
        return period * len(self.indices) if fills else watched


def seen(
    turns: Sequence[Turn],
    collected: Lines,
    again_s: float | None = None,
    *,
    second_epoch: bool = False,
) -> Seen:
    """What several turns show. A slow first epoch counts as if one more, at the later
    ones' speed, followed.

    If only a first one was watched, `again_s`, the seconds of a batch the second time,
    are what a later one would wait: in doubt, unless that was in a `second_epoch`.
    Raises TooLittleSeen where no turn took time.
    """
    mean_s = statistics.fmean(turn.seconds + _collecting_s(turn) for turn in turns)
    if not mean_s:
        raise stood_still("the loop's steps")
    rate = significant(1 / mean_s)
    watched = f"Watched: {len(turns)} steps, {rate} a second"
    waited = statistics.fmean(turn.waited_s for turn in turns)
    if waited > _WORTH_TELLING * mean_s:
        # by the clock, the loop was slower
        lost = format_seconds(waited)
        watched += f", without the {lost} a step in which it waited for a core"
    evidence = [f"{watched}."]
    seconds_of = dict[str, float]()
    where = dict[str, str]()
    doubt = ""

    first = [turn for turn in turns if turn.epoch <= turns[0].epoch]
    later = [turn for turn in turns if turn.epoch > turns[0].epoch]
    assumed = list[Turn]()
    if not later and again_s is not None:
        assumed = [replace(turn, input_s=min(turn.input_s, again_s)) for turn in first]
    slow = _slow_first_epoch(first, later or assumed)
    if slow is not None:
        seconds_of[FIRST_EPOCH] = slow.share_s
        where[FIRST_EPOCH] = slow.place
        evidence.append(slow.words)
        doubt = _ONE_EPOCH if assumed and not second_epoch else ""
        later = later or assumed
    turns = later or turns

    if _compiles_always(turns):
        compiling_s = [min(turn.compiling_s, turn.step_s) for turn in turns]
        seconds_of[COMPILING] = statistics.fmean(compiling_s)
        turns = [
            replace(turn, step_s=turn.step_s - seconds, graphs=0)
            for turn, seconds in zip(turns, compiling_s, strict=True)
        ]
    unusual = _unusual(turns)
    usual = [turn for i, turn in enumerate(turns) if i not in set(unusual)]
    every = events = 0
    occasions = set[int]()  # the turns that have occasional work
    # what takes longest is named
    for event in sorted(_events(turns, unusual, usual), reverse=True):
        share_s = event.more_s / event.turns(len(turns))
        seconds_of[event.name] = seconds_of.get(event.name, 0.0) + share_s
        where.setdefault(event.name, event.place)
        if event.name == OCCASIONAL:
            occasions.update(event.indices)
        if event.name == OCCASIONAL and not every:
            every = _period(event.indices)
            events = 0 if every else len(event.indices)
        evidence.append(_sentence(event, len(turns)))

    if len(occasions) == 1 and seconds_of[OCCASIONAL] > mean_s / 2:
        doubt = f"{OCCASIONAL} was seen in one step only: pass a larger budget_s"

    seconds_of[COLLECTING] = statistics.fmean(map(_collecting_s, turns))
    where[COLLECTING] = longest(collected)
    where["step"] = longest(_total(turn.lines for turn in usual))
    where["input"] = longest(_total(turn.input_lines for turn in turns))
    return Seen(
        seconds_of,
        input_s=statistics.mean(turn.input_s for turn in turns),
        step_s=max(statistics.mean(turn.step_s for turn in usual), 1e-9),
        where=where,
        evidence=tuple(evidence),
        every=every,
        events=events,
        step_faults=statistics.median(turn.faults for turn in usual),
        collecting_s=statistics.fmean(turn.collecting["step_s"] for turn in usual),
        doubt=doubt,
        interval=_interval([turn.seconds for turn in turns]),
    )


def _interval(seconds: Sequence[float]) -> tuple[float, float]:
    """Between which shares of their mean that of more turns lies in nine of ten cases.

    Turns that follow each other are alike: their means in ten parts are compared
    (Student's t of 9 degrees of freedom). (0, 0) where a part has fewer than 2.
    """
    size = len(seconds) // _PARTS
    if size < 2:
        return 0.0, 0.0
    means = [
        statistics.fmean(seconds[i * size : (i + 1) * size]) for i in range(_PARTS)
    ]
    mean = statistics.fmean(means)
    if not mean:
        return 0.0, 0.0
    error = _STUDENT * statistics.stdev(means) / math.sqrt(_PARTS) / mean
    return max(1 - error, 0.0), 1 + error


def _compiles_always(turns: Sequence[Turn]) -> bool:
    """Whether torch.compile compiles in most turns, and says for how long."""
    return 2 * sum(turn.compiling_s > 0 for turn in turns) > len(turns)


def _collecting_s(turn: Turn) -> float:
    return sum(turn.collecting.values())


def _slow_first_epoch(
    first: Sequence[Turn], later: Sequence[Turn]
) -> _SlowFirstEpoch | None:
    """How much slower the first epoch was; None if it wasn't, or if too few turns say
    so.
    """
    if len(first) < 2 or len(later) < len(first):
        return None
    first_s = statistics.median(turn.seconds for turn in first)
    later_s = statistics.median(turn.seconds for turn in later)
    if first_s <= _LONG * later_s + LONG_S:
        return None
    more_s = statistics.mean(turn.seconds for turn in first)
    more_s -= statistics.mean(turn.seconds for turn in later)
    words = (
        f"A batch of the first epoch takes {format_seconds(first_s)}, later ones"
        f" {format_seconds(later_s)}."
    )
    place = _place_of_first_epoch(first, later)
    return _SlowFirstEpoch(max(more_s, 0.0) / 2, place, words)


def _place_of_first_epoch(first: Sequence[Turn], later: Sequence[Turn]) -> str:
    """The line on which the first epoch spends more time than later ones."""
    lines = _mean_lines(turn.lines for turn in first)
    lines -= _mean_lines(turn.lines for turn in later)
    input_lines = _mean_lines(turn.input_lines for turn in first)
    input_lines -= _mean_lines(turn.input_lines for turn in later)
    more = lines + input_lines
    return longest(more or _total(turn.input_lines for turn in first))


def _unusual(turns: Sequence[Turn]) -> list[int]:
    """Which turns take longer than most; none if that is more than half of them."""
    base_s = sorted(turn.step_s for turn in turns)[len(turns) // 4]
    limit_s = max(_LONG * base_s, base_s + LONG_S)
    unusual = [i for i, turn in enumerate(turns) if turn.step_s > limit_s]
    # of every second turn, the first and the last may both be unusual
    return unusual if 2 * len(unusual) <= len(turns) + 1 else []


def _sentence(event: _Event, turns: int) -> str:
    period = _period(event.indices)
    n = len(event.indices)
    often = f"Every {period} steps" if period else f"In {n} of {turns} steps"
    more = format_seconds(event.more_s / n)
    place = f": {event.place}" if event.place else ""
    return f"{often}, {event.name} takes {more} more{place}."


def _period(indices: Sequence[int]) -> int:
    """How many turns lie between two of those at these positions; 0 if that differs, or
    if there are too few.
    """
    distances = [after - before for before, after in itertools.pairwise(indices)]
    usual = statistics.mode(distances) if distances else 0
    return usual if usual > 1 and distances.count(usual) > 0.6 * len(distances) else 0


def _events(
    turns: Sequence[Turn], unusual: Sequence[int], usual: Sequence[Turn]
) -> Iterator[_Event]:
    """What happens in unusual turns.

    Without a line of its own and without a period, a long turn is chance, and no event.
    """
    usual_s = statistics.mean(turn.step_s for turn in usual)
    usual_lines = _mean_lines(turn.lines for turn in usual)
    longest_s = max((turns[i].step_s for i in unusual), default=0.0)
    # by name, by function and file, and, without these, by length
    groups = defaultdict[tuple[str, str, str, str], list[int]](list)
    for i in unusual:
        more = turns[_sampled_like(i, turns, unusual)].lines - usual_lines
        function, file, line = max(
            more, key=lambda place: more[place], default=_NOWHERE
        )
        seconds = more[function, file, line]
        length = ""
        if usual_lines[function, file, line] >= _NEW * seconds:
            function = file = ""
            length = "long" if 3 * turns[i].step_s > longest_s else "short"
        if function.endswith(WAITING):
            name = RANKS
        elif turns[i].graphs:
            name = COMPILING
        else:
            name = OCCASIONAL
        groups[name, function, file, length].append(i)
    for (name, function, *_), indices in groups.items():
        periodic = len(indices) > 2 and _period(indices)
        if name != COMPILING and not function and not periodic:
            continue
        more_s = sum(max(turns[i].step_s - usual_s, 0.0) for i in indices)
        lines = _mean_lines(turns[i].lines for i in indices) - usual_lines
        yield _Event(more_s, name, longest(lines) if function else "", indices)


def _sampled_like(i: int, turns: Sequence[Turn], unusual: Sequence[int]) -> int:
    """Of the unusual turns into which a sample of the stack fell, the one whose length
    is nearest to that of `i`; `i` itself if that one is twice as long.
    """
    sampled = [j for j in unusual if turns[j].lines] or unusual

    def difference(j: int) -> tuple[float, bool]:
        return abs(turns[j].step_s - turns[i].step_s), j != i

    nearest = min(sampled, key=difference)
    return nearest if turns[nearest].step_s < 2 * turns[i].step_s else i


def _total(turns_lines: Iterable[Lines]) -> Lines:
    return sum(turns_lines, Lines())


def _mean_lines(turns_lines: Iterable[Lines]) -> Lines:
    """Seconds of each line in a mean turn."""
    turns_lines = list(turns_lines)
    total = _total(turns_lines)
    return Counter({place: s / len(turns_lines) for place, s in total.items()})
