import pytest

from labkit import journal, records
from labkit.bench import Ratio, Timing
from labkit.errors import BadMeasurement

pytestmark = pytest.mark.usefixtures("home")
KEY = "00.3 all threads"


def test_dots_are_todo_and_leave_no_trace():
    assert "todo" in str(journal.predict(KEY, ..., "images/s"))
    assert records.results().entries() == []


@pytest.mark.parametrize("nonsense", ["fast", None, True, 0, -3, float("inf"), float("nan")])
def test_a_guess_that_is_no_positive_number_is_told_so(nonsense):
    assert "Nothing was noted" in str(journal.predict(KEY, nonsense, "images/s"))
    assert journal.predicted(KEY) is None


def test_a_guess_made_before_is_blind_and_kept_with_the_measurement():
    assert "Noted: 4,000 images/s for all threads." in str(journal.predict(KEY, 4000, "images/s"))
    measured = journal.record(KEY, Timing("all threads", 1.0, (0.01, 0.02, 0.04)), "images/s", items=64, claims=["C02"])
    assert measured.value == pytest.approx(3200)
    assert measured.samples == pytest.approx((6400, 3200, 1600))
    assert measured.predicted == 4000
    assert measured.profile == "ci"
    assert measured.versions["torch"]
    (row,) = journal.summary("00").rows
    assert row == (KEY, "4,000 images/s", "3,200 images/s", "0.80x")


def test_a_guess_made_after_measuring_is_marked_and_a_rerun_of_the_same_guess_is_not():
    journal.predict(KEY, 4000, "images/s")
    journal.record(KEY, 3200.0, "images/s")
    journal.predict(KEY, 4000, "images/s")
    assert "after measuring" not in str(journal.summary("00"))
    assert "measured here before" in str(journal.predict(KEY, 3201, "images/s"))
    assert "(made after measuring)" in str(journal.summary("00"))


def test_the_summary_keeps_the_last_measurement_of_its_own_notebook():
    journal.record(KEY, 1.0, "s")
    journal.record(KEY, 2.0, "s")
    journal.record("01.1 other", 3.0, "s", origin="simulated")
    assert journal.summary("00").rows == ((KEY, "none", "2.00 s", ""),)
    assert "3.00 s (simulated)" in journal.summary("01")._repr_html_()


def test_the_summary_says_when_nothing_could_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "file"))
    journal.record(KEY, 1.0, "s")
    assert journal.summary("00").rows
    assert "stay in memory" in str(journal.summary("00"))


FASTER = Ratio("GPU", "CPU", 2.0, 1.8, 2.2)
UNCLEAR = Ratio("GPU", "CPU", 1.1, 0.9, 1.3)


@pytest.mark.parametrize(
    ("evidence", "words", "text"),
    [
        (FASTER, {}, "holds: GPU is faster"),
        (FASTER, {"when": "at batch 64"}, "holds when: at batch 64"),
        (UNCLEAR, {"when": "at batch 64"}, "does not hold: at batch 64. GPU against CPU: no difference seen"),
        (True, {"because": "it was seen"}, "holds: it was seen"),
        (False, {"because": "it was not"}, "does not hold: it was not"),
        (None, {"needs": "a CUDA GPU"}, "not measured: needs a CUDA GPU"),
    ],
)
def test_a_verdict_follows_from_the_evidence(evidence, words, text):
    assert text in str(journal.verdict("C02", evidence, section="00.4", **words))
    assert journal.summary("00").verdicts[0].verdict in text
    assert "C02" in journal.summary("00")._repr_html_()


def test_an_unknown_claim_names_the_nearest():
    with pytest.raises(BadMeasurement, match="did you mean C"):
        journal.verdict("C0", True, section="00.4", because="x")


def test_the_claims_are_all_there():
    assert sorted(journal.claims()) == [f"C{n:02d}" for n in range(1, 33)]
