"""What the reader measures: `record` keeps a number, `verdict` judges a claim,
`summary` closes a notebook.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from labkit.core import results
from labkit.core.arguments import as_float
from labkit.core.comparable import Work
from labkit.core.display import Note, Shown, Table, brief_repr
from labkit.core.errors import BadMeasurement
from labkit.core.parameters import ANYTHING, Kind, Positive, checked
from labkit.core.results import (
    Key,
    Measurement,
    NotebookName,
    Prediction,
    Section,
    Unit,
    Verdict,
    VerdictWord,
)
from labkit.core.units import format_quantity, significant
from labkit.lesson import guesses, outline
from labkit.lesson.claims import (
    WORTH_IT,
    Interval,
    check_claims,
    claims,
    interval_of,
    judged_anew,
    published_evidence,
    word_of,
)
from labkit.measure.bench import Ratio, Timing
from labkit.measure.contention import CELLS, Contention
from labkit.measure.machine import machine

_NEVER_NEGATIVE = ("s", "B", "bytes", "x", "FLOP")
OwnOrigin = Literal["measured", "simulated", "calculated"]


def _is_evidence(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(each, Ratio | Measurement) for each in value.values())
    if isinstance(value, list | tuple):
        return all(isinstance(each, Ratio) for each in value)
    if isinstance(value, str):
        return value == "not shown"
    return isinstance(value, Ratio | bool | None)


Evidence = Annotated[
    Ratio
    | bool
    | Literal["not shown"]
    | Sequence[Ratio]
    | Mapping[str, Ratio | Measurement]
    | None,
    Kind(
        'a Ratio or True or False or "not shown" or None, or Ratios in a list or by'
        " name",
        _is_evidence,
        advice="lab.compare(...).ratio(...) makes one.",
    ),
]
_recorded_here: dict[str, Measurement] = {}  # by this kernel: the latest under each key


@checked(error=BadMeasurement)
def record(
    key: Key,
    value: Annotated[float | Timing | Ratio, ANYTHING],
    unit: Unit,
    *,
    items: Positive | None = None,
    size: str = "",
    dtype: str = "",
    origin: OwnOrigin = "measured",
    claims: Sequence[str] = (),
    timed: bool = True,
) -> Measurement:
    """Keep a measured number under a key, with its samples, this machine, its versions
    and the guess made before.

    A `Timing` is kept as seconds a call, or as `items` per second when `items` is
    given, and a `Ratio` with its interval. `size` says what one call handled, such as
    f"batch {batch}", and `dtype` in which number format: without a size, the number
    stands beside no other. A number that follows from data sheets alone has the origin
    "calculated", one from a simulated device "simulated". On a busy machine the number
    is marked, unless `timed` is False: an accuracy, a count, bytes. Raises
    BadMeasurement, and records nothing, for a malformed key, unit, size or format, an
    unknown claim or origin, and a value that isn't finite.
    """
    section, what = results.split_key(key)
    guesses.check_lock(section)
    _check_printable(size=size, dtype=dtype)
    work = Work(unit, size, dtype, as_float(items), results.profile())
    check_claims(claims)
    number: float | None
    samples: tuple[float, ...] = ()
    low = high = None
    if type(value) is Timing:
        check_items(repr(key), unit, items)
        number, samples = _of_timing(value, work.items)
    elif isinstance(value, Ratio):
        number = value.value
        low = value.low if math.isfinite(value.low) else None
        high = value.high if math.isfinite(value.high) else None
    else:
        number = as_float(value)
    if number is None or not math.isfinite(number):
        raise BadMeasurement(
            f"Expected a finite number in {unit} for {key!r}, got {brief_repr(value)}."
            " Nothing was recorded."
        )
    _check_possible(key, number, unit)
    here = machine()
    contention = _taken_by_others(section, value, origin, timed)
    measurement = Measurement(
        section=section,
        what=what,
        value=number,
        unit=unit,
        origin=origin,
        machine=here.name,
        when=results.now(),
        samples=samples,
        predicted=guesses.predicted(key, unit),
        profile=work.profile,
        claims=tuple(claims),
        versions=dict(here.versions),
        size=size,
        dtype=dtype,
        items=work.items,
        waited=contention.lost,
        busy=contention.reason,
        low=low,
        high=high,
    )
    results.results().append(measurement)
    _recorded_here[measurement.key] = measurement
    guesses.answer(measurement)
    return measurement


def _taken_by_others(
    section: str, value: object, origin: OwnOrigin, timed: bool
) -> Contention:
    """What other programs took of a number's time: of its timing's, or of what may have
    measured it.

    That is the cells since the last record and, since a ratio is often recorded a cell
    after its board, the timings that this kernel recorded in the section.
    """
    if not timed or origin == "calculated":
        return Contention()
    cells = CELLS.worst(recording=True)
    if isinstance(value, Timing):
        return value.contention or Contention()
    if isinstance(value, Ratio) and value.busy:
        return Contention(reason=value.busy)
    if not cells.reason:
        for timing in reversed(_recorded_here.values()):
            if timing.section == section and timing.samples and timing.busy:
                return Contention(timing.waited, timing.busy)
    return cells


def _check_possible(key: str, number: float, unit: str) -> None:
    """Raise BadMeasurement for less than nothing of what can't be negative: seconds,
    bytes, ratios and rates. Differences in other units can.
    """
    if number < 0 and (unit in _NEVER_NEGATIVE or unit.endswith("/s")):
        raise BadMeasurement(
            f"Expected a number of 0 or more for {key!r}, got {brief_repr(number)}"
            f" {unit}. Nothing was recorded."
        )


def _check_printable(**texts: str) -> None:
    """Raise BadMeasurement for text that would break a table."""
    for name, text in texts.items():
        if not text.isprintable():
            raise BadMeasurement(
                f"Expected {name} to be text that can be printed, got"
                f" {brief_repr(text)}."
            )


def _of_timing(timing: Timing, items: float | None) -> tuple[float, tuple[float, ...]]:
    """Value and samples of a timing: seconds, or items per second. BadMeasurement where
    a call took no time.
    """
    if items is None:
        return timing.median_s, timing.samples_s
    if not min(timing.samples_s) > 0:
        raise BadMeasurement(
            f"Expected readings above 0 s for {timing.label!r}, got"
            f" {brief_repr(timing.samples_s)}, which give no rate. Nothing was"
            " recorded."
        )
    return timing.rate(items), tuple(items / seconds for seconds in timing.samples_s)


@checked
def check_items(what: str, unit: str, items: Positive | None) -> None:
    """Raise BadMeasurement unless a timing can be shown in `unit`: a rate needs
    `items`, seconds must have none.
    """
    if unit == "s" and items is not None:
        raise BadMeasurement(
            f"{what} is in s: leave items= out, or choose a unit such as 'images/s'."
        )
    if unit != "s" and items is None:
        things = unit.split("/")[0]
        raise BadMeasurement(
            f"{what} is in {unit}: pass items=, the {things} that one call handles."
        )


@checked(error=BadMeasurement)
def verdict(
    claim: str,
    evidence: Evidence,
    *,
    section: Section,
    least: Positive = WORTH_IT,
    because: Annotated[
        str | Ratio | Sequence[object] | Mapping[str, object] | None, ANYTHING
    ] = None,
    when: str = "",
    needs: str = "",
) -> Note:
    """Judge a claim by its evidence, and keep the verdict.

    `evidence` is a Ratio, or several in a list or by name. One confirms the claim if
    its whole interval lies above `least`, refutes it if none of it does, and else the
    claim is "not shown". Of several, all have to confirm it; if some do, it holds
    "partly". Numbers that others published have no interval: each confirms the claim
    from 1 on. What isn't a speed-up is True, False, or "not shown" where an experiment
    didn't settle it. None, or no ratios, is a claim that can't be measured here;
    `needs` then says what would be needed.

    `because` replaces the evidence's own words: text, a Ratio, or a list or dict of
    them by name. `when` narrows a claim that holds to a condition. Nothing is judged
    that was measured on a busy machine: no such Ratio, and neither True nor False where
    a number is marked that this kernel recorded in the section or for the claim, or if
    none, the cells since its last record. The note ends with what others published
    about the claim, on which no verdict rests but one whose evidence it is. Raises
    BadMeasurement for other evidence and for an unknown claim.
    """
    check_claims([claim])
    if not isinstance(because, str | Ratio | Mapping | list | tuple | None):
        raise BadMeasurement(
            "Expected because to be text, a ratio, or a list or dict of them, got"
            f" {brief_repr(because)}."
        )
    by_name = _by_name(evidence)
    _check_published(by_name)
    basis = _reason(because)
    # several lines are fine here
    _check_printable(
        because=basis.replace("\n", ""),
        when=when.replace("\n", ""),
        needs=needs.replace("\n", ""),
    )
    intervals = {name: _interval_of(each, least) for name, each in by_name.items()}
    word: VerdictWord
    if evidence is None or not (by_name or isinstance(evidence, bool | str)):
        word = "not measured"
        reason = f"needs {needs}"
    elif busy := _busy(claim, by_name, section):
        word = "not measured"
        reason = f"{busy}. Run the cells again when it is calm"
        intervals = {}
    else:
        word = _judged(evidence, intervals, least)
        if word == "holds" and when:
            word = "holds when"
        reason = basis or _in_words(evidence, by_name)
        if when:
            reason = f"{when}. {reason}"
    results.results().append(
        Verdict(
            claim=claim,
            verdict=word,
            because=reason,
            section=section,
            machine=machine().name,
            when=results.now(),
            least=least,
            intervals=intervals,
        )
    )
    verdict_line = f"{claim} ({claims()[claim]}): {word}: {reason}"
    return Note("\n".join([verdict_line, *published_evidence(claim)]))


def _by_name(evidence: Evidence) -> dict[str, Ratio | Measurement]:
    """The speed-ups of evidence by name; empty where it has none."""
    if isinstance(evidence, Ratio):
        return {evidence.label: evidence}
    if isinstance(evidence, Mapping):
        return dict(evidence)
    if isinstance(evidence, list | tuple):
        return {
            f"{number} {each.label} over {each.baseline}": each
            for number, each in enumerate(evidence, 1)
        }
    return {}


def _check_published(by_name: Mapping[str, Ratio | Measurement]) -> None:
    """Raise BadMeasurement for a number by name that nobody published."""
    for name, each in by_name.items():
        if isinstance(each, Measurement) and each.origin != "published":
            raise BadMeasurement(
                f"Expected published ratios by name, but {name!r} is {each.origin}."
                " Pass the Ratio itself."
            )


def _interval_of(speedup: Ratio | Measurement, least: float) -> Interval:
    """Of a published number, which has none, the side of `least` on which it stands."""
    if isinstance(speedup, Ratio):
        return interval_of(speedup.low, speedup.high)
    if speedup.value >= 1:
        return [max(speedup.value, math.nextafter(least, math.inf)), None]
    return [None, min(speedup.value, least)]


def _in_words(evidence: Evidence, by_name: Mapping[str, Ratio | Measurement]) -> str:
    """Evidence in words: of published ratios how many are at least 1, and each."""
    published_values = {
        name: each.value
        for name, each in by_name.items()
        if isinstance(each, Measurement)
    }
    if not published_values:
        return "; ".join(map(str, by_name.values())) or str(evidence)
    n = sum(value >= 1 for value in published_values.values())
    each_value = "; ".join(
        f"{name} {significant(value, 3)}" for name, value in published_values.items()
    )
    return (
        f"{n} of {len(published_values)} published ratios are at least 1: {each_value}"
    )


def _judged(
    evidence: Evidence, intervals: Mapping[str, Interval], least: float
) -> VerdictWord:
    if intervals:
        return word_of(intervals, least)
    if isinstance(evidence, str):
        return "not shown"
    return "holds" if evidence else "does not hold"


def _reason(because: object, between: str = "; ") -> str:
    """What a verdict rests on, in words: of several reasons one after another, of a
    dict each after its name.
    """
    if isinstance(because, Mapping):
        return between.join(
            f"{name}: {_reason(reason, ', ')}" for name, reason in because.items()
        )
    if isinstance(because, list | tuple):
        return between.join(map(_reason, because))
    if isinstance(because, float):
        return significant(because, 3)
    return "" if because is None else str(because)


def _busy(claim: str, by_name: Mapping[str, Ratio | Measurement], section: str) -> str:
    """How busy the machine was while the evidence was measured; empty where it may be
    judged, as what others published always is.
    """
    if by_name:
        busy = (each.busy for each in by_name.values() if isinstance(each, Ratio))
        return next(filter(None, busy), "")
    basis = [
        m for m in _recorded_here.values() if m.section == section or claim in m.claims
    ]
    if not basis:
        return CELLS.worst().reason
    return next((m.busy for m in basis if m.busy), "")


@dataclass(frozen=True, repr=False)
class Summary(Shown):
    """A notebook's predictions beside its measurements, the claims it tested, and what
    is done and comes next.
    """

    rows: tuple[tuple[str, str, str, str], ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    closing: str = ""

    def _tables(self) -> list[Table]:
        parts = [Table(self.rows, _HEAD, notes=self.notes)]
        if self.verdicts:
            rows = tuple(
                (v.claim, claims().get(v.claim, _UNLISTED), judged_anew(v), v.because)
                for v in self.verdicts
            )
            parts.append(Table(rows, _CLAIMS_HEAD))
        return parts

    def __str__(self) -> str:
        return "\n\n".join(map(str, [*self._tables(), self.closing]))

    def _repr_html_(self) -> str:
        parts = [table._repr_html_() for table in self._tables()]
        return "".join([*parts, Note(self.closing)._repr_html_()])


_HEAD = ("what", "your guess", "measured", "measured / guess")
_UNLISTED = "a claim no longer listed"
_CLAIMS_HEAD = ("claim", "what is claimed", "on this machine", "because")


@checked(error=BadMeasurement)
def summary(notebook: NotebookName) -> Summary:
    """The closing table of a notebook ("00"): the last measurement and guess of each
    quantity on this machine.

    A guess that was never measured has a row too. Raises BadMeasurement unless
    `notebook` is two digits.
    """
    if re.fullmatch(r"\d\d", notebook) is None:
        raise BadMeasurement(
            f'Expected a notebook\'s number such as "00", got {brief_repr(notebook)}.'
        )
    log = results.results()
    entries = [e for e in log.entries() if e.section.startswith(f"{notebook}.")]
    here = machine().name
    measured = {
        e.key: e for e in entries if isinstance(e, Measurement) and e.machine == here
    }
    guesses = {f"{e.section} {e.what}": e for e in entries if isinstance(e, Prediction)}
    verdicts = {
        e.claim: e for e in entries if isinstance(e, Verdict) and e.machine == here
    }
    # by section; what was measured first
    keys = sorted({**measured, **guesses}, key=_section)
    rows = tuple(_row(key, measured.get(key), guesses.get(key)) for key in keys)
    notes = log.damaged()
    if log.note:
        notes = [log.note, *notes]
    if busy := [m for m in measured.values() if m.busy]:
        notes = [_worst_of(busy), *notes]
    by_claim = tuple(verdicts[claim] for claim in sorted(verdicts))
    return Summary(rows, by_claim, tuple(notes), outline.closing(notebook))


def _section(key: str) -> int:
    """The number of the section that a key begins with: 10 of "23.10 sectors"."""
    return int(key.split()[0][3:])


def _worst_of(busy: Sequence[Measurement]) -> str:
    """How busy the machine was at worst while these numbers were measured, and what to
    do.
    """
    worst = max(busy, key=lambda measurement: measurement.waited or 0.0)
    rows = "one row was" if len(busy) == 1 else f"{len(busy)} rows were"
    at_worst = "" if len(busy) == 1 else "at worst "
    return (
        f"While {rows} measured, {at_worst}{worst.busy}. Run the row's cell again when"
        " it is calm."
    )


def _row(
    key: str, measurement: Measurement | None, guess: Prediction | None
) -> tuple[str, str, str, str]:
    guessed = "none" if guess is None else format_quantity(guess.value, guess.unit)
    if measurement is None:
        return key, guessed, "not measured here", ""
    number = measurement.amount
    if measurement.origin != "measured":
        number += f" ({measurement.origin})"
    if measurement.busy:
        number += " (machine busy)"
    if guess is None or guess.unit != measurement.unit:
        return key, "none", number, ""
    if not guess.blind:
        guessed += " (made after measuring)"
    if guess.value == 0:  # there is no ratio
        distance = guesses.apart(measurement.value, 0, guess.unit)
    else:
        distance = f"{significant(measurement.value / guess.value, 2)}x"
    return key, guessed, number, distance
