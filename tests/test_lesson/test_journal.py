import math
import re

import pytest

from labkit.core import results
from labkit.core.errors import BadArgument
from labkit.lesson import guesses, journal
from labkit.measure.bench import Ratio, Timing, speedup
from labkit.measure.contention import CELLS, Contention, Watch

pytestmark = pytest.mark.usefixtures("home")
KEY = "00.3 all threads"


def test_a_guess_made_before_is_blind_and_kept_with_the_measurement():
    assert "Your guess: 4,000 images/s for all threads." in str(
        guesses.predict(KEY, 4000, "images/s")
    )
    measured = journal.record(
        KEY,
        Timing("all threads", 1.0, (0.01, 0.02, 0.04)),
        "images/s",
        items=64,
        claims=["C02"],
    )
    assert measured.value == pytest.approx(3200)
    assert measured.samples == pytest.approx((6400, 3200, 1600))
    assert measured.predicted == 4000
    assert measured.profile == "ci"
    assert measured.versions["torch"]
    (row,) = journal.summary("00").rows
    assert row == (KEY, "4,000 images/s", "3,200 images/s", "0.80x")


def test_a_guess_made_after_measuring_is_marked_and_a_rerun_of_the_same_guess_is_not():
    guesses.predict(KEY, 4000, "images/s")
    journal.record(KEY, 3200.0, "images/s")
    guesses.predict(KEY, 4000, "images/s")
    assert "after measuring" not in str(journal.summary("00"))
    other = "00.3 one thread"
    journal.record(other, 3200.0, "images/s")
    assert "measured here before" in str(guesses.predict(other, 3201, "images/s"))
    assert "(made after measuring)" in str(journal.summary("00"))


def test_the_summary_keeps_the_last_measurement_of_its_own_notebook():
    journal.record(KEY, 1.0, "s")
    journal.record(KEY, 2.0, "s")
    journal.record("01.1 other", 3.0, "s", origin="simulated")
    assert journal.summary("00").rows == ((KEY, "none", "2.00 s", ""),)
    assert "3.00 s (simulated)" in journal.summary("01")._repr_html_()


FASTER = Ratio("GPU", "CPU", 2.0, 1.8, 2.2)
UNCLEAR = Ratio("GPU", "CPU", 1.1, 0.9, 1.3)


def published_ratios(*values):
    """Ratios as `published.ratios` gives them."""
    return {
        f"{i} tokens": results.Measurement(
            "00.4", f"{i} tokens", value, "x", "published", "somebody", ""
        )
        for i, value in enumerate(values)
    }


@pytest.mark.parametrize(
    ("evidence", "words", "text"),
    [
        (
            published_ratios(1.009, 0.955),
            {},
            "partly: 1 of 2 published ratios are at least 1: 0 tokens 1.01; 1 tokens",
        ),
        (published_ratios(0.9, 0.955), {}, "does not hold: 0 of 2 published ratios"),
        (published_ratios(1.1, 1), {"when": "here"}, "holds when: here. 2 of 2"),
        (FASTER, {}, "holds: GPU is faster"),
        (FASTER, {"when": "at batch 64"}, "holds when: at batch 64"),
        (
            UNCLEAR,
            {"when": "at batch 64"},
            "not shown: at batch 64. GPU against CPU: no difference seen",
        ),
        # an interval that ends below what the claim asks for refutes it
        (FASTER, {"least": 3}, "does not hold: GPU is faster"),
        (FASTER, {"least": 2}, "not shown: GPU is faster"),
        ([FASTER, FASTER.inverse], {}, "partly: GPU is faster"),
        ([FASTER, UNCLEAR], {}, "partly: GPU is faster"),
        ([UNCLEAR, FASTER.inverse], {}, "not shown: GPU against CPU"),
        ({"a": FASTER, "b": FASTER}, {"when": "here"}, "holds when: here. GPU is"),
        ([], {"needs": "a CUDA GPU"}, "not measured: needs a CUDA GPU"),
        ("not shown", {"because": "ten seeds"}, "not shown: ten seeds"),
        (True, {"because": "it was seen"}, "holds: it was seen"),
        (False, {"because": "it was not"}, "does not hold: it was not"),
        (True, {"because": FASTER}, f"holds: {FASTER}"),
        (True, {"because": [FASTER, "seen"]}, f"holds: {FASTER}; seen"),
        (
            True,
            {"because": {"by eye": 2, "by clock": FASTER}},
            f"holds: by eye: 2; by clock: {FASTER}",
        ),
        (
            True,
            {"because": {"share": {"one": 1 / 3, "two": 0.5}}},
            "holds: share: one: 0.333, two: 0.5",
        ),
        (None, {"needs": "a CUDA GPU"}, "not measured: needs a CUDA GPU"),
    ],
)
def test_a_verdict_follows_from_the_evidence(evidence, words, text):
    assert text in str(journal.verdict("C02", evidence, section="00.4", **words))
    assert journal.summary("00").verdicts[0].verdict in text
    assert "C02" in journal.summary("00")._repr_html_()


