"""Notebook 21 where JAX isn't installed: every cell runs, and says what is missing."""

import sys

import pytest

from labkit.lesson import exercise_files, notebook_files
from tests.helpers import check, code_cells, notebook_paths

(PATH,) = [path for path in notebook_paths() if path.name.startswith("21_")]


@pytest.fixture
def no_jax(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)  # an import of it raises ImportError


@pytest.mark.parametrize("solved", [False, True])
def test_every_cell_runs(no_jax, home, solved, monkeypatch):
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    # which IPython defines
    names = {"__name__": "__main__", "display": lambda *shown: None}
    for source in code_cells(PATH):
        number = notebook_files.stub_number(source)
        exec(
            exercise_files.solutions("21")[number] if number and solved else source,
            names,
        )
    assert names["jax"] is None
    assert "make appendix" in names["missing"]


@pytest.mark.parametrize("number", ["21.2b", "21.3", "21.4"])
def test_an_exercise_says_what_it_needs(no_jax, number):
    outcome = check(number, lambda *args: None)
    assert outcome.state == "todo"
    assert "make appendix" in outcome.message
