"""The 50- and 90-minute paths: short enough, and no cell of one needs a cell that it
leaves out.
"""

import ast
import json
import re
import symtable

import pytest

from labkit.lesson import exercise_files, notebook_files
from teaching import __main__ as command, path as paths
from tests.helpers import notebook_paths
from tests.test_notebooks import python_of

pytestmark = pytest.mark.slow  # reads every notebook

every_notebook = pytest.mark.parametrize(
    "path", notebook_paths(), ids=lambda path: path.stem
)


def source_of(cell):
    return "".join(cell["source"])


def code_of(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def names_of(source):
    """(bound, needed, imported): the names that a cell makes, takes from other cells,
    and makes by an import.
    """
    table = symtable.symtable(source, "cell", "exec")
    top = {symbol.get_name(): symbol for symbol in table.get_symbols()}
    bound = {
        name
        for name, symbol in top.items()
        if symbol.is_assigned() or symbol.is_imported()
    }
    imported = {name for name, symbol in top.items() if symbol.is_imported()}
    read = {name for name, symbol in top.items() if symbol.is_referenced()} - bound
    inner = set()
    tables = list(table.get_children())
    while tables:
        one = tables.pop()
        inner |= {
            symbol.get_name() for symbol in one.get_symbols() if symbol.is_global()
        }
        tables += one.get_children()
    changed = {
        node.target.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    return bound, read | (inner - bound) | (changed & bound), imported


def needed_but_left_out(notebook, length):
    """[(cell's id, name)]: what a cell of the path takes from the last cell that makes
    it, which the path lacks.
    """
    made_by = {}
    missing = []
    for cell in code_of(notebook):
        bound, needed, imported = names_of(python_of(source_of(cell)))
        if not paths.is_left_out(cell, length):
            taken = [
                (name, made_by[name]) for name in sorted(needed) if name in made_by
            ]
            missing += [
                (cell["id"], name)
                for name, maker in taken
                if paths.is_left_out(maker, length)
            ]
        made_by = (
            dict.fromkeys(imported, cell)
            | made_by
            | dict.fromkeys(bound - imported, cell)
        )
    return missing


@every_notebook
def test_no_cell_needs_one_that_a_path_leaves_out(path):
    notebook = notebook_files.read(path)
    solved = notebook_files.solved(notebook, exercise_files.solutions(path.name[:2]))
    for length in paths.SKIPPED:
        assert needed_but_left_out(notebook, length) == []
        assert needed_but_left_out(solved, length) == []


def cell(source, *tags):
    kind = "markdown" if source.startswith(("#", "*", "Some")) else "code"
    return {
        "cell_type": kind,
        "id": source,
        "metadata": {"tags": list(tags)},
        "source": source,
    }


def test_a_missing_name_is_found():
    for below, missing in {
        "a + 1": ["a"],
        "a += 2": ["a"],
        "def f():\n    return a": ["a"],
        "def f(a):\n    return [a for a in a]": [],
    }.items():
        cells = [cell("a = 1"), cell("a = 2", "skip-50"), cell(below)]
        assert [
            name for _, name in needed_but_left_out({"cells": cells}, 50)
        ] == missing


def test_a_path_is_as_short_as_its_name_says():
    for path in notebook_paths():
        number = path.name[:2]
        # ten more for talk and questions
        assert paths.minutes(number, 50) <= 40, number
        if number not in notebook_files.PUZZLES:
            assert paths.minutes(number, 90) <= 90, number


def predicted(cells):
    """The names of the predictions that cells ask for, without the section: "one
    thread" of "00.2 one thread".
    """
    found = re.findall(
        r'lab\.predict\(\s*"\d\d\.\d\d? ([^"{]+)"', "\n".join(map(source_of, cells))
    )
    return set(found)


def answered(cells):
    """The predictions' names that a cell uses below the guess."""
    sources = [source_of(cell) for cell in cells]
    return {
        name
        for name in predicted(cells)
        if any(
            f'{name}"' in source and f'{name}", guess' not in source
            for source in sources
        )
    }


def tasks(notebook):
    """Each cell of text that has a cell of code below it, with the first of these."""
    for i, above in enumerate(notebook["cells"]):
        below = [cell for cell in notebook["cells"][i:] if cell["cell_type"] == "code"]
        if above["cell_type"] == "markdown" and below:
            yield above, below[0]


@every_notebook
def test_the_short_path_keeps_what_a_notebook_is_for(path):
    whole = notebook_files.read(path)
    short = paths.shortened(notebook_files.read(path), path.name, 50)
    kept = code_of(short)
    begins = [
        [cell["id"] for cell in notebook["cells"][:6]] for notebook in (whole, short)
    ]
    assert begins[0] == begins[1], "the first picture"
    assert "lab.summary(" in source_of(kept[-1])
    assert "**Open question:**" in source_of(short["cells"][-1])
    if path.name[:2] not in notebook_files.PUZZLES:
        assert len(predicted(kept)) >= 2
    assert predicted(kept) & answered(code_of(whole)) <= answered(kept)

    stubs = {notebook_files.stub_number(source_of(cell)) for cell in kept} - {None}
    text = "\n".join(
        source_of(c) for c in short["cells"] if c["cell_type"] == "markdown"
    )
    assert stubs == set(re.findall(r"(?m)^\*\*Exercise (\d\d\.\d\d?[a-z]?)\.", text))
    assert stubs
    for stub in stubs:
        assert f'lab.check("{stub}"' in "".join(map(source_of, kept))
    below = {text["id"]: code["id"] for text, code in tasks(whole)}
    for text, code in tasks(short):
        assert "**Predict.**" not in source_of(text) or code["id"] == below[text["id"]]


def test_a_task_goes_with_its_cell_and_the_title_says_what_is_gone():
    notebook = {
        "cells": [
            cell("# 99 Why?\n\nYou will see.\n\n90 minutes. Needs Python."),
            cell("## 1 What?"),
            cell("Some text.\n\n**Exercise 00.1.** Do this.\n\nIn one line."),
            cell("# 00.1 about 1 line\n...", "skip-50") | {"cell_type": "code"},
            cell("**Predict.** How many?"),
            cell("guess = ...", "skip-50"),
            cell("## 2 How?", "skip-50"),
            cell("x = 1", "skip-50"),
            cell("## 3 And this? (optional)", "more"),
        ]
    }
    short, whole = (
        paths.shortened(notebook, "00_start_here.ipynb", length) for length in (50, 90)
    )
    title, *rest = [source_of(one) for one in short["cells"]]
    assert rest == ["## 1 What?", "Some text."]
    assert (
        "This is the 50-minute path. It leaves out sections 2 and 3 and exercise 00.1;"
        in title
    )
    assert re.search(r"(?m)^5 minutes\. Needs", title)
    assert "leaves out section 3;" in source_of(whole["cells"][0])
    # the argument stays as it was
    assert "90 minutes. Needs" in source_of(notebook["cells"][0])


def test_the_command_writes_one_or_several(tmp_path, capsys):
    assert command.main(["path", "02", "-o", str(tmp_path / "short.ipynb")]) == 0
    made = json.loads((tmp_path / "short.ipynb").read_text(encoding="utf-8"))
    assert "50-minute path" in made["cells"][0]["source"]
    assert "minutes" in capsys.readouterr().out
    folder = tmp_path / "new" / "folder"
    assert (
        command.main(
            ["path", "00", "02", "--minutes", "90", "--solved", "-o", str(folder)]
        )
        == 0
    )
    assert sorted(path.name[:2] for path in folder.iterdir()) == ["00", "02"]
    assert "lab.predict" in (folder / "02_is_it_real.ipynb").read_text(encoding="utf-8")
    solution = exercise_files.solutions("02")["02.1"].splitlines()[-1].strip()
    assert solution in (folder / "02_is_it_real.ipynb").read_text(encoding="utf-8")
    assert command.main(["path", "99", "-o", str(tmp_path / "a")]) == 1
    assert "There is no notebook '99'. There are 00, 01" in capsys.readouterr().err
    assert command.main(["path", "00", "01", "-o", str(tmp_path / "a.ipynb")]) == 1
    assert "name a folder after -o" in capsys.readouterr().err
