"""A reader's bests at puzzles: what right answers cost, beside par, kept over time.

`keep` takes what an answer costs and returns its `Score`. Less is better, and the first
count decides; where it is the same, the next one does. A better answer is appended to
the results file as a `Best`; nothing is ever replaced, so that several kernels may keep
bests at once, and `history` finds the way from the first to the best.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from labkit.core import results
from labkit.core.display import ShownAsTable, Table
from labkit.core.errors import BadMeasurement
from labkit.core.parameters import Items, Kind, NonNegative, Positive, checked
from labkit.core.results import Best
from labkit.core.units import significant

if TYPE_CHECKING:
    from labkit.plot import Picture

Standing = Literal["above par", "par", "below par"]

_LEAST = 1e-9  # a cost of 0 has a place on a logarithmic axis, too
_NUMBER = re.compile(r"\d\d\.\d\d?[a-z]?")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(re.match(_NUMBER, value))


Name = Annotated[
    str, Kind("a puzzle's name such as '23.10' or '14.3 four stages'", _is_name)
]
Costs = Annotated[dict[str, NonNegative], Items(1)]
Pars = Annotated[dict[str, Positive], Items(1)]


@dataclass(frozen=True, repr=False)
class Score(ShownAsTable):
    """What an answer to a puzzle costs, beside par and the reader's bests.

    `history` are the bests in the order in which they were reached, this answer's
    among them if it is one (`is_new`).
    """

    name: str
    counts: Mapping[str, float]
    par: Mapping[str, float]
    history: tuple[Best, ...]
    is_new: bool

    @property
    def best(self) -> Best:
        """The reader's best."""
        return self.history[-1]

    @property
    def standing(self) -> Standing:
        """Where the answer stands."""
        return compared(self.counts, self.par)

    def table(self) -> Table:
        """What a cell shows."""
        rows = tuple(
            (
                name,
                number_in_words(cost),
                number_in_words(self.par[name]),
                number_in_words(self.best_of(name)),
            )
            for name, cost in self.counts.items()
        )
        headings = (self.name, "yours", "par", "your best")
        return Table(rows, headings, notes=(self.sentence,))

    def best_of(self, name: str) -> float:
        """What the reader's best costs, by the name of a count."""
        return self.best.counts[name]

    @property
    def sentence(self) -> str:
        """Where the answer stands, and the reader's way to the best."""
        words = {
            "above par": "Above par.",
            "par": "Par.",
            "below par": "A new par: send us your answer, and it will be everybody's.",
        }
        return f"{words[self.standing]} {self._way()}".rstrip()

    def _way(self) -> str:
        """The bests in the first count in which they differ."""
        for name in self.counts:
            costs = [number_in_words(each.counts[name]) for each in self.history]
            if len(set(costs)) > 1:
                return f"Your bests in {name}: {' → '.join(costs)}."
        return ""


@checked(error=BadMeasurement)
def keep(name: Name, counts: Costs, par: Pars, *, size: str = "") -> Score:
    """Keep what a right answer to a puzzle costs if none of this reader's costs less,
    and return its score.

    `counts` and `par` have the same names in the same order; the first one decides.
    `size` says what was counted, and bests of another size don't count. Raises
    BadMeasurement for names that differ.
    """
    if list(counts) != list(par):
        raise BadMeasurement(
            f"Expected par of {', '.join(counts)}, in this order, got par of"
            f" {', '.join(par)}."
        )
    section, what = _split(name)
    before = history(name, size=size, names=tuple(counts))
    is_new = not before or compared(counts, before[-1].counts) == "below par"
    if is_new:
        new = Best(section, what, dict(counts), dict(par), results.now(), size)
        results.results().append(new)
        before = (*before, new)
    return Score(name, counts, par, before, is_new)


def compared(counts: Mapping[str, float], par: Mapping[str, float]) -> Standing:
    """Where what an answer costs stands, by the first count that differs."""
    for name, cost in counts.items():
        if math.isclose(cost, par[name], rel_tol=1e-9):
            continue
        return "above par" if cost > par[name] else "below par"
    return "par"


def best(name: str, *, size: str | None = None) -> Best | None:
    """The reader's best at a puzzle; None where there is none."""
    way = history(name, size=size)
    return way[-1] if way else None


def history(
    name: str, *, size: str | None = None, names: tuple[str, ...] = ()
) -> tuple[Best, ...]:
    """The bests of this reader at a puzzle, each better than those before; of the size
    and the names of counts of the last one that was kept, unless these are given.
    """
    entries = (e for e in results.results().entries() if isinstance(e, Best))
    own = [e for e in entries if e.key == name]
    if not own:
        return ()
    return improvements(
        own,
        size=own[-1].size if size is None else size,
        names=names or tuple(own[-1].counts),
    )


@checked
def board(
    titles: Mapping[str, str],
    pars: Mapping[str, dict[str, Positive]] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> Picture:
    """All bests of this reader at puzzles, name -> title, over time: each way to the
    best beside par, in the count that decides, with the day of the last one.

    `pars` and `sizes` are those of today by name; without them each best has its own
    par, and the last size counts.
    """
    from labkit.plot.bests import bests

    ways: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    last: list[tuple[Best, Mapping[str, float]]] = []
    for name, title in titles.items():
        row = f"{name} {title}"
        way = history(name, size=(sizes or {}).get(name))
        ways[row] = []
        notes[row] = "open"
        for best in way:
            par = (pars or {}).get(name, best.par)
            deciding = next(iter(best.counts))
            ways[row].append(max(best.counts[deciding], _LEAST) / par[deciding])
            notes[row] = _note(best, par)
        if way:
            last.append((way[-1], par))
    at_par = sum(compared(best.counts, par) != "above par" for best, par in last)
    sentence = f"{len(last)} of {len(titles)} are solved, {at_par} of them at par."
    picture: Picture = bests(ways, notes, sentence)
    return picture


def _note(best: Best, par: Mapping[str, float]) -> str:
    """What stands beside a best: "par, 29 Nov", "above par in steps, 29 Nov"."""
    words: str = compared(best.counts, par)
    deciding, *others = best.counts
    if words != "par" and math.isclose(best.counts[deciding], par[deciding]):
        (count, *_) = (n for n in others if not math.isclose(best.counts[n], par[n]))
        words += f" in {count}"
    return f"{words}, {datetime.datetime.fromisoformat(best.when):%d %b}"


def improvements(
    entries: Iterable[Best], *, size: str, names: tuple[str, ...]
) -> tuple[Best, ...]:
    """Of bests at one puzzle, in the order in which they were kept, those that are
    comparable and better than all before.
    """
    way: list[Best] = []
    for entry in entries:
        if entry.size != size or tuple(entry.counts) != names:
            continue
        if not way or compared(entry.counts, way[-1].counts) == "below par":
            way.append(entry)
    return tuple(way)


def _split(name: str) -> tuple[str, str]:
    """Section and name of a puzzle: ("23.10", "23.10"), ("14.3", "four stages")."""
    if _NUMBER.fullmatch(name):
        return results.section_of(name), name
    return results.split_key(name)


def in_words(counts: Mapping[str, float]) -> str:
    """Counts in words: "64 sectors, 12 steps"."""
    return ", ".join(f"{number_in_words(cost)} {name}" for name, cost in counts.items())


def number_in_words(value: float) -> str:
    """A count as whole as it is: "1,024", "0.125"."""
    return f"{value:,.0f}" if value == int(value) else significant(value, 4)
