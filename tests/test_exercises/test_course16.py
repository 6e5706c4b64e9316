"""The reader's calibration, the table of claims, and the page that holds both."""

import re
from html.parser import HTMLParser

import pytest

from exercises.nb16 import course
from labkit.core import results
from labkit.core.results import Measurement, Prediction, Verdict
from labkit.lesson import guesses, journal
from labkit.measure.bench import Timing
from labkit.measure.machine import machine
from teaching.report import write_page

pytestmark = pytest.mark.usefixtures("home")


def guessed(what, guess, measured, unit="x", **more):
    log = results.results()
    blind = more.pop("blind", True)
    log.append(Prediction("02.1", what, guess, unit, "2026", blind))
    log.append(
        Measurement(
            "02.1", what, measured, unit, "measured", machine().name, "2026", **more
        )
    )


def test_guesses_are_counted_by_kind_and_said_to_be_too_high_or_too_low():
    for i, (guess, measured) in enumerate([(1, 2), (1, 2.1), (1, 3), (4, 1), (1, 0.5)]):
        guessed(f"a{i}", guess, measured)
    guessed("b", 10, 10, unit="s")
    rows = {row[0]: row[1:] for row in course.calibration().table().rows}
    assert rows["ratios"] == ("5", "2 (40%)", "2.0x", "too low")
    assert rows["times"] == ("1", "1 (100%)", "1.0x", "too few to tell")
    assert rows["all"] == ("6", "3 (50%)", "1.5x", "too low")
    assert "rates" not in rows


def test_high_guesses_and_good_ones_are_told_apart():
    for i in range(5):
        guessed(f"a{i}", 10, 2)
        guessed(f"b{i}", 10, 10.5, unit="images/s")
    rows = {row[0]: row[-1] for row in course.calibration().table().rows}
    assert (rows["ratios"], rows["rates"]) == (
        "too high",
        "neither too low nor too high",
    )


def test_what_is_no_fair_guess_does_not_count():
    guessed("late", 1, 1, blind=False)
    guessed("busy", 1, 1, busy="this machine was busy")
    guessed("another unit", 1, 1)
    results.results().append(Prediction("02.1", "another unit", 1, "s", "2026"))
    guessed("none", 1, 0.0)
    assert not any(course.calibration().pairs.values())
    assert "No guess has a measurement yet" in str(course.calibration())


def judged(claim, word, section="00.4", because="needs a CUDA GPU", **evidence):
    evidence.setdefault("least", 1.02)
    results.results().append(
        Verdict(claim, word, because, section, machine().name, "2026", **evidence)
    )


def test_a_kept_verdict_is_judged_anew_by_the_intervals_it_rests_on():
    judged("C12", "does not hold", "08.7", intervals={"mine": [0.9, 1.3]})
    judged("C13", "holds", "08.3", intervals={"mine": [1.1, 1.3], "other": [0.5, 0.7]})
    judged("C27", "holds", "14.7", least=None)
    rows = {row[0][:3]: row[1] for row in course.claims().table().rows}
    assert rows["C12"] == "not shown (08.7)"
    assert rows["C13"] == "partly (08.3)"
    assert rows["C27"] == "judged by an earlier rule (14.7)"


def test_a_claim_shows_its_verdicts_here_and_elsewhere_and_what_is_missing():
    judged("C02", "not measured")
    judged("C12", "holds when", "08.7", "SimpleCNN")
    by_id = {claim.id: claim for claim in course.claims().claims}
    assert by_id["C02"].missing == "a CUDA GPU"
    assert by_id["C12"].missing == ""
    assert [v.section for v in by_id["C12"].here] == ["08.7"]
    assert {v.machine for v in by_id["C12"].elsewhere} >= {"2-core Intel Xeon (AMX)"}
    assert by_id["C21"].missing == "notebook 12, two GPUs"
    assert by_id["C07"].evidence[0]["device"] == "RTX A6000"
    text = str(course.claims())
    assert "This machine has judged 1 of 35 claims" in text
    assert "here, holds when (08.7): SimpleCNN" in text
    assert "published, yes: ResNet-50" in " ".join(text.split())
    assert max(map(len, text.splitlines())) < 200
    row = course.claims().table().rows[11]
    assert row[1] == "holds when (08.7)"


def test_the_last_verdict_of_a_section_counts_and_those_of_two_machines_both():
    judged("C12", "does not hold", "08.7")
    judged("C12", "holds", "08.7")
    claim = course.claims().claims[11]
    assert [v.verdict for v in claim.here] == ["holds"]
    assert len({v.machine for v in claim.elsewhere if v.section == "08.7"}) == 2


class Page(HTMLParser):
    """The addresses that a page would fetch, and whether its elements
    close in order.
    """

    def __init__(self, text):
        super().__init__()
        self.fetched = []
        self.open = []
        self.tables = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tables += tag == "table"
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.fetched += [
            value
            for name, value in attrs
            if name in ("src", "srcset", "data") or (tag == "link")
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_has_claims_guesses_tables_and_pictures_and_fetches_nothing(tmp_path):
    guesses.predict("00.3 all threads", 4000, "images/s")
    timing = Timing("all threads", 1.0, (0.01, 0.02, 0.04))
    journal.record(
        "00.3 all threads",
        timing,
        "images/s",
        items=64,
        size="batch <64>",
        dtype="float32",
    )
    journal.record(
        "00.5 a <b> row", Timing("x", 1.0, (0.5, 0.6)), "s", size="one", dtype="float32"
    )
    journal.record("00.5 no samples", 2.0, "x")
    judged("C02", "holds")
    write_page(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.tables == 5  # progress, guesses, claims, and the two of notebook 00
    assert len(page.fetched) == 2
    assert all(address.startswith("data:image/png;base64,") for address in page.fetched)
    assert "@import" not in text
    assert not re.search(r"url\(", text)
    assert "00 How fast is this machine at training?" in text
    assert "batch &lt;64&gt;" in text
    assert "0.80x" in text
    assert "C32" in text
    assert "<h2>01 Which GPU" not in text
