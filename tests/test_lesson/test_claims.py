"""Every claim has evidence from somewhere, and what is said of prices and of the newest
isn't old.
"""

import datetime
import json
import re

import pytest

from labkit.core import results
from labkit.core.data_table import read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA, RECORDED, ROOT
from labkit.core.results import Verdict
from labkit.lesson.claims import claims, published_evidence, word_of
from tests.helpers import cells, notebook_paths

MOST_MONTHS = 18
_TIMELY = re.compile(
    r"\b(newest|latest|most recent|cheapest|prices?|costs?|rents?|rented|paid)\b"
    r"|US\$|\$\d|€",
    re.I,
)
_MONTHS = [datetime.date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_DATE = re.compile(rf"\b(?:({'|'.join(_MONTHS)}) )?(20[0-3]\d)\b")


def recorded_claims():
    return {
        entry.claim
        for path in RECORDED.glob("*.jsonl")
        for entry in results.read(path)[0]
        if isinstance(entry, Verdict) and entry.verdict != "not measured"
    }


def test_each_claim_has_a_verdict_from_a_run_or_from_others_or_says_what_it_needs():
    recorded = recorded_claims()
    needs = dict(
        read_table(
            DATA / "claims.csv", lambda row: (row["id"], row["needs"]), DataError
        )
    )
    without = [
        claim
        for claim in claims()
        if claim not in recorded and not published_evidence(claim) and not needs[claim]
    ]
    assert without == []


@pytest.mark.parametrize(
    ("intervals", "word"),
    [
        ({"a": (1.1, 1.2)}, "holds"),
        ({"a": (1.01, 1.2)}, "not shown"),
        ({"a": (0.99, 1.01)}, "does not hold"),
        ({"a": (1.1, None)}, "holds"),
        ({"a": (None, None)}, "not shown"),
        ({"a": (1.1, 1.2), "b": (0.9, 1.0)}, "partly"),
        ({"a": (1.1, 1.2), "b": (0.9, 1.2)}, "partly"),
        ({"a": (0.8, 0.9), "b": (0.9, 1.2)}, "not shown"),
        ({"a": (0.8, 0.9), "b": (0.9, 1.0)}, "does not hold"),
    ],
)
def test_the_rule_of_a_claim_that_asks_for_more_than_two_percent(intervals, word):
    assert word_of(intervals, 1.02) == word


def texts():
    """Place and text of the notebooks' and the documentation's prose."""
    for path in notebook_paths():
        for number, (kind, text, _, _) in enumerate(cells(path)):
            if kind == "markdown":
                yield f"{path.name[:2]}[{number}]", text
    for pattern in ("docs/**/*.md", "packages/*/README.md", "packages/*/docs/*.md"):
        for path in ROOT.glob(pattern):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")


def old_sentences(text, today):
    """Sentences on prices, costs or what is newest, with a date over MOST_MONTHS old."""
    for sentence in re.split(r"(?<=[.!?])\s+|\n\n|\n(?=[|\-*])", text):
        # an address may have a date, and so may a citation such as (Daly 2006)
        plain = re.sub(r"\]\([^)]*\)|`[^`]*`|https?://\S+", "", sentence)
        plain = re.sub(r"\([A-Z]\w+\s+\d{4}[^)]*\)", "", plain)
        if not _TIMELY.search(plain):
            continue
        for month, year in _DATE.findall(plain):
            month_number = _MONTHS.index(month) + 1 if month else 12
            age = 12 * (today.year - int(year)) + today.month - month_number
            if age > MOST_MONTHS:
                yield plain.strip()


def newest_record():
    """The day of the newest recorded run: the day on which this was true."""
    days = [
        json.loads(line)["when"][:10]
        for path in RECORDED.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return datetime.date.fromisoformat(max(days))


def test_nothing_old_is_said_of_prices_and_of_the_newest():
    today = newest_record()
    old = {place: [*old_sentences(text, today)] for place, text in texts()}
    assert {place: found for place, found in old.items() if found} == {}


def test_an_old_price_is_found():
    today = datetime.date(2026, 11, 1)
    old = "In July 2024, 672 US$ paid for a day of eight."
    recent = "In September 2026, an hour cost 6 US$."
    other = "The model was published in 2017."
    assert [*old_sentences(f"{old} {recent} {other}", today)] == [old]
    assert [*old_sentences("The newest is Hopper, of 2022.", today)] != []
    assert [*old_sentences("In 2023 an hour cost $4.", today)] != []
