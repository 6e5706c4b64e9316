"""A check leaves the process as it was after the solution too, wherever that runs without its notebook's variables."""

import ast
import linecache
import re

import pytest

from labkit.lesson import exercise_files
from tests.helpers import check, code_cells, fake_ceilings, notebook_paths

ON_RANKS = ("12", "13", "15")  # their answers run in other processes


def imports(path):
    """The import statements of a notebook's cells, and the cells themselves."""
    cells = code_cells(path)
    trees = (node for cell in cells if not cell.startswith("%") for node in ast.parse(cell).body)
    return "\n".join(ast.unparse(node) for node in trees if isinstance(node, ast.Import | ast.ImportFrom)), cells


CASES = [(path, n) for path in notebook_paths() for n in exercise_files.numbers()
         if path.name[:2] == n[:2] and n[:2] not in ON_RANKS]  # fmt: skip


@pytest.mark.parametrize(("path", "number"), CASES, ids=[number for _, number in CASES])
def test_a_solution_leaves_the_process_as_it_was(path, number, monkeypatch):
    monkeypatch.setattr(f"exercises.nb{number[:2]}.check.measure_ceilings", fake_ceilings, raising=False)
    code, name = exercise_files.solutions(number[:2])[number], f"<solution {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # lab.trace reads the source
    above, cells = imports(path)
    answer = next(found[1] for cell in cells if (found := re.search(rf'lab\.check\("{number}", (.*)\)', cell)))
    names = {"__name__": "__main__"}
    try:
        exec(above, names)
        exec(compile(code, name, "exec"), names)
        judged = eval(answer, names)
    except NameError as error:
        pytest.skip(f"needs its notebook: {error}")
    outcome = check(number, judged)
    assert outcome.state == "passed" or "NameError" in outcome.message, outcome
