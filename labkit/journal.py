"""What the reader guesses and measures: `predict` before, `record` after, `verdict` on a claim, `summary` last."""

from __future__ import annotations

import csv
import functools
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labkit import records
from labkit.bench import Ratio, Timing
from labkit.errors import BadMeasurement, DataError, nearest
from labkit.machine import machine
from labkit.records import Measurement, Prediction, Verdict
from labkit.shown import Shown, Table
from labkit.units import format_quantity, significant


@dataclass(frozen=True, repr=False)
class Note(Shown):
    """A sentence for the reader, shown as text."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:  # plain text would be broken in the middle of a word
        return f"<div style='max-width:48em'>{html.escape(self.text)}</div>"


def predict(key: str, guess: object, unit: str) -> Note:
    """Write down a guess before measuring, under a key such as "00.3 all threads"; `...` leaves it open.

    The guess is kept in the results file; boards and the closing table show it beside the measurement.
    """
    section, what = records.split_key(key)
    if guess is ...:
        return Note(f"todo: put a number in place of the dots ({unit}). A wrong guess teaches more than none.")
    if isinstance(guess, bool) or not isinstance(guess, int | float):
        return Note(f"Expected a number in {unit}, got {guess!r}. Nothing was noted.")
    if not 0 < guess < float("inf"):
        return Note(f"Expected a number above 0 in {unit}, got {guess!r}. Nothing was noted.")
    log = records.results()
    entries = log.entries()
    before = records.latest(entries, key)
    noted = records.latest(entries, key, Prediction)
    same = isinstance(noted, Prediction) and noted.value == guess
    blind = noted.blind if same and isinstance(noted, Prediction) else before is None
    log.append(Prediction(section, what, float(guess), unit, records.now(), blind))
    percent = " That is less than one percent; for 95 % write 95." if unit == "%" and guess < 1 else ""
    late = "" if blind else " It was measured here before this guess, so the closing table marks it."
    return Note(f"Noted: {format_quantity(float(guess), unit)} for {what}.{percent}{late} {log.note}".rstrip())


def predicted(key: str) -> float | None:
    """The reader's last guess under a key, in the unit it was made in, or None."""
    found = records.latest(records.results().entries(), key, Prediction)
    return found.value if isinstance(found, Prediction) else None


def record(
    key: str,
    value: float | Timing,
    unit: str,
    *,
    items: float | None = None,
    origin: Literal["measured", "simulated", "calculated"] = "measured",
    claims: Sequence[str] = (),
) -> Measurement:
    """Keep a measured number under a key, with its samples, this machine, its versions and the guess made before.

    A `Timing` is kept as seconds a call, or as `items` per second when `items` is given. What follows from data
    sheets alone is "calculated", what a simulated device said "simulated".
    """
    section, what = records.split_key(key)
    if isinstance(value, Timing):
        samples = tuple(value.samples_s if items is None else (items / s for s in value.samples_s))
        value = value.median_s if items is None else value.rate(items)
    else:
        samples = ()
    here = machine()
    measurement = Measurement(
        section, what, float(value), unit, origin, here.name, records.now(), samples, predicted(key),
        records.profile(), tuple(claims), dict(here.versions),
    )  # fmt: skip
    records.results().append(measurement)
    return measurement


@functools.cache
def claims() -> dict[str, str]:
    """The claims under test: id -> what is claimed (data/claims.csv)."""
    path = records.RECORDED.parent / "claims.csv"
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return {row["id"]: row["claim"] for row in csv.DictReader(file)}
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}). Fetch the repository again.") from error


def verdict(
    claim: str, evidence: Ratio | bool | None, *, section: str, because: str = "", when: str = "", needs: str = ""
) -> Note:
    """Note what the evidence says of a claim: a speed-up whose interval lies above 1 holds, no other does.

    `because` replaces the evidence's own words, `when` narrows a claim to a condition. Evidence None means
    that it can't be measured here, and `needs` says what would be needed.
    """
    if claim not in claims():
        raise BadMeasurement(f"There is no claim {claim!r}; did you mean {', '.join(nearest(claim, claims()))}?")
    word: Literal["holds", "holds when", "does not hold", "not measured"]
    if evidence is None:
        word, reason = "not measured", f"needs {needs}"
    else:
        holds = evidence.verdict == "faster" if isinstance(evidence, Ratio) else evidence
        word = ("holds when" if when else "holds") if holds else "does not hold"
        reason = ". ".join(part for part in (when, because or str(evidence)) if part)
    records.results().append(Verdict(claim, word, reason, section, machine().name, records.now()))
    return Note(f"{claim} ({claims()[claim]}): {word}: {reason}")


@dataclass(frozen=True, repr=False)
class Summary(Shown):
    """A notebook's predictions beside its measurements, and the claims it tested."""

    rows: tuple[tuple[str, str, str, str], ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    def _tables(self) -> list[Table]:
        parts = [Table(self.rows, _HEAD, notes=self.notes)]
        if self.verdicts:
            rows = tuple((v.claim, claims()[v.claim], v.verdict, v.because) for v in self.verdicts)
            parts.append(Table(rows, _CLAIMS_HEAD))
        return parts

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._tables()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self._tables())


_HEAD = ("what", "your guess", "measured", "measured / guess")
_CLAIMS_HEAD = ("claim", "what is claimed", "on this machine", "because")


def summary(notebook: str) -> Summary:
    """The closing table of a notebook ("00"): the last measurement and guess of each quantity on this machine."""
    log = records.results()
    entries = [e for e in log.entries() if e.section.startswith(f"{notebook}.")]
    here = machine().name
    measured = {e.key: e for e in entries if isinstance(e, Measurement) and e.machine == here}
    guesses = {f"{e.section} {e.what}": e for e in entries if isinstance(e, Prediction)}
    verdicts = {e.claim: e for e in entries if isinstance(e, Verdict) and e.machine == here}
    rows = tuple(_row(m, guesses.get(key)) for key, m in sorted(measured.items(), key=lambda item: item[1].section))
    notes = ([log.note] if log.note else []) + log.damaged()
    return Summary(rows, tuple(verdicts[claim] for claim in sorted(verdicts)), tuple(notes))


def _row(measurement: Measurement, guess: Prediction | None) -> tuple[str, str, str, str]:
    value = format_quantity(measurement.value, measurement.unit)
    if measurement.origin != "measured":
        value += f" ({measurement.origin})"
    if guess is None or guess.unit != measurement.unit:
        return measurement.key, "none", value, ""
    late = "" if guess.blind else " (made after measuring)"
    ratio = f"{significant(measurement.value / guess.value, 2)}x"
    return measurement.key, format_quantity(guess.value, guess.unit) + late, value, ratio
