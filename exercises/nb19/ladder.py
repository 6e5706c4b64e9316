"""A ladder of techniques: each raced against what was kept so far, in a fixed order."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.display import Table
from labkit.measure.bench import Ratio

Switches = Mapping[str, Any]
# (rung below, its switches, technique, the switches with it) -> ratio to the rung below
Race = Callable[[str, Switches, str, Switches], Ratio]


@dataclass
class Ladder:
    """What was tried on top of a foot: `rungs` maps each that stays to its switches,
    the foot first; `tried` each that was raced to its ratio.
    """

    rungs: dict[str, Switches]
    tried: dict[str, Ratio] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)

    @property
    def top(self) -> tuple[str, Switches]:
        """The highest rung and its switches."""
        return list(self.rungs.items())[-1]

    @property
    def kept(self) -> dict[str, Ratio]:
        """The ratio of each rung that stays to the one below."""
        return {name: self.tried[name] for name in list(self.rungs)[1:]}


def climb(
    ladder: Ladder,
    techniques: Mapping[str, Switches],
    race: Race,
    *,
    minutes: float,
    arrived: Callable[[str], bool] = lambda name: True,
    say: Callable[[str], object] = print,
    clock: Callable[[], float] = time.monotonic,
) -> Ladder:
    """Try each technique on top of the rungs that stay, and keep what the race shows to
    be faster.

    What a busy machine keeps from being judged is raced a second time, and then left
    out. No race begins that, as long as the longest so far, would end after `minutes`;
    it and all after it are `untried`, as are those after Ctrl-C.
    """
    start_s = clock()
    longest_s = 0.0
    names = list(techniques)
    for number, name in enumerate(names):
        elapsed_s = clock() - start_s
        if elapsed_s + longest_s > 60 * minutes:
            say(f"No time is left for {', '.join(names[number:])}.")
            ladder.untried += names[number:]
            break
        below, switches = ladder.top
        with_it = {**switches, **techniques[name]}
        try:
            ratio = race(below, switches, name, with_it)
            if ratio.verdict == "not judged" and clock() - start_s < 60 * minutes:
                ratio = race(below, switches, name, with_it)
        except KeyboardInterrupt:
            say(f"Stopped. Not raced: {', '.join(names[number:])}.")
            ladder.untried += names[number:]
            break
        longest_s = max(longest_s, clock() - start_s - elapsed_s)
        ladder.tried[name] = ratio
        stays = ratio.verdict == "faster" and arrived(name)
        if stays:
            ladder.rungs[name] = with_it
        verdict = "stays" if stays else "doesn't stay"
        minute = (clock() - start_s) / 60
        say(f"{number + 1}/{len(names)}, minute {minute:.1f}: {ratio}; {verdict}.")
    return ladder


def shares(*ladders: Ladder) -> Table:
    """Each rung that stays, with its gain and its share of the logarithm of the whole
    gain: shares of factors that multiply add up to 100 %.
    """
    gains = {
        name: ratio.value for ladder in ladders for name, ratio in ladder.kept.items()
    }
    whole = sum(map(math.log, gains.values()))
    rows = [
        (name, f"{gain:.2f}x", f"{math.log(gain) / whole:.0%}")
        for name, gain in gains.items()
    ]
    rows.append(("all of them, multiplied", f"{math.exp(whole):.2f}x", ""))
    return Table(tuple(rows), ("rung that stays", "gain", "share"))


Record = Mapping[str, str]  # a row of data/published/speedrun_records.csv


def against_first(records: Sequence[Record]) -> list[float]:
    """How many times as fast as the first each record is."""
    minutes = [float(record["minutes"]) for record in records]
    return [minutes[0] / each for each in minutes]


def _steps(records: Sequence[Record]) -> list[tuple[Record, float]]:
    """Each record after the first, and how many times as fast as the one before."""
    gains = [
        float(before["minutes"]) / float(record["minutes"])
        for before, record in itertools.pairwise(records)
    ]
    return list(zip(records[1:], gains, strict=True))


def large_steps(records: Sequence[Record], least: float) -> Table:
    """The records that are more than `least` times as fast as the one before."""
    rows = [
        (record["date"], record["rung"], record["changed"], f"{gain:.2f}x")
        for record, gain in _steps(records)
        if gain > least
    ]
    heads = ("date, published", f"rung of more than {least}x", "kind", "gain")
    return Table(tuple(rows), heads)


def shares_by_kind(records: Sequence[Record]) -> Table:
    """By what was changed: how many records, and their share of the logarithm of the
    whole gain.
    """
    counts: dict[str, int] = {}
    logs: dict[str, float] = {}
    for record, gain in _steps(records):
        kind = record["changed"]
        counts[kind] = counts.get(kind, 0) + 1
        logs[kind] = logs.get(kind, 0.0) + math.log(gain)
    whole = sum(logs.values())
    rows = [
        (kind, str(counts[kind]), f"{logs[kind] / whole:.0%}")
        for kind in sorted(logs, key=lambda kind: -logs[kind])
    ]
    return Table(tuple(rows), ("what was changed", "records", "share of the gain"))
