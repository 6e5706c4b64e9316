"""One page about a class, or about recorded runs: guesses, results by machine, claims, exercises. It needs no network.

Readers are p1, p2, ... in an order that says nothing, unless names are asked for; then each is the file's name.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneltrace.tables import Table  # labkit's makes links of text
from labkit.core import results
from labkit.core.comparable import Work, difference
from labkit.core.display import Note, as_html
from labkit.core.errors import DataError
from labkit.core.own_folder import writing
from labkit.core.parameters import checked
from labkit.core.results import Measurement, Prediction, Verdict
from labkit.core.units import format_quantity
from labkit.lesson import calibration, guesses, journal
from labkit.lesson.outcomes import Standing, standings
from labkit.measure.bootstrap import median_ratio_interval
from teaching.class_files import Reader, read_class, within
from teaching.guess_histogram import guess_histogram
from teaching.report import as_page

_MOST_MACHINES = 40  # columns: those that judged most claims
_FEWEST_SAMPLES = 5  # for an interval of their median


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("paths", nargs="+", type=Path, help="results files (.jsonl), or folders of them")
    parser.add_argument("-o", "--output", type=Path, default=Path("pool.html"), help="default: pool.html")
    parser.add_argument("--names", action="store_true", help="call readers by their files' names, not p1, p2")


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and print what was skipped."""
    for sentence in write_page(arguments.paths, arguments.output, names=arguments.names):
        print(sentence, file=sys.stderr)
    print(f"{arguments.output} is written. Open it in a browser; it needs no network.")
    return 0


@checked
def write_page(paths: Sequence[Path], target: Path, *, names: bool = False) -> list[str]:
    """Write the page about these files and folders; what was skipped, in sentences that may name files.

    Raises DataError where nothing can be read, or `target` can't be written.
    """
    readers, skipped = read_class(paths, names=names)
    if not readers:
        raise DataError(" ".join(["Expected results files, found none.", *skipped[:5]]))
    page = as_page(f"Results of {len(readers)} readers", "".join(_parts(readers, skipped)))
    with writing(target):
        target.write_text(page, encoding="utf-8")
    return skipped


def _parts(readers: Sequence[Reader], skipped: Sequence[str]) -> Iterator[str]:
    """The page's sections; it doesn't say what was skipped in words, since these name files."""
    told = f"{len(readers)} results files: {', '.join(r.name for r in readers)}. Made on {results.now()[:10]}."
    told += f" {len(skipped)} files or groups of lines are left out, which the command names." if skipped else ""
    yield f"<p>{as_html(told)}</p>"
    pairs = [pair for reader in readers for pair in guesses.before_measuring(reader.entries)]
    guessed = calibration.calibrated(pairs, "All") if pairs else Note("Nobody has guessed and measured a number yet.")
    yield f"<h2>How good the guesses are</h2>{guessed._repr_html_()}"
    yield f"<h2>Exercises</h2>{_exercises(readers)._repr_html_()}"
    yield f"<h2>Claims by machine</h2>{_claims(readers)._repr_html_()}"
    yield "<h2>Guesses, and what was measured</h2><p>Only guesses that were made before measuring.</p>"
    yield from _folded(within(_guesses(readers)))
    yield "<h2>Results by machine</h2><p>Only what several measured with the same sizes, on machines not busy.</p>"
    yield from _folded(within(_machines(readers)))


