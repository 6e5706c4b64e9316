"""What lets a notebook count as done or be skipped, and what comes next."""

import pytest

from labkit.lesson import exercise_files, notebook_files, outcomes, outline
from tests.helpers import notebook_paths, stub_cells

pytestmark = pytest.mark.usefixtures("home")


def passed(*numbers, state="passed"):
    for number in numbers:
        outcomes.note(number, state)


@pytest.mark.slow
def test_two_exercises_of_each_notebook_show_that_it_can_be_skipped():
    """`scripts/notebooks.py check` holds that the first cell and data/course.csv say
    the same.
    """
    for path in notebook_paths():
        row = outline.outlines()[path.name[:2]]
        stubs = {notebook_files.stub_number(source) for source in stub_cells(path)}
        assert len(set(row.skip)) == 2
        assert set(row.skip) <= stubs <= set(exercise_files.numbers())


def test_a_notebook_is_done_by_all_exercises_or_by_its_two_without_help():
    four = outline.outlines()["04"]
    passed(*four.exercises, state="hint")
    passed(*four.exercises[:-1])
    assert not four.done(outcomes.outcomes()), "one is open, and a hint spoils a skip"
    passed(four.exercises[-1])
    assert four.done(outcomes.outcomes())
    three = outline.outlines()["03"]
    passed(*three.skip)
    assert three.done(outcomes.outcomes())


def test_the_next_step_is_an_open_exercise_and_then_the_next_notebook_of_each_track():
    exercises = outline.outlines()["02"].exercises
    many = len(exercises)
    counts, following = outline.closing("02").splitlines()
    assert counts == f"Exercises passed: 0 of {many}, 0 of them without help."
    assert following == "Next: exercise 02.1, in section 1 of notebook 02."
    outcomes.note("02.5", "hint", step=1)
    passed(*exercises)
    counts, following = outline.closing("02").splitlines()
    assert counts == (
        f"Exercises passed: {many} of {many}, {many - 1} of them without help."
    )
    for words in (
        "07 Where does",
        "track One GPU",
        "03 What does",
        "track Kernels",
        "08 Is the GPU waiting",
        "; or ",
    ):
        assert words in following
    passed(*outline.outlines()["03"].skip)
    assert "04 Why is" in outline.closing("02").splitlines()[1]
