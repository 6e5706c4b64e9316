"""Bests at puzzles: kept, never replaced, compared by the first count that differs."""

import subprocess
import sys

import pytest

from labkit.core import results
from labkit.core.errors import BadMeasurement
from labkit.core.results import Best, from_line, to_line
from labkit.lesson import bests, outcomes, outline

pytestmark = pytest.mark.usefixtures("home")

PAR = {"sectors": 64.0, "steps": 12.0}


def keep(sectors, steps=12, name="23.10", size="64 numbers"):
    return bests.keep(name, {"sectors": sectors, "steps": steps}, PAR, size=size)


def way(name="23.10"):
    return [best.counts["sectors"] for best in bests.history(name)]


def test_a_better_answer_is_kept_and_what_came_before_stays():
    assert bests.best("23.10") is None
    assert [keep(n).is_new for n in (96, 128, 96, 64)] == [True, False, False, True]
    assert way() == [96, 64]
    assert keep(80).sentence == "Above par. Your bests in sectors: 96 → 64."
    assert str(keep(80).table()).splitlines()[1].split() == [
        "sectors",
        "80",
        "64",
        "64",
    ]


def test_bests_survive_reopening():
    keep(96)
    keep(64)
    results._results_at.cache_clear()
    assert way() == [96, 64]
    assert bests.best("23.10").par == PAR


def test_the_next_count_decides_where_the_first_is_the_same():
    assert keep(64, 20).standing == "above par"
    assert keep(64, 12).standing == "par"
    assert keep(64, 11).standing == "below par"
    assert keep(63, 90).standing == "below par"
    assert "A new par: send us" in keep(63, 90).sentence
    assert [best.counts["steps"] for best in bests.history("23.10")] == [20, 12, 11, 90]


def test_another_size_another_puzzle_and_other_counts_begin_anew():
    keep(64)
    assert keep(96, size="128 numbers").is_new
    assert keep(96, name="23.1").is_new
    assert way("23.1") == [96]
    assert bests.keep("23.10", {"bytes": 9}, {"bytes": 9}).is_new
    assert bests.keep("14.3 four stages", {"makespan": 27.5}, {"makespan": 24}).is_new
    assert bests.best("14.3 four stages").key == "14.3 four stages"


@pytest.mark.parametrize(
    ("counts", "par", "words"),
    [
        ({"sectors": 1}, {"steps": 1}, "Expected par of sectors, in this order"),
        ({"sectors": -1}, {"sectors": 1}, "at least 0"),
        ({"sectors": 1}, {"sectors": 0}, "above 0"),
        ({}, {}, "at least 1 item"),
    ],
)
def test_counts_that_mean_nothing_are_refused(counts, par, words):
    with pytest.raises(BadMeasurement, match=words):
        bests.keep("23.1", counts, par)
    with pytest.raises(BadMeasurement, match="a puzzle's name"):
        bests.keep("transpose", {"sectors": 1}, {"sectors": 1})


@pytest.mark.slow
def test_two_kernels_keep_bests_at_once():
    code = (
        "import sys\nfrom labkit.lesson import bests\n"
        "for cost in range(int(sys.argv[1]), 0, -2):\n"
        "    bests.keep('23.10', {'sectors': cost}, {'sectors': 1})\n"
    )
    kernels = [
        subprocess.Popen([sys.executable, "-c", code, str(first)]) for first in (41, 40)
    ]
    assert [kernel.wait() for kernel in kernels] == [0, 0]
    costs = way()
    assert costs == sorted(set(costs), reverse=True)
    assert (costs[0] >= 40, costs[-1]) == (True, 1)
    assert results.results().damaged() == []


def test_a_line_comes_back_as_it_was_and_an_older_labkit_passes_it_over(monkeypatch):
    best = keep(96).best
    assert from_line(to_line(best)) == best
    older = {name: kind for name, kind in results._KINDS.items() if kind is not Best}
    monkeypatch.setattr(results, "_KINDS", older)
    with pytest.raises(BadMeasurement, match="Written by a newer labkit"):
        from_line(to_line(best))


def test_the_board_has_a_row_for_each_puzzle_and_the_way_to_its_best():
    picture = bests.board({"23.1": "map", "23.10": "transpose"})
    assert str(picture) == "0 of 2 are solved, 0 of them at par."
    for cost in (256, 128, 64):
        keep(cost)
    keep(128, name="23.1")
    picture = bests.board({"23.1": "map", "23.10": "transpose", "23.2": "zip"})
    assert "2 of 3 are solved, 1 of them at par." in str(picture)
    labels = [label.get_text() for label in picture.ax.get_yticklabels()]
    assert labels == ["23.1 map", "23.10 transpose", "23.2 zip"]
    lines = [list(line.get_xdata()) for line in picture.ax.get_lines()]
    assert [4.0, 2.0, 1.0] in lines
    notes = [text.get_text() for text in picture.ax.texts]
    assert notes[1].startswith("par, ")
    assert notes[2] == "open"
    keep(64, 24, name="23.2")
    notes = [t.get_text() for t in bests.board({"23.2": "zip"}).ax.texts]
    assert notes[0].startswith("above par in steps, ")
    lower = {"23.10": {"sectors": 32, "steps": 12}}
    picture = bests.board({"23.10": "transpose"}, lower)
    assert str(picture) == "1 of 1 are solved, 0 of them at par."
    assert picture.ax.texts[0].get_text().startswith("above par, ")


def test_exercises_of_two_digits_are_counted_in_their_section():
    outcomes.note("23.10", "passed")
    outcomes.note("23.1", "hint", step=1)
    standings = outcomes.outcomes()
    assert (standings["23.10"].state, standings["23.1"].state) == ("passed", "open")
    assert "in section 1 of notebook 23" in outline.closing("23")
