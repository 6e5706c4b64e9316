"""What the page about a class shows: who is stuck, exercises and why answers fail,
guesses, minutes, claims, results by machine.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from exercises.misconceptions import misconceptions
from labkit.core import results
from labkit.core.comparable import Work, difference
from labkit.core.data_table import read_table
from labkit.core.paths import EXERCISES
from labkit.core.results import (
    Attempt,
    Best,
    Measurement,
    Prediction,
    Verdict,
    section_of,
)
from labkit.core.units import format_quantity, significant
from labkit.lesson import exercise_files, guesses
from labkit.lesson.bests import compared, improvements, in_words
from labkit.lesson.claims import claims as claims_tested, judged_anew
from labkit.lesson.exercise_files import order
from labkit.lesson.outcomes import Standing, standings
from scripts.notebooks import section_minutes
from teaching import docs, path as paths
from teaching.class_files import LEAST, MOST, Reader

# machines whose guesses stand apart, columns of claims
_GROUPS = 6
_MACHINES = 12
_DECADES = 2  # to the left and to the right of 1 on the axis of guesses
_PAUSE_MIN = 15  # a longer time between two entries is a break
_GONE_MIN = 45  # who has kept nothing for longer has left, or begins anew
# share of words in common from which two messages of a check say the same
_ALIKE = 0.95


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The exact 95 % interval of a median (order statistics) from 6 values on; of
    fewer, the least and the greatest.
    """
    n = len(values)
    ordered = sorted(values)
    below = itertools.accumulate(math.comb(n, k) for k in range(n // 2))
    cut = max(sum(tail / 2**n <= 0.025 for tail in below) - 1, 0)
    return ordered[cut], ordered[-1 - cut]


def middle(values: Sequence[float]) -> str:
    """The median and its interval, in words: "3 (2 to 5)"."""
    of_interest = (*interval(values), statistics.median(values))
    low, high, mid = (
        f"{v:g}" if v % 1 == 0 else significant(v, 2) for v in of_interest
    )
    return f"{mid} ({low} to {high})" if len(values) > 1 else mid


@cache
def replies(number: str) -> list[tuple[str, str]]:
    """(misconception, message) of each wrong answer of the tests to an exercise:
    scripts/messages.py writes them.
    """
    rows = read_table(EXERCISES / "messages.csv", dict)
    return [
        (row["misconception"], row["message"])
        for row in rows
        if row["exercise"] == number
    ]


def behind(message: str, known: Iterable[tuple[str, str]]) -> str:
    """The misconception whose message is most like this one, with the same factors in
    it; "" where none is, or two.
    """
    own_words, factors = _words(message)
    others = [(name, *_words(text)) for name, text in known]
    alike = [
        (len(own_words & words) / len(own_words | words), name)
        for name, words, own in others
        if own == factors
    ]
    best = {name for share, name in alike if share >= _ALIKE and share == max(alike)[0]}
    return best.pop() if len(best) == 1 else ""


def _words(message: str) -> tuple[set[str], set[str]]:
    # these vary
    words = set(
        re.findall(
            r"[\w.+-]*\w", re.sub(r"[\d.]+ \w+ after the start|\b0x\w+", "", message)
        )
    )
    return words, {word for word in words if re.fullmatch(r"\d.*x", word)}


def exercises(readers: Sequence[Reader]) -> list[dict[str, Any]]:
    """For each exercise that somebody tried: who passed, what those who fail hit; first
    where most are at work.
    """
    by_number: dict[str, list[Standing]] = {}
    for number, standing in (
        pair for reader in readers for pair in standings(reader.entries).items()
    ):
        by_number.setdefault(number, []).append(standing)
    bank = misconceptions()
    rows = []
    for number, each in by_number.items():
        passed = [standing for standing in each if standing.state == "passed"]
        last = [
            [s.message for s in standing.steps if s.state == "not yet"][-1]
            for standing in each
            if standing.state == "not yet"
        ]
        hit = Counter(behind(message, replies(number)) for message in last)
        rows.append(
            {
                "number": number,
                "title": _title(number),
                "passed": len(passed),
                "failing": len(last),
                "open": len(each) - len(passed) - len(last),
                "unaided": sum(standing.unaided for standing in passed),
                "solution": sum(standing.solution for standing in each),
                "tried": middle([standing.attempts for standing in each]),
                "hints": middle([standing.hints for standing in each]),
                "hit": [
                    (n, bank[name]) for name, n in hit.most_common() if name in bank
                ],
                "unknown": hit[""],
            }
        )
    return sorted(rows, key=_most_at_work)


def _most_at_work(row: dict[str, Any]) -> tuple[int, tuple[str, int, str]]:
    """What sorts exercises: first those at which most are at work."""
    return -row["failing"] - row["open"], order(row["number"])


def stuck(readers: Sequence[Reader]) -> list[dict[str, Any]]:
    """The exercises at which readers are now, with a wrong answer and none that passed:
    how many, for how many minutes, what they believe; first where most are.

    Now is the time of the class's last entry. Who has gone on to another section, or
    has kept nothing for 45 minutes, isn't stuck.
    """
    real_now = results.now()
    times = [e.when for reader in readers for e in reader.entries if e.when <= real_now]
    now = max(times, default=real_now)
    by_number = defaultdict[str, list[tuple[float, str]]](list)
    for reader in readers:
        if (standing := _stuck_at(reader, now)) is not None:
            wrong = [step for step in standing.steps if step.state == "not yet"]
            minutes_at_it = _minutes_at_it([step.when for step in wrong], now)
            by_number[standing.number].append((minutes_at_it, wrong[-1].message))
    bank = misconceptions()
    rows = []
    for number, each in by_number.items():
        hit = Counter(behind(message, replies(number)) for _, message in each)
        taken = [taken_min for taken_min, _ in each]
        rows.append(
            {
                "number": number,
                "title": _title(number),
                "readers": len(each),
                "minutes": round(statistics.median(taken)),
                "longest": round(max(taken)),
                "hit": [
                    (n, bank[name]) for name, n in hit.most_common() if name in bank
                ],
                "hint": next(iter(exercise_files.hints(number)), ""),
            }
        )
    return sorted(rows, key=lambda row: (-row["readers"], order(row["number"])))


def _stuck_at(reader: Reader, now: str) -> Standing | None:
    """The exercise that a reader hasn't passed and is still at, or None."""
    last = max(reader.entries, key=lambda e: e.when)
    if _minutes(last.when, now) > _GONE_MIN:
        return None
    at_it = [
        standing
        for standing in standings(reader.entries).values()
        if standing.state == "not yet" and section_of(standing.number) == last.section
    ]
    return max(at_it, key=lambda standing: standing.when, default=None)


def _minutes_at_it(times: Sequence[str], now: str) -> float:
    """Minutes since the first of these times, or since the first after a break in which
    the reader was gone.
    """
    first = now
    for when in sorted(times, reverse=True):
        if _minutes(when, first) > _GONE_MIN:
            break
        first = when
    return _minutes(first, now)


def _minutes(earlier: str, later: str) -> float:
    """From one time to another, as results files have them."""
    between = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return between.total_seconds() / 60


def _title(number: str) -> str:
    """What an exercise's section asks."""
    heading = paths.headings(number[:2])[section_of(number)[3:]]
    return heading.partition(" ")[2]


def next_words(readers: Sequence[Reader]) -> tuple[str, str]:
    """The title of the notebook at which most readers are, and what labs.md says to
    discuss after it.
    """
    at = Counter(
        max(reader.entries, key=lambda e: e.when).section[:2] for reader in readers
    ).most_common(1)
    return next(
        ((paths.headings(number)[""], docs.afterwards()[number]) for number, _ in at),
        ("", ""),
    )


def guessed(readers: Sequence[Reader]) -> Iterator[dict[str, Any]]:
    """For each quantity its guesses over the guesser's own measurement, by machine and
    profile, placed on 0 to 100.
    """
    pairs = [
        pair for reader in readers for pair in guesses.before_measuring(reader.entries)
    ]
    pairs = [(guess, m) for guess, m in pairs if LEAST < guess / m.value < MOST]
    common = Counter(f"{m.machine}, {m.profile}" for _, m in pairs).most_common(_GROUPS)
    by_key: dict[str, dict[str, list[float]]] = {}
    for guess, m in pairs:
        name = (
            own
            if (own := f"{m.machine}, {m.profile}") in dict(common)
            else "all others"
        )
        by_key.setdefault(m.key, {}).setdefault(name, []).append(guess / m.value)
    for key, groups in sorted(by_key.items()):
        yield {
            "notebook": key[:2],
            "key": key,
            "groups": [
                {
                    "name": name,
                    "n": len(ratios),
                    "middle": middle(ratios),
                    "at": Counter(map(_place, ratios)),
                    "median": _place(statistics.median(ratios)),
                    "ends": list(map(_place, interval(ratios))),
                }
                for name, ratios in sorted(groups.items())
            ],
        }


def _place(ratio: float) -> int:
    """Where a ratio stands on a logarithmic axis; what is farther off
    stands at an end.
    """
    return round(50 + 50 * max(-1, min(1, math.log10(ratio) / _DECADES)))


def minutes(readers: Sequence[Reader]) -> list[tuple[str, str]]:
    """Each section's minutes as the class took them, or by the formula; of the
    notebooks in which somebody worked.
    """
    spent: dict[str, list[float]] = {}
    for reader in readers:
        at_work = {
            e.section for e in reader.entries if isinstance(e, Prediction | Attempt)
        }
        mine = defaultdict[str, float](float)
        for before, e in itertools.pairwise(
            sorted(reader.entries, key=lambda e: e.when)
        ):
            gap = _minutes(before.when, e.when)
            mine[e.section] += gap if gap <= _PAUSE_MIN and e.section in at_work else 0
        for section, own in mine.items():
            if own:
                spent.setdefault(section, []).append(own)
    rows = []
    for path in paths.chosen(sorted({section[:2] for section in spent})):
        for section, formula in section_minutes(path).items():
            taken = spent.get(f"{path.name[:2]}.{section}", [])
            words = (
                f"{middle(taken)}, {len(taken)} readers"
                if taken
                else f"{formula} by the formula"
            )
            rows.append(
                (f"{path.name[:2]}.{paths.headings(path.name[:2])[section]}", words)
            )
    return rows


_Counted = tuple[str, tuple[str, ...], tuple[tuple[str, float], ...]]
"""What makes bests comparable: the size, the names of counts, and par."""


def puzzles(readers: Sequence[Reader]) -> list[dict[str, Any]]:
    """For each puzzle that somebody solved: how many did, how many at par or below, par
    and the best answer of all. Of several sizes, the one that most have solved.
    """
    by_puzzle: dict[tuple[str, str], dict[_Counted, list[Best]]] = {}
    for reader in readers:
        for best in _bests(reader.entries):
            counted = best.size, tuple(best.counts), tuple(best.par.items())
            puzzle = best.section, best.key
            by_puzzle.setdefault(puzzle, {}).setdefault(counted, []).append(best)
    rows = []
    for section, key in sorted(by_puzzle, key=lambda puzzle: order(puzzle[0])):
        alike = max(by_puzzle[section, key].values(), key=len)
        first = min(alike, key=lambda best: tuple(best.counts.values()))
        at_par = sum(compared(b.counts, b.par) != "above par" for b in alike)
        rows.append(
            {
                "name": key,
                "solved": len(alike),
                "at_par": at_par,
                "par": in_words(first.par),
                "best": in_words(first.counts),
            }
        )
    return rows


def _bests(entries: Iterable[Any]) -> Iterator[Best]:
    """A reader's best answer to each puzzle, of each size and par."""
    ways: dict[tuple[str, _Counted], list[Best]] = {}
    for entry in entries:
        if isinstance(entry, Best) and list(entry.counts) == list(entry.par):
            counted = entry.size, tuple(entry.counts), tuple(entry.par.items())
            ways.setdefault((entry.key, counted), []).append(entry)
    for (_, (size, names, _)), way in ways.items():
        yield improvements(way, size=size, names=names)[-1]


def machines(readers: Sequence[Reader]) -> Iterator[dict[str, Any]]:
    """For each number that two or more measured, of the same work: its size on each
    machine.
    """
    by_work: dict[tuple[str, str, Work], dict[str, list[Measurement]]] = {}
    for m in (
        m
        for reader in readers
        for m in reader.last(Measurement).values()
        if m.origin == "measured"
    ):
        work = Work(m.unit, m.size, m.dtype, m.items, m.profile)
        if not difference(m, work):
            by_work.setdefault((m.section, m.what, work), {}).setdefault(
                m.machine, []
            ).append(m)
    for (section, what, work), by in sorted(
        by_work.items(), key=lambda item: item[0][:2]
    ):
        if sum(map(len, by.values())) > 1:
            title = ", ".join(
                filter(
                    None,
                    (
                        f"{section} {what}",
                        work.size,
                        work.dtype,
                        f"profile {work.profile}",
                    ),
                )
            )
            rows = [
                (machine, len(same), *_spread(same, work.unit))
                for machine, same in sorted(by.items())
            ]
            yield {"notebook": section[:2], "title": title, "rows": rows}


def _spread(same: Sequence[Measurement], unit: str) -> tuple[str, str]:
    """The middle of one machine's values, and its interval; of one value that of its
    samples, or what came with it.
    """
    values = [m.value for m in same]
    median = format_quantity(statistics.median(values), unit)
    if len(same) == 1 and unit == "x":
        return median, same[0].amount if same[0].high is not None else "unknown"
    samples = values if len(same) > 1 else same[0].samples
    return median, (
        " to ".join(format_quantity(end, unit) for end in interval(samples))
        if samples
        else "unknown"
    )


def claims(readers: Sequence[Reader]) -> tuple[list[str], list[list[str]]]:
    """The machines that judged most claims; a row for each claim with its verdicts, and
    how many gave each.
    """
    verdicts: dict[str, dict[str, Counter[str]]] = {}
    for reader in readers:
        last = {
            (v.claim, v.machine, v.section): judged_anew(v)
            for v in reader.entries
            if isinstance(v, Verdict)
        }
        for (claim, machine, _), verdict in last.items():
            if verdict != "not measured":
                verdicts.setdefault(claim, {}).setdefault(machine, Counter())[
                    verdict
                ] += 1
    judged = Counter(machine for by in verdicts.values() for machine in by)
    columns = sorted(machine for machine, _ in judged.most_common(_MACHINES))
    return columns, [
        [
            f"{claim} {claims_tested()[claim]}",
            *(_counted(by.get(machine, Counter())) for machine in columns),
        ]
        for claim, by in sorted(verdicts.items())
    ]


def _counted(words: Counter[str]) -> str:
    shown = (
        (word.replace("holds when", "holds under a condition"), n)
        for word, n in words.most_common()
    )
    return ", ".join(word if n == 1 else f"{word} ({n})" for word, n in shown)