ZEROS = Timing("x", 1.0, (0.0, 0.0))
FINE = Timing("x", 1.0, (0.1, 0.1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: journal.record("00.2 a", 3, " "),
            "Expected unit to be text such as 'images/s', got ' '",
        ),
        (
            lambda: journal.record(None, 3, "s"),
            "Expected key to be text such as '00.3 all threads', got None",
        ),
        (
            lambda: journal.record("00.2 a", 3, "s", origin="guessed"),
            "got 'guessed'. The nearest is 'measured'",
        ),
        (
            lambda: journal.record("00.2 a", 3, "s", claims=["C99"]),
            "There is no claim 'C99'; did you mean C",
        ),
        (
            lambda: journal.record("00.2 a", -3, "images/s"),
            "Expected a number of 0 or more for '00.2 a', got -3.0 images/s.",
        ),
        (
            lambda: journal.record("00.2 a", ZEROS, "images/s", items=64),
            "Expected readings above 0 s for 'x', got (0",
        ),
        (
            lambda: journal.record("00.2 a", FINE, "images/s"),
            "'00.2 a' is in images/s: pass items=, the images that",
        ),
        (
            lambda: journal.record("00.2 a", FINE, "s", items=64),
            "'00.2 a' is in s: leave items= out",
        ),
        (
            lambda: journal.verdict("C02", 0.3, section="00.4"),
            "Expected evidence to be a Ratio or True or False or",
        ),
        (
            lambda: journal.summary(0),
            "Expected notebook to be text such as '00', got 0",
        ),
    ],
)
def test_what_would_spoil_the_results_file_is_refused(call, words):
    with pytest.raises(BadArgument, match=re.escape(words)):
        call()
    assert results.results().entries() == []


def test_the_summary_lists_guesses_that_were_not_measured():
    guesses.predict("00.4 GPU", 100_000, "images/s")
    journal.record("00.5 accuracy", 95.0, "%")
    journal.record(KEY, 1.0, "s")
    assert journal.summary("00").rows == (
        (KEY, "none", "1.00 s", ""),
        ("00.4 GPU", "100,000 images/s", "not measured here", ""),
        ("00.5 accuracy", "none", "95.0 %", ""),
    )


BUSY = "this machine was busy: 38 % of the time waiting for a core"


