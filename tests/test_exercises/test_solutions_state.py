"""A check leaves the process as it was after the solution too, wherever that runs without its notebook's variables."""

import ast
import linecache
import re

import pytest

from labkit.lesson import exercise_files
from labkit.measure.machine import threads
from tests.helpers import check, code_cells, fake_ceilings, notebook_paths
from tests.needs import marks_of
from tests.test_exercises import virtual_clock

ON_RANKS = ("12", "13", "15")  # their answers run in other processes
OF_THEIR_NOTEBOOK = {  # they use what the notebook has made before
    "00.1", "00.6", "01.6", "05.5", "06.7", "10.6b", "14.3", "14.5", "17.2", "17.3a", "17.3b", "17.4a", "17.4c",
    "17.5a", "17.5b", "17.6", "22.4",
}  # fmt: skip


def imports(path):
    """The import statements of a notebook's cells, and the cells themselves."""
    cells = code_cells(path)
    trees = (node for cell in cells if not cell.startswith("%") for node in ast.parse(cell).body)
    return "\n".join(ast.unparse(node) for node in trees if isinstance(node, ast.Import | ast.ImportFrom)), cells


CASES = [
    pytest.param(path, n, id=n, marks=[*marks_of(n), *([pytest.mark.complete] if n == "06.6" else [])])  # compiles long
    for path in notebook_paths()
    for n in exercise_files.numbers()
    if path.name[:2] == n[:2] and n[:2] not in ON_RANKS and n not in OF_THEIR_NOTEBOOK
]


@pytest.mark.parametrize(("path", "number"), CASES)
def test_a_solution_leaves_the_process_as_it_was(path, number, monkeypatch):
    monkeypatch.setattr(f"exercises.nb{number[:2]}.check.measure_ceilings", fake_ceilings, raising=False)
    virtual_clock.use(monkeypatch)
    code, name = exercise_files.solutions(number[:2])[number], f"<solution {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # lab.trace reads the source
    above, cells = imports(path)
    answer = next(found[1] for cell in cells if (found := re.search(rf'lab\.check\("{number}", (.*)\)', cell)))
    names = {"__name__": "__main__"}
    exec(above, names)
    exec(compile(code, name, "exec"), names)
    with threads(1):
        outcome = check(number, eval(answer, names))
    assert outcome.state == "passed" or "NameError" in outcome.message, outcome
