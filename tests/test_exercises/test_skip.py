"""The two exercises that let a reader skip a notebook need nothing of it but the setup
cell and the imports.
"""

import ast
import builtins
import re
import symtable

import pytest

from labkit.lesson import exercise_files, notebook_files
from labkit.lesson.outline import outlines
from tests.helpers import cells, code_cells, notebook_paths

PATHS = {path.name[:2]: path for path in notebook_paths()}


def first_cells(path):
    """The setup cell, and the first cell after it that imports something, unless that
    needs others.
    """
    (setup,) = [source for _, source, tags, _ in cells(path) if "setup" in tags]
    after = code_cells(path)[code_cells(path).index(setup) + 1 :]
    first = next(
        (source for source in after if re.search(r"(?m)^\s*(import|from) ", source)), ""
    )
    return [setup, *([first] if needs(first) <= sets(setup) else [])]


def tables(source):
    """The symbol tables of a source, those of its functions included."""
    todo = [
        symtable.symtable(
            re.sub(r"(?m)^(\s*)[!%].*$", r"\1pass", source), "cell", "exec"
        )
    ]
    for table in todo:
        todo += table.get_children()
    return todo


def needs(source):
    """Global names that a source uses and doesn't set itself."""
    used = set()
    top, *inner = tables(source)
    used |= {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    used |= {
        s.get_name()
        for table in inner
        for s in table.get_symbols()
        if s.is_global() and s.is_referenced()
    }
    return used - sets(source) - set(dir(builtins))


def sets(source):
    top = tables(source)[0]
    return {
        s.get_name()
        for s in top.get_symbols()
        if s.is_assigned() or s.is_imported() or s.is_namespace()
    }


def answered(path, number):
    """The solution of an exercise, and the call that checks it in the notebook."""
    judging, *_ = [
        ast.unparse(node)
        for source in code_cells(path)
        if f'lab.check("{number}"' in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node).startswith(f"lab.check('{number}'")
    ]
    # 17's cases, one a cell
    opened = [source for source in code_cells(path) if f'case("{number}"' in source]
    return "\n".join([*opened, exercise_files.solutions(number[:2])[number], judging])


@pytest.mark.parametrize(
    "number", [number for outline in outlines().values() for number in outline.skip]
)
def test_it_needs_no_other_cell(number):
    path = PATHS[number[:2]]
    there = set().union(*map(sets, first_cells(path)))
    assert needs(answered(path, number)) <= there
    optional = [
        notebook_files.stub_number(source)
        for _, source, tags, _ in cells(path)
        if "more" in tags
    ]
    # the others of 06 build on each other
    assert number not in optional or number == "06.6"
