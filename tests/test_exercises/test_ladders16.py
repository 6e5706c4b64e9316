"""Notebook 16's ladder: what is kept, what a gain is made of, and what a reader's test
says.
"""

from types import SimpleNamespace

import pytest

from exercises.nb16 import ladders

TARGET = 0.8


def race_of(gain, low):
    """A race that a technique wins by `gain`, with an interval from `low`."""
    timings = [
        SimpleNamespace(samples_s=(gain,) * 5),
        SimpleNamespace(samples_s=(1.0,) * 5),
    ]
    return SimpleNamespace(
        ratios=[SimpleNamespace(value=gain, low=low)], timings=timings
    )


RACES = {
    "fast": race_of(2.0, 1.9),
    "unclear": race_of(1.1, 0.98),
    "late": race_of(4.0, 3.5),
    "few images": race_of(2.0, 1.5),
}
IMAGES = {"fast": 100, "unclear": 100, "late": 100, "few images": 50}


@pytest.fixture
def ladder():
    climbed = ladders.Ladder()
    reached = {name: [(0.85, n)] * 5 for name, n in IMAGES.items()}
    reached["late"][3] = (0.7, 100)  # a seed that missed the accuracy
    reached["article's script"] = [(0.85, 100)] * 5
    techniques = {name: {name: True} for name in RACES}
    tried = []

    def race(rows):
        tried.append(list(rows))
        return RACES[list(rows)[1]]

    climbed.climb(techniques, race, reached, TARGET)
    assert tried[1:3] == [["fast", "unclear"], ["fast", "late"]]
    return climbed


def test_a_rung_stays_that_is_shown_to_be_faster_and_reaches_the_accuracy(ladder):
    assert list(ladder.rungs) == ["article's script", "fast", "few images"]
    assert ladder.top == ("few images", {"fast": True, "few images": True})
    assert ladder.accuracy("late") == 0.7


def test_a_gain_is_taken_apart_into_the_machines_and_the_learnings(ladder):
    rows = {
        name: (machine, images) for name, machine, images in ladders.apart(ladder).rows
    }
    assert rows["fast, here"] == ("2.00x", "1.00x")
    assert rows["few images, here"] == ("1.00x", "2.00x")
    assert rows["whitening, published"] == (
        "1.02x",
        "1.62x",
    )  # 14.2/8.6 s, 34/21 epochs


def test_the_readers_test_never_sees_a_technique_arrive_that_missed(ladder):
    def is_faster(below_s, rung_s):
        return all(rung < below for below, rung in zip(below_s, rung_s, strict=True))

    table = ladders.by_test(ladder, TARGET, is_faster)
    assert table.rows == (
        ("fast", "True", "True"),
        ("unclear", "False", "True"),
        ("late", "False", "False"),
        ("few images", "True", "True"),
    )


def test_a_climb_that_is_stopped_keeps_what_was_raced(capsys):
    climbed = ladders.Ladder()
    reached = {"fast": [(0.85, 1)] * 5, "article's script": [(0.85, 1)] * 5}

    def race(rows):
        if "fast" not in list(rows)[1]:
            raise KeyboardInterrupt
        return RACES["fast"]

    techniques = {"fast": {}, "next": {}, "last": {}}
    climbed.climb(techniques, race, reached, TARGET)
    assert list(climbed.rungs) == ["article's script", "fast"]
    assert capsys.readouterr().out == "Stopped. Not tried: next, last.\n"


def test_the_shares_of_two_techniques_alone_as_the_last_and_averaged():
    none, a, b = frozenset(), frozenset("a"), frozenset("b")
    seconds = {none: 8.0, a: 4.0, b: 2.0, a | b: 2.0}
    table = ladders.shares("ab", seconds, {"a": 1.41, "b": 2.83})
    assert table.rows == (
        ("a", "2.00x", "1.00x", "1.41x"),
        ("b", "4.00x", "2.00x", "2.83x"),
    )


def test_a_ladder_that_misses_the_accuracy_is_no_evidence():
    gain = SimpleNamespace(value=2.0)
    assert ladders.evidence(gain, 0.85, TARGET)["evidence"] is gain
    assert ladders.evidence(gain, 0.75, TARGET)["evidence"] is False
