"""The claims under test, and the rule by which measured speed-ups judge them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence

from labkit.core.arguments import nearest
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import brief_repr
from labkit.core.errors import BadMeasurement, DataError
from labkit.core.paths import DATA
from labkit.core.results import Verdict, VerdictWord
from labkit.measure import published

# A speed-up of 2 % or less isn't worth a change, and claims of none.
WORTH_IT = 1.02
_COMMIT = re.compile(r" \(commit \w+\)")  # of a source: its link holds it too
# (low, high) of a speed-up; None where it has no bound
Interval = Sequence[float | None]


@functools.cache
def claims() -> dict[str, str]:
    """The claims under test: id -> what is claimed (data/claims.csv)."""
    return dict(read_table(DATA / "claims.csv", _claim, DataError))


def _claim(row: TableRow) -> tuple[str, str]:
    if re.fullmatch(r"C\d\d", row["id"]) is None:
        raise ValueError(f"expected an id such as C02, got {brief_repr(row['id'])}")
    return row["id"], row["claim"].replace("`", "")


def check_claims(ids: Sequence[str]) -> None:
    """Raise BadMeasurement unless these are ids of claims under test."""
    for claim in ids:
        if claim not in claims():
            near = ", ".join(nearest(str(claim), list(claims())))
            raise BadMeasurement(
                f"There is no claim {brief_repr(claim)}; did you mean {near}?"
            )


def word_of(intervals: Mapping[str, Interval], least: float) -> VerdictWord:
    """What speed-ups, by their intervals, say of a claim of `least` or more.

    One "holds" if its whole interval lies above `least`, "does not hold" if none of it
    does, and is "not shown" if `least` lies within. Several hold if each does, and
    don't if none does. Where some hold, the claim holds "partly"; else it is not shown.
    """
    words = {_word_of(interval, least) for interval in intervals.values()}
    if len(words) == 1:
        return words.pop()
    return "partly" if "holds" in words else "not shown"


def _word_of(interval: Interval, least: float) -> VerdictWord:
    low, high = interval
    if low is not None and low > least:
        return "holds"
    if high is not None and high <= least:
        return "does not hold"
    return "not shown"


def judged_anew(verdict: Verdict) -> str:
    """A kept verdict by today's rule, in a word or two.

    Of before intervals were kept, there is nothing to judge: such a verdict says so.
    """
    if verdict.verdict == "not measured":
        return verdict.verdict
    if verdict.least is None:
        return "judged by an earlier rule"
    if not verdict.intervals:
        return verdict.verdict
    word = word_of(verdict.intervals, verdict.least)
    if word == "holds" and verdict.verdict == "holds when":
        return "holds when"
    return word


def interval_of(low: float, high: float) -> Interval:
    """The bounds as a line of JSON can have them: None for one that isn't finite."""
    return [bound if math.isfinite(bound) else None for bound in (low, high)]


def published_evidence(claim: str) -> list[str]:
    """What others published about a claim: a sentence for each source."""
    sentences = []
    for row in published.table("claims_evidence"):
        if row["claim"] == claim:
            source = _COMMIT.sub("", row["source"])
            where = f"{row['device']}; {source}; {row['link']}"
            sentences.append(f"Published evidence: {row['finding']} ({where}).")
    return sentences
