"""What comes back, and when, by a clock that stands still until a test moves it."""

import itertools
from datetime import UTC, date, datetime, timedelta

import pytest

from labkit.core import results
from labkit.core.results import Measurement, Prediction
from labkit.lesson import outcomes
from labkit.lesson.review import due_dates, due_today, review
from labkit.measure.machine import machine

pytestmark = pytest.mark.usefixtures("home")
START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Set the day; on it a minute passes between any two looks."""

    def at(days):
        minutes = itertools.count()
        monkeypatch.setattr(
            results,
            "now",
            lambda: (START + timedelta(days=days, minutes=next(minutes))).isoformat(timespec="seconds"),
        )

    at(0)
    return at


def day(days):
    return (START + timedelta(days=days)).date()


def missed(number="03.2"):
    outcomes.note(number, "not yet", answer="first")
    outcomes.note(number, "solution")
    outcomes.note(number, "passed", answer="second")


def guessed(what="all threads", guess=100.0, value=1000.0):
    log = results.results()
    log.append(Prediction("00.3", what, guess, "images/s", results.now()))
    log.append(Measurement("00.3", what, value, "images/s", "measured", machine().name, results.now()))


def test_what_was_passed_without_help_does_not_come_back_and_the_rest_does():
    outcomes.note("03.1", "not yet", answer="wrong")
    outcomes.note("03.1", "passed", answer="right")
    assert due_dates() == {}
    assert str(review()) == "Nothing is due today."
    outcomes.note("03.2", "hint", step=1)
    outcomes.note("03.2", "passed", answer="right")
    outcomes.note("03.5", "not yet", answer="wrong")
    outcomes.note("03.6", "solution")
    outcomes.note("99.1", "solution")  # no such exercise, any more
    assert set(due_dates()) == {"03.2", "03.5", "03.6"}


def test_the_first_day_follows_from_how_badly_it_was_missed():
    missed("03.2")
    outcomes.note("03.5", "hint", step=1)
    outcomes.note("03.5", "passed", answer="right")
    assert due_dates() == {"03.2": day(1), "03.5": day(1)}
    assert due_today() == []
    assert str(review()) == "Nothing is due today. The next day is 2026-11-03."


def test_intervals_grow_while_it_goes_well_and_shrink_when_it_does_not(clock):
    """The days are FSRS 6's with its default parameters; a change of them is news."""
    missed()
    days, intervals = 0, []
    for i in range(5):
        due = due_dates()["03.2"]
        intervals.append((due - day(days)).days)
        days = (due - START.date()).days
        clock(days)
        assert due_today() == ["03.2"]
        assert "Exercise 03.2" in str(review())
        outcomes.note("03.2", "passed", answer=f"again {i}")
    assert intervals[0] == 1
    assert intervals == sorted(intervals)
    assert intervals[-1] > 10 * intervals[0]
    clock(days := (due_dates()["03.2"] - START.date()).days)
    review()
    outcomes.note("03.2", "solution")
    assert (due_dates()["03.2"] - day(days)).days < intervals[-1]


def test_the_same_answer_counts_once_a_review_has_asked_for_it(clock):
    missed()
    clock(3)
    before = due_dates()["03.2"]
    outcomes.note("03.2", "passed", answer="second")  # the notebook was run again
    assert due_dates()["03.2"] == before
    review()
    review()
    assert [step.state for step in outcomes.outcomes()["03.2"].steps].count("asked") == 1
    assert due_dates()["03.2"] == before  # asked, and not answered
    outcomes.note("03.2", "passed", answer="second")
    assert due_dates()["03.2"] > day(3)


def test_a_review_shows_the_question_and_where_it_stands(clock):
    missed("04.2")
    clock(2)
    shown = review()._repr_markdown_()
    assert shown.startswith("Due today: 1. Here are 1.")
    assert "**Exercise 04.2.** Add a bias" in shown
    assert "(04_why_is_my_kernel_waiting.ipynb#2-" in shown
    assert "?" not in shown.split("ipynb#")[1].split(")")[0]


def test_at_most_three_of_each_are_shown_and_the_others_wait(clock):
    for number in ("03.1", "03.2", "03.5", "03.6", "03.7"):
        missed(number)
    for i in range(5):
        guessed(f"row {i}", guess=1.0 + i)
    clock(5)
    shown = str(review())
    assert "Due today: 10. Here are 6." in shown
    assert shown.count("**Exercise") == 3
    assert shown.count("**Guess again") == 3
    assert "row 0" in shown  # the worst
    assert "row 4" not in shown


def test_a_guess_that_was_far_off_is_made_again_and_its_number_told_afterwards(clock):
    guessed()
    guessed("fair", guess=600.0)
    clock(1)
    assert due_today() == ["00.3 all threads"]
    shown = str(review())
    assert "lab.review('00.3 all threads', ...)" in shown
    assert "1,000" not in shown
    told = str(review("00.3 all threads", 700))
    assert told == (
        "You say 700 images/s, after 100 images/s; it was 1,000 images/s: a factor of 1.4 more. "
        f"It comes back on {due_dates()['00.3 all threads']}."
    )
    assert due_dates()["00.3 all threads"] > day(1)
    assert due_today() == []


def test_a_second_bad_guess_comes_back_sooner_than_a_good_one(clock):
    guessed("a")
    guessed("b")
    for days in (1, 5, 20):
        clock(days)
        review("00.3 a", 100_000)
        review("00.3 b", 1000)
    assert due_dates()["00.3 a"] < due_dates()["00.3 b"]


@pytest.mark.parametrize("value", [..., None, 0, -1, "many", float("nan"), float("inf")])
def test_what_is_no_guess_is_told_so_and_not_kept(value):
    guessed()
    before = due_dates()
    assert "Expected a number above 0 in images/s" in str(review("00.3 all threads", value))
    assert due_dates() == before


def test_a_guess_that_is_not_due_at_all_is_told_so():
    assert "that lab.review() lists, got '00.3 none'" in str(review("00.3 none", 3))


def test_times_that_somebody_edited_are_passed_over(home):
    missed()
    path = home / "results.jsonl"
    good = due_dates()["03.2"]
    line = '{"kind": "attempt", "section": "03.2", "what": "03.2", "state": "%s", "when": "%s"}\n'
    with path.open("a", encoding="utf-8") as file:
        file.write(line % ("asked", "soon") + line % ("not yet", "some day"))
        file.write(line % ("asked", "2026-11-02") + line % ("not yet", "2026-11-02T10:00:00"))  # without a zone
    assert due_dates()["03.2"] == good
    assert isinstance(due_dates()["03.2"], date)