def taken(label, seconds, share=0.0):
    """A timing of which other programs took a share."""
    return Timing(
        label, 1.0, (seconds,) * 5, 1, Contention(share, BUSY if share else "")
    )


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that has recorded nothing yet; returns what sets what other programs
    take of its cells.
    """
    monkeypatch.setattr(journal, "_recorded_here", {})
    monkeypatch.setattr(journal, "CELLS", type(CELLS)())

    def lose(share):
        monkeypatch.setattr(
            Watch, "so_far", lambda self: Contention(share, BUSY if share else "")
        )
        journal.CELLS.begin()

    return lose


def test_a_disturbed_timing_is_marked_in_the_record_and_in_the_closing_table(kernel):
    journal.record(KEY, taken("all threads", 0.02, 0.38), "images/s", items=64)
    (kept,) = results.results().entries()
    assert (kept.waited, kept.busy) == (0.38, BUSY)
    assert BUSY in str(kept)
    assert journal.summary("00").rows == (
        (KEY, "none", "3,200 images/s (machine busy)", ""),
    )
    told = f"While one row was measured, {BUSY}. Run the row's cell again when it is"
    assert told in str(journal.summary("00"))
    journal.record(KEY, taken("all threads", 0.02), "images/s", items=64)
    assert "busy" not in str(journal.summary("00"))


def test_a_number_without_a_timing_is_marked_by_its_cells_if_it_was_timed(kernel):
    kernel(0.38)
    assert journal.record("00.3 efficiency", 61.0, "%").busy == BUSY
    assert (
        journal.record("00.3 accuracy", 97.0, "%", timed=False)
        == results.results().entries()[-1]
    )
    assert (
        results.results().entries()[-1].busy,
        results.results().entries()[-1].waited,
    ) == ("", None)
    assert journal.record("00.3 bytes", 4.0, "B", origin="calculated").busy == ""
    kernel(0.0)
    assert journal.record("00.3 efficiency", 61.0, "%").busy == ""


def test_no_verdict_from_a_speedup_that_was_measured_on_a_busy_machine():
    ratio = speedup(taken("CPU", 0.2, 0.38), taken("GPU", 0.1))
    said = str(journal.verdict("C02", ratio, section="00.4"))
    assert f"not measured: {BUSY}. Run the cells again when it is calm" in said
    assert journal.summary("00").verdicts[0].verdict == "not measured"


@pytest.mark.parametrize(
    ("section", "claims", "withheld"),
    [
        ("00.4", [], True),
        ("00.3", ["C02"], True),
        ("00.3", ["C03"], False),
        ("00.3", [], False),
    ],
)
def test_no_verdict_where_a_number_of_the_section_or_for_the_claim_is_marked(
    kernel, section, claims, withheld
):
    kernel(0.0)
    journal.record("00.4 first", taken("first", 0.02), "s")
    journal.record(f"{section} row", taken("row", 0.02, 0.38), "s", claims=claims)
    assert (
        "not measured" in str(journal.verdict("C02", True, section="00.4", because="x"))
    ) is withheld
    assert (
        "not measured"
        in str(journal.verdict("C02", False, section="00.4", because="x"))
    ) is withheld
    journal.record(f"{section} row", taken("row", 0.02), "s", claims=claims)
    assert "C02 (" in str(journal.verdict("C02", True, section="00.4", because="x"))
    assert "holds: x" in str(journal.verdict("C02", True, section="00.4", because="x"))


def test_where_nothing_was_recorded_the_cells_decide(kernel):
    kernel(0.38)
    assert "not measured" in str(
        journal.verdict("C02", True, section="00.4", because="x")
    )
    assert "needs a GPU" in str(
        journal.verdict("C02", None, section="00.4", needs="a GPU")
    )
    journal.record("00.4 bytes", 4.0, "B", timed=False)
    assert "holds: x" in str(
        journal.verdict("C02", True, section="00.4", because="x")
    ), "bytes are no matter of time"


GAIN = Ratio("fused", "plain", 2.0, 1.6, 2.5)
NOTHING = Ratio("fused", "plain", 1.03, 0.9, 1.2)


def test_a_ratio_keeps_its_interval_and_a_reread_one_too():
    kept = journal.record("00.3 fused", GAIN, "x")
    assert (kept.value, kept.low, kept.high) == (2.0, 1.6, 2.5)
    assert results.from_line(results.to_line(kept)) == kept
    assert str(kept) == "fused: 2.00 x (95 % interval 1.60 to 2.50) (measured)"
    assert not kept.shows_no_difference


@pytest.mark.parametrize(
    ("low", "high"), [(0.9, 1.2), (1.0, 1.2), (0.0, math.inf), (0.9, math.inf)]
)
def test_a_ratio_whose_interval_holds_one_shows_no_difference_everywhere(low, high):
    guesses.predict("00.3 fused", 2.0, "x")
    kept = journal.record("00.3 fused", Ratio("fused", "plain", 1.03, low, high), "x")
    assert kept.shows_no_difference
    assert "no difference seen" in str(kept)
    ((_, _, shown, _),) = journal.summary("00").rows
    assert shown.startswith("no difference seen (1.03 x, 95 % interval ")
    assert guesses.in_words((kept,)).startswith("You said 2.00 x: no difference seen (")
