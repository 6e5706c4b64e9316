"""Every public function is called with bad values: none may hang, give a wrong number, or hide what it was given."""

from collections import Counter

import pytest

from labkit.core.paths import INSTRUMENTS
from tests import bad_inputs
from tests.good_inputs import EXAMPLES, INSTANCES, NOT_WALKED, RESULTS

pytestmark = pytest.mark.slow

TARGETS = list(bad_inputs.targets())
# of a room's cases: values that are taken and hidden, and messages that don't say what was expected
MOST_SILENT, MOST_OBSCURE = 0.01, 0.03
ROOMS = ("core", "measure", "train", "lesson", "exercises", "teaching", *INSTRUMENTS)


def judge(cases):
    """Hold a room's cases to the limits, and print their shares."""
    worst = "\n".join(str(case) for case in cases if case.verdict != "fine")
    count = Counter(case.verdict for case in cases)
    shares = {verdict: f"{count[verdict] / max(len(cases), 1):.2%}" for verdict in ("silent", "obscure")}
    print(f"{len(cases):,} cases: wrong {count['wrong']}, hangs {count['hangs']}, {shares}")
    assert not count["unknown"], f"Give tests/good_inputs.py good values for these:\n{worst}"
    assert not count["wrong"], worst
    assert not count["hangs"], worst
    assert count["silent"] < MOST_SILENT * len(cases), worst
    assert count["obscure"] < MOST_OBSCURE * len(cases), worst


# they measure, train and run: of these `make test` walks a part
COSTLY = {"measure", "train", "lesson", "exercises", "steptime"}


@pytest.mark.parametrize("room", ROOMS)
def test_the_worst_values_are_refused_in_words(room, home):
    targets = [target for target in TARGETS if target.room == room]
    judge(list(bad_inputs.walk(targets[:: 4 if room in COSTLY else 1], bad_inputs.QUICK)))


@pytest.mark.complete
@pytest.mark.parametrize("room", ROOMS)
def test_every_bad_value_is_refused_in_words(room, home):
    judge(list(bad_inputs.walk([t for t in TARGETS if t.room == room])))


@pytest.mark.complete
def test_the_worst_values_are_refused_by_figures(home):
    judge(list(bad_inputs.walk([t for t in TARGETS if t.room == "plot"], bad_inputs.QUICK)))


def test_the_tables_name_what_there_is():
    names = {target.name for target in TARGETS}
    functions = {key.rpartition(".")[0] for key in EXAMPLES if not key.startswith("collections.")}
    assert functions - {""} <= names | RESULTS
    assert set(INSTANCES) <= {target.owner.__name__ for target in TARGETS if target.owner}
    assert not names & (set(NOT_WALKED) | RESULTS)


def planted(value: float = 1.0, n: int = 1) -> float:
    """A function without a door."""
    return n * 1000 if value + 1 else 0


def test_a_planted_function_without_a_door_is_found():
    cases = list(bad_inputs.walk([bad_inputs.Target("planted", planted)], bad_inputs.QUICK))
    assert {case.verdict for case in cases if case.value == "nan"} == {"silent"}
    assert {case.verdict for case in cases if case.value == "None"} == {"obscure"}
    assert any(case.verdict == "wrong" for case in cases), "an integer of 32 bits overflows"


def never_ends(n: int = 1) -> float:
    """A function that doesn't end."""
    while n < 0:
        pass
    return n


def test_a_planted_function_that_hangs_is_found(monkeypatch):
    monkeypatch.setattr(bad_inputs, "SECONDS", 0.2)
    cases = list(bad_inputs.walk([bad_inputs.Target("never_ends", never_ends)], ("-1",)))
    assert [case.verdict for case in cases if case.value == "-1"] == ["hangs"]
