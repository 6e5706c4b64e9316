"""A solved notebook ends with its exercises open again: they say todo, and what uses
them does not raise.
"""

import nbformat
import pytest

from exercises.open_cells import open_cells
from labkit.core.paths import NOTEBOOKS
from labkit.lesson.checks import Outcome

STUB = "# 99.1 about 1 line\nanswer = ..."
CHECK = 'mine = lab.check("99.1", answer)\nmine'


class Lab:
    """`lab` for cells that are run here: its check says todo for dots."""

    def check(self, number, answer):
        return Outcome(number, "todo" if answer is ... else "passed", "")


def notebook(*sources):
    return {"cells": [dict(nbformat.v4.new_code_cell(source)) for source in sources]}


def appended(*sources):
    return [cell["source"] for cell in open_cells(notebook(*sources))]


def run(*sources):
    """Runs the appended cells after what a solved notebook leaves."""
    names = {"lab": Lab(), "answer": 42, "mine": Outcome("99.1", "passed", "")}
    for source in appended(*sources):
        exec(source, names)


def test_an_open_exercise_and_its_check_come_again_and_other_cells_do_not():
    stub, check = appended("x = 1", STUB, CHECK, "y = x")
    assert stub == STUB
    assert check.startswith(CHECK)


def test_a_cell_that_raises_while_its_exercise_is_open_fails():
    run(STUB, CHECK, "answer if mine.state == 'passed' else 'todo'")
    with pytest.raises(TypeError, match="ellipsis"):
        run(STUB, CHECK, "answer + 1")


@pytest.mark.parametrize(
    "use",
    ["def use():\n    return answer + 1\n\n\nuse()", "[answer + i for i in range(2)]"],
)
def test_a_use_inside_a_function_or_a_comprehension_is_found(use):
    with pytest.raises(TypeError, match="ellipsis"):
        run(STUB, CHECK, use)


def test_an_open_exercise_that_says_anything_but_todo_fails():
    with pytest.raises(AssertionError, match=r"99\.1 passed"):
        run("# 99.1 about 1 line\nanswer, other = 42, ...", CHECK)


def test_code_to_be_mended_may_say_not_yet():
    assert appended(STUB, CHECK)[1].endswith(".state in ['todo'], said")
    assert appended("# 99.1 mend it\nanswer = 41", CHECK)[1].endswith(
        ".state in ['todo', 'not yet'], said"
    )


def test_a_name_that_another_cell_gives_a_value_is_no_longer_the_exercise_s():
    assert len(appended(STUB, CHECK, "answer = 1", "answer + 1")) == 2


def test_a_cell_is_left_out_if_another_of_its_names_changes_further_down():
    assert len(appended("x = 1", STUB, CHECK, "[answer, x]", "x = 2")) == 2
    assert len(appended("x = 1", STUB, CHECK, "x = 3\n[answer, x]", "x = 2")) == 3


def test_what_is_appended_has_no_tags_and_no_outputs():
    source = notebook(STUB, CHECK)
    source["cells"][0] |= {
        "metadata": {"tags": ["nbval-check-output"]},
        "outputs": ["stored"],
    }
    cells = open_cells(source)
    assert [(cell["metadata"], cell["outputs"]) for cell in cells] == [
        ({}, []),
        ({}, []),
    ]
    assert len({cell["id"] for cell in cells}) == 2
    assert source["cells"][0]["outputs"] == ["stored"]


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name[:2]
)
def test_every_notebook_has_a_check_that_must_say_todo_for_each_exercise(path):
    cells = nbformat.read(path, 4)["cells"]
    stubs = [
        cell
        for cell in cells
        if cell["cell_type"] == "code"
        and cell["source"].startswith(f"# {path.name[:2]}.")
    ]
    found = [cell["source"] for cell in open_cells({"cells": cells})]
    assert (
        sum(", said" in source.splitlines()[-1] for source in found) == len(stubs) > 0
    )
