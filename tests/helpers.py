"""What several tests need of the notebooks."""

import ast
import json
import linecache
from types import SimpleNamespace

from exercises.nb00.wrong_answers import (
    COPY as COPY_BYTES_PER_S,
    MATMUL as MATMUL_FLOP_PER_S,
)
from labkit.lesson import checks, exercise_files, notebook_files, process_state


def fake_ceilings(**kwargs):
    """Ceilings that are the same in every run."""
    return SimpleNamespace(
        copy_bytes_per_s=COPY_BYTES_PER_S,
        matmul_flop_per_s={"float32": MATMUL_FLOP_PER_S},
    )


def check(number, answer):
    """`lab.check`, which has to leave the process as it was, random
    numbers included.
    """
    before = [(state, state.get()) for state in process_state.rows()]
    outcome = checks.check(number, answer)
    assert [state.name for state, value in before if state.get() != value] == []
    return outcome


def notebook_paths():
    return notebook_files.paths()


def cells(path):
    """[(cell type, source, tags, cell)]"""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [
        (c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", []), c)
        for c in notebook["cells"]
    ]


def code_cells(path):
    return [source for kind, source, _, _ in cells(path) if kind == "code"]


def stub_cells(path):
    return [source for source in code_cells(path) if notebook_files.stub_number(source)]


def solved(number):
    """The answer that an exercise's solution makes, with the notebook's imports and none
    of its other cells.
    """
    (path,) = [path for path in notebook_paths() if path.name.startswith(number[:2])]
    cells = code_cells(path)
    trees = [ast.parse(cell) for cell in cells if not cell.startswith("%")]
    imports = [
        ast.unparse(node)
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    (judged,) = {
        ast.unparse(node.args[1])
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node).startswith(f"lab.check('{number}', ")
    }
    solution = exercise_files.solutions(number[:2])[number]
    filename = f"<solution {number}>"
    lines = solution.splitlines(keepends=True)
    # lab.trace reads it
    linecache.cache[filename] = (len(solution), None, lines, filename)
    names = {"__name__": "__main__"}
    exec("\n".join(imports), names)
    exec(compile(solution, filename, "exec"), names)
    return eval(judged, names)