def _folded(parts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """(notebook, HTML) pairs, those of a notebook behind its number."""
    for notebook, group in itertools.groupby(parts, key=lambda part: part[0]):
        inside = "".join(part for _, part in group)
        yield f"<details open><summary>Notebook {as_html(notebook)}</summary><div class='row'>{inside}</div></details>"


def _guesses(readers: Sequence[Reader]) -> Iterator[tuple[str, str]]:
    """A figure for each quantity that somebody guessed before measuring it."""
    found: dict[type[Any], dict[tuple[str, str, str], list[float]]] = {Prediction: {}, Measurement: {}}
    for reader, kind in itertools.product(readers, found):
        for key, entry in reader.last(kind).items():
            found[kind].setdefault(key, []).append(entry.value)
    for key, guessed in sorted(found[Prediction].items()):
        measured, title = found[Measurement].get(key, []), " ".join(key[:2])
        yield key[0][:2], guess_histogram(guessed, measured, unit=key[2], title=title).as_html()


def _machines(readers: Sequence[Reader]) -> Iterator[tuple[str, str]]:
    """A table for each number that two or more measured, of the same work: its size on each machine."""
    found: dict[tuple[str, str, Work], dict[str, list[Measurement]]] = {}
    for m in (m for reader in readers for m in reader.last(Measurement).values() if m.origin == "measured"):
        work = Work(m.unit, m.size, m.dtype, m.items, m.profile)
        if not difference(m, work):
            found.setdefault((m.section, m.what, work), {}).setdefault(m.machine, []).append(m)
    for (section, what, work), by in sorted(found.items(), key=lambda item: item[0][:2]):
        if sum(map(len, by.values())) > 1:
            rows = tuple((machine, str(len(same)), *_spread(same, work.unit)) for machine, same in sorted(by.items()))
            told = ", ".join(filter(None, (f"{section} {what}", work.size, work.dtype, f"profile {work.profile}")))
            head = ("machine", "readers", "middle", "95 % interval of one, least to greatest of several")
            yield section[:2], f"<div>{Table(rows, head, told)._repr_html_()}</div>"


def _spread(same: Sequence[Measurement], unit: str) -> tuple[str, str]:
    """The middle of one machine's values, and their range; of a single value the interval of its samples' median."""
    values = [m.value for m in same]
    low, high = min(values), max(values)
    if len(same) == 1 and unit == "x":
        return format_quantity(values[0], unit), same[0].amount if same[0].high is not None else "unknown"
    if len(same) == 1:
        samples = same[0].samples
        if len(samples) < _FEWEST_SAMPLES or min(samples) <= 0:
            return format_quantity(values[0], unit), "unknown"
        low, high = median_ratio_interval(samples, (1.0,) * len(samples))  # over 1: of the median itself
    ends = f"{format_quantity(low, unit)} to {format_quantity(high, unit)}"
    return format_quantity(statistics.median(values), unit), ends


def _claims(readers: Sequence[Reader]) -> Table:
    """A row for each claim that somebody judged, a column for each machine; how many gave a verdict, where several."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for reader in readers:
        last = {(v.claim, v.machine, v.section): v.verdict for v in reader.entries if isinstance(v, Verdict)}
        for (claim, machine, _), verdict in last.items():
            if verdict != "not measured":
                found.setdefault(claim, {}).setdefault(machine, Counter())[verdict] += 1
    judged = Counter(machine for by in found.values() for machine in by)
    machines = sorted(machine for machine, _ in judged.most_common(_MOST_MACHINES))
    rows = tuple(
        (f"{claim} {journal.claims().get(claim, '')}", *(_counted(found[claim].get(m, Counter())) for m in machines))
        for claim in sorted(found)
    )
    return Table(rows, ("claim", *machines) if rows else (), notes=() if rows else ("Nobody has judged a claim.",))


def _counted(words: Counter[str]) -> str:
    shown = ((word.replace("holds when", "holds under a condition"), n) for word, n in words.most_common())
    return ", ".join(word if n == 1 else f"{word} ({n})" for word, n in shown)


def _exercises(readers: Sequence[Reader]) -> Table:
    """A row for each exercise that somebody tried, those first at which most are still at work."""
    found: dict[str, list[Standing]] = {}
    for reader in readers:
        for number, standing in standings(reader.entries).items():
            found.setdefault(number, []).append(standing)
    stuck = {number: sum(one.state != "passed" for one in each) for number, each in found.items()}
    rows = []
    for number in sorted(found, key=lambda number: (-stuck[number], number)):
        each, passed = found[number], [one for one in found[number] if one.state == "passed"]
        counts = [str(n) for n in (len(passed), stuck[number], sum(one.unaided for one in passed))]
        tried = (statistics.median(one.attempts for one in each), statistics.median(one.hints for one in each))
        rows.append((number, *counts, *(f"{n:g}" for n in tried), str(sum(one.solution for one in each))))
    head = ("exercise", "passed", "not yet", "passed unaided", "answers, middle", "hints, middle", "read the solution")
    notes = ("The class is stuck at those at the top.",) if any(stuck.values()) else ()
    return Table(tuple(rows), head if rows else (), notes=notes if rows else ("Nobody has tried an exercise.",))
