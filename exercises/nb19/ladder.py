"""A ladder of techniques: each raced against what was kept so far, in a fixed order."""

from __future__ import annotations

import itertools
import math
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exercises.nb19.training import Repeated, Trainer, race_steps
from labkit.core.display import Table
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Ratio
from labkit.measure.machine import machine

NANOGPT = "nanoGPT"
_SEEDS = 5  # trainings to a loss, of each side of a race
Switches = Mapping[str, Any]
# (rung below, its switches, technique, the switches with it) -> ratio to the rung below
Race = Callable[[str, Switches, str, Switches], Ratio]
Pairs = list[tuple[float, int]]  # (seconds to the loss, tokens to it), by seed
# (pairs without a rung, pairs with it) -> its two gains: exercise 19.4a
Factors = Callable[[Pairs, Pairs], tuple[float, float]]


@dataclass
class Ladder:
    """What was tried on top of a foot: `rungs` maps each that stays to its switches,
    the foot first; `tried` each that was raced to its ratio; `pairs` each that was
    raced to a loss to the pairs without it and with it.
    """

    rungs: dict[str, Switches]
    tried: dict[str, Ratio] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    pairs: dict[str, tuple[Pairs, Pairs]] = field(default_factory=dict)

    @property
    def top(self) -> tuple[str, Switches]:
        """The highest rung and its switches."""
        return list(self.rungs.items())[-1]

    @property
    def kept(self) -> dict[str, Ratio]:
        """The ratio of each rung that stays to the one below."""
        return {name: self.tried[name] for name in list(self.rungs)[1:]}

    def apart(self, factors: Factors) -> Table:
        """The gain of each technique that was raced to a loss, taken apart."""
        rows = []
        for name, (below, rung) in self.pairs.items():
            of_machine, of_learning = factors(below, rung)
            rows.append((name, f"{of_machine:.2f}x", f"{of_learning:.2f}x"))
        return Table(tuple(rows), ("technique", "the machine", "learning"))


def by_steps(
    trainer: Trainer,
    board: SpeedBoard,
    techniques: Mapping[str, Switches],
    *,
    minutes: float,
) -> Ladder:
    """Climb from nanoGPT's settings: the techniques leave the calculation as it is, so
    the seconds of a step are raced.
    """

    def race(below: str, on: Switches, name: str, with_it: Switches) -> Ratio:
        steps = {below: trainer.begun(**on), name: trainer.begun(**with_it)}
        return race_steps(board, steps).ratio(name)

    return climb(Ladder({NANOGPT: {}}), techniques, race, minutes=minutes)


def to_loss(
    trainer: Trainer,
    board: SpeedBoard,
    techniques: Mapping[str, Switches],
    *,
    foot: Switches,
    target: float,
    minutes: float,
) -> Ladder:
    """Climb from the switches `foot`: the techniques change what is learned, so whole
    trainings to a held-out loss are raced, from the same seeds with and without.

    A rung on which a seed didn't arrive at the loss doesn't stay.
    """
    ladder = Ladder({"the fastest step": foot})
    arrived: dict[str, bool] = {}

    def race(below: str, on: Switches, name: str, with_it: Switches) -> Ratio:
        rows = {
            below: Repeated(trainer, target, on),
            name: Repeated(trainer, target, with_it),
        }
        compared = board.compare(
            rows, sync=machine().sync, budget_s=0.0, min_runs=_SEEDS
        )
        without, with_rung = compared.timings
        ladder.pairs[name] = (
            rows[below].by_seed(without.samples_s),
            rows[name].by_seed(with_rung.samples_s),
        )
        arrived[name] = rows[name].arrived
        return compared.ratio(name)

    return climb(
        ladder, techniques, race, minutes=minutes, arrived=lambda name: arrived[name]
    )


def whole(
    trainer: Trainer, board: SpeedBoard, top: Switches, *, target: float
) -> Ratio | None:
    """How many times as fast to a loss as nanoGPT the switches at a ladder's top are;
    None after Ctrl-C. It says whether each seed of both arrived at the loss.
    """
    rows = {
        NANOGPT: Repeated(trainer, target, {}),
        "the top": Repeated(trainer, target, top),
    }
    try:
        compared = board.compare(
            rows, sync=machine().sync, budget_s=0.0, min_runs=_SEEDS
        )
    except KeyboardInterrupt:
        print("Stopped: the whole ladder isn't judged.")
        return None
    late = [name for name, each in rows.items() if not each.arrived]
    print(f"Not at the loss: {', '.join(late)}." if late else "All seeds arrived.")
    return compared.ratio("the top")


def _say(text: str) -> None:
    """Print lines that no front end has to break."""
    print(textwrap.fill(text, 88))


def climb(
    ladder: Ladder,
    techniques: Mapping[str, Switches],
    race: Race,
    *,
    minutes: float,
    arrived: Callable[[str], bool] = lambda name: True,
    say: Callable[[str], object] = _say,
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
