"""The 50- and 90-minute paths: short enough, and no cell of one needs a cell that it leaves out."""

import ast
import json
import re
import symtable

import pytest

from labkit.core.errors import LabError
from labkit.lesson import exercise_files, notebook_files
from scripts import notebooks as script
from teaching import __main__ as command, path as paths
from tests.helpers import notebook_paths
from tests.test_notebooks import python_of

every_notebook = pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.stem)
every_path = pytest.mark.parametrize("length", sorted(paths.SKIPPED))


def source_of(cell):
    return "".join(cell["source"])


def code_of(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def names_of(source):
    """(bound, needed, imported): the names that a cell makes, takes from other cells, and makes by an import."""
    table = symtable.symtable(source, "cell", "exec")
    top = {symbol.get_name(): symbol for symbol in table.get_symbols()}
    bound = {name for name, symbol in top.items() if symbol.is_assigned() or symbol.is_imported()}
    imported = {name for name, symbol in top.items() if symbol.is_imported()}
    read = {name for name, symbol in top.items() if symbol.is_referenced()} - bound
    inner, tables = set(), list(table.get_children())
    while tables:
        one = tables.pop()
        inner |= {symbol.get_name() for symbol in one.get_symbols() if symbol.is_global()}
        tables += one.get_children()
    changed = {
        node.target.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    return bound, read | (inner - bound) | (changed & bound), imported


def needed_but_left_out(notebook, length):
    """[(cell's id, name)]: what a cell of the path takes from the last cell that makes it, which the path lacks."""
    made_by, missing = {}, []
    for cell in code_of(notebook):
        bound, needed, imported = names_of(python_of(source_of(cell)))
        if not paths.is_left_out(cell, length):
            taken = [(name, made_by[name]) for name in sorted(needed) if name in made_by]
            missing += [(cell["id"], name) for name, maker in taken if paths.is_left_out(maker, length)]
        made_by = dict.fromkeys(imported, cell) | made_by | dict.fromkeys(bound - imported, cell)
    return missing


def open_and_solved(path):
    notebook = notebook_files.read(path)
    return notebook, notebook_files.solved(notebook, exercise_files.solutions(path.name[:2]))


@every_notebook
@every_path
def test_no_cell_needs_one_that_the_path_leaves_out(path, length):
    for notebook in open_and_solved(path):
        assert needed_but_left_out(notebook, length) == []


def cell(source, *tags):
    kind = "markdown" if source.startswith(("#", "*", "Some")) else "code"
    return {"cell_type": kind, "id": source, "metadata": {"tags": list(tags)}, "source": source}


@pytest.mark.parametrize(
    ("cells", "missing"),
    [
        ([cell("a = 1"), cell("a + 1")], []),
        ([cell("a = 1", "skip-50"), cell("a + 1")], ["a"]),
        ([cell("a = 1"), cell("a = 2", "skip-50"), cell("a + 1")], ["a"]),  # another value than the text speaks of
        ([cell("a = 1"), cell("a = 2", "more"), cell("a + 1")], ["a"]),
        ([cell("a = 1", "skip-50"), cell("a = 2"), cell("a + 1")], []),
        ([cell("a = 1", "skip-50"), cell("a += 2")], ["a"]),
        ([cell("a = 1", "skip-50"), cell("def f():\n    return a")], ["a"]),
        ([cell("a = 1", "skip-50"), cell("def f(a):\n    return [a for a in a]")], []),
        ([cell("def f(): ...", "skip-50"), cell("[f() for _ in range(3)]")], ["f"]),
        ([cell("import re", "skip-50"), cell("re.match")], ["re"]),
        ([cell("import re"), cell("import re", "skip-50"), cell("re.match")], []),
    ],
)
def test_a_missing_name_is_found(cells, missing):
    assert [name for _, name in needed_but_left_out({"cells": cells}, 50)] == missing


@every_notebook
@every_path
def test_a_path_is_as_short_as_its_name_says(path, length):
    """A lab of 50 minutes leaves ten for talk and questions."""
    assert paths.minutes(path.name[:2], length) <= {50: 40, 90: 90}[length]


def predicted(cells):
    """The names of the predictions that cells ask for, without the section: "one thread" of "00.2 one thread"."""
    found = re.findall(r'lab\.predict\(\s*"\d\d\.\d ([^"{]+)"', "\n".join(map(source_of, cells)))
    return set(found)


@every_notebook
def test_the_short_path_keeps_what_a_notebook_is_for(path):
    whole, made = notebook_files.read(path), paths.shortened(notebook_files.read(path), path.name, 50)
    kept = code_of(made)
    assert [one["id"] for one in made["cells"][:6]] == [one["id"] for one in whole["cells"][:6]]  # the first picture
    assert "lab.summary(" in source_of(kept[-1])
    assert "**Open question:**" in source_of(made["cells"][-1])
    assert len(predicted(kept)) >= 2
    assert any(notebook_files.stub_number(source_of(one)) for one in kept)
    for stub in filter(None, (notebook_files.stub_number(source_of(one)) for one in kept)):
        assert f'lab.check("{stub}"' in "".join(map(source_of, kept))


@every_notebook
def test_the_short_path_measures_what_it_lets_learners_predict(path):
    """Where the notebook has a cell with a prediction's name below the guess, the path has one, too."""

    def answered(cells):
        sources = [source_of(one) for one in cells]
        return {
            name
            for name in predicted(cells)
            if any(f'{name}"' in source and f'{name}", guess' not in source for source in sources)
        }

    kept = code_of(paths.shortened(notebook_files.read(path), path.name, 50))
    assert predicted(kept) & answered(code_of(notebook_files.read(path))) <= answered(kept)


def tasks(notebook):
    """Each cell of text that has a cell of code below it, with the first of these."""
    for i, above in enumerate(notebook["cells"]):
        below = [one for one in notebook["cells"][i:] if one["cell_type"] == "code"]
        if above["cell_type"] == "markdown" and below:
            yield above, below[0]


@every_notebook
def test_what_is_left_out_is_asked_for_nowhere(path):
    made = paths.shortened(notebook_files.read(path), path.name, 50)
    text = "\n".join(source_of(one) for one in made["cells"] if one["cell_type"] == "markdown")
    asked = set(re.findall(r"(?m)^\*\*Exercise (\d\d\.\d[a-z]?)\.", text))
    there = {notebook_files.stub_number(source_of(one)) for one in code_of(made)} - {None}
    assert asked == there
    guesses = [(above, below) for above, below in tasks(made) if "**Predict.**" in source_of(above)]
    whole = {above["id"]: below["id"] for above, below in tasks(notebook_files.read(path))}
    assert all(below["id"] == whole[above["id"]] for above, below in guesses)


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
    short, whole = (paths.shortened(notebook, "00_start_here.ipynb", length) for length in (50, 90))
    title, *rest = [source_of(one) for one in short["cells"]]
    assert rest == ["## 1 What?", "Some text."]
    assert "This is the 50-minute path. It leaves out sections 2 and 3 and exercise 00.1;" in title
    assert re.search(r"(?m)^5 minutes\. Needs", title)
    assert "leaves out section 3;" in source_of(whole["cells"][0])
    assert "90 minutes. Needs" in source_of(notebook["cells"][0])  # the argument stays as it was


def test_nothing_left_out_is_said_by_nothing():
    notebook = {"cells": [cell("# 99 Why?\n\n90 minutes. Needs Python."), cell("x = 1")]}
    assert "path" not in source_of(paths.shortened(notebook, "00_start_here.ipynb", 90)["cells"][0])


def test_the_command_writes_one_or_several(tmp_path, capsys):
    assert command.main(["path", "02", "-o", str(tmp_path / "short.ipynb")]) == 0
    made = json.loads((tmp_path / "short.ipynb").read_text(encoding="utf-8"))
    assert "50-minute path" in made["cells"][0]["source"]
    assert "minutes" in capsys.readouterr().out
    folder = tmp_path / "new" / "folder"
    assert command.main(["path", "00", "02", "--minutes", "90", "--solved", "-o", str(folder)]) == 0
    assert sorted(path.name[:2] for path in folder.iterdir()) == ["00", "02"]
    assert "lab.predict" in (folder / "02_is_it_real.ipynb").read_text(encoding="utf-8")
    solution = exercise_files.solutions("02")["02.1"].splitlines()[-1].strip()
    assert solution in (folder / "02_is_it_real.ipynb").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("numbers", "out", "words"),
    [(["99"], "a", "There is no notebook '99'. There are 00, 01"), (["00", "01"], "a.ipynb", "name a folder after -o")],
)
def test_a_wrong_command_is_told(numbers, out, words, tmp_path, capsys):
    assert command.main(["path", *numbers, "-o", str(tmp_path / out)]) == 1
    assert words in capsys.readouterr().err


def test_the_minutes_of_a_path_are_those_of_its_cells():
    path = notebook_paths()[0]
    made = paths.shortened(notebook_files.read(path), path.name, 50)
    assert f"\n{paths.minutes(path.name[:2], 50)} minutes" in made["cells"][0]["source"]
    made["cells"][0]["source"] = made["cells"][0]["source"].rpartition("\n\n")[0]  # without what is left out
    assert paths.minutes(path.name[:2], 50) == script.minutes(made, path.name[:2])
    with pytest.raises(LabError, match="There is no notebook"):
        paths.chosen(["4"])
