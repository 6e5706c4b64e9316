"""The notebooks for browsers: cells of the numbered ones, which run on a Python that
lacks what a browser's lacks, and whose modules Pyodide itself imports.
"""

import json
import os
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest

from book.lite import __main__ as lite, notebooks, wheels
from labkit.core.paths import IMPORT_FOLDERS, ROOT
from labkit.lesson import exercise_files, notebook_files
from scripts import programs
from tests.needs import needs

NUMBERS = ("01", "14", "15", "23")


@pytest.fixture(scope="module")
def made():
    return {notebook.number: notebook for notebook in notebooks.made()}


def test_each_notebook_is_whole_and_leads_to_no_page_that_is_missing(made):
    assert tuple(made) == NUMBERS
    for notebook in made.values():
        nbformat.validate(notebook.content)
        text = "\n".join(cell["source"] for cell in notebook.content["cells"])
        assert not re.search(r"\]\((?!https?:)", text), notebook.name
        assert "**Predict.**" not in text or "lab.predict" in text
        stubs = set(re.findall(r"(?m)^# (\d\d\.\d+\w?) about", text))
        assert stubs == set(re.findall(r"\*\*Exercise (\d\d\.\d+\w?)\.", text))


def test_what_a_numbered_notebook_lost_is_named():
    source = {"a": {"cell_type": "markdown", "source": "One.\n\n**Predict.** Two."}}
    kept = notebooks._kept("14", source, "a", ["**Predict.**"])
    assert kept["source"] == "One."
    with pytest.raises(ValueError, match="a cell 'b' in notebook 14"):
        notebooks._kept("14", source, "b", [])
    with pytest.raises(ValueError, match="'a' of notebook 14 that begins 'Three'"):
        notebooks._kept("14", source, "a", ["Three"])


def test_the_workbook_s_wheel_has_what_its_notebooks_import_and_no_wrong_answers(
    tmp_path,
):
    wheel = wheels.of_workbook(tmp_path, NUMBERS)
    first = wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        record = archive.read("workbook_in_browser-1.0.0.dist-info/RECORD").decode()
    assert {line.split(",")[0] for line in record.splitlines()} == names
    assert {
        "browser_lab.py",
        "labkit/__init__.py",
        "exercises/nb14/schedule_editor.js",
    } <= names
    assert "data/published/rents.csv" in names
    assert not [name for name in names if "wrong_answers" in name or "nb02" in name]
    assert wheels.of_workbook(tmp_path, NUMBERS).read_bytes() == first


def test_what_a_site_lacks_is_found(tmp_path):
    for name in ("lab/index.html", "index.html", "files/a.ipynb", "pypi/a.whl"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "api" / "contents").mkdir(parents=True)
    (tmp_path / "api" / "contents" / "all.json").write_text('["a.ipynb"]')
    (tmp_path / "pypi" / "all.json").write_text('["a.whl"]')
    assert lite.absent(tmp_path, ["a.ipynb"], ["a.whl"]) == []
    assert lite.absent(tmp_path, ["b.ipynb"], ["b.whl"]) == ["b.ipynb", "b.whl"]


def run(cells, folder):
    """What the cells print on a Python that lacks what a browser's lacks."""
    listed = folder / "cells.json"
    listed.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    home = {
        "LABKIT_HOME": str(folder),
        "LITE_CELLS": str(listed),
        "IPYTHONDIR": str(folder),
    }
    path = {"PYTHONPATH": os.pathsep.join(map(str, IMPORT_FOLDERS))}
    program = [
        ROOT / "book" / "lite" / "run_without.py",
        ROOT / "tests" / "lite_program.py",
    ]
    done = subprocess.run(
        [sys.executable, *program], env=os.environ | home | path, cwd=folder,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [n if n == "01" else pytest.param(n, marks=pytest.mark.complete) for n in NUMBERS],
)
def test_a_notebook_runs_without_torch_numba_threads_and_processes(
    made, number, tmp_path
):
    solved = notebook_files.solved(
        made[number].content, exercise_files.solutions(number)
    )
    cells = [
        [cell["id"], cell["source"]]
        for cell in solved["cells"]
        if cell["cell_type"] == "code" and cell["id"] != "setup"
    ]
    shown = run(cells, tmp_path)
    exercises = sum("lab.check(" in source for _, source in cells)
    assert shown.count(" passed: ") >= exercises, shown
    assert " not yet: " not in shown
    assert " todo: " not in shown


@pytest.mark.nightly
@pytest.mark.parametrize("number", NUMBERS)
def test_an_unsolved_notebook_says_todo_and_runs_through(made, number, tmp_path):
    cells = [list(cell) for cell in notebooks.code(made[number])]
    shown = run(cells, tmp_path)
    assert " todo: " in shown
    assert " not yet: " not in shown


# In Pyodide itself, NumPy and what else its makers serve is stood in for, since npm's
# package hasn't got it: that shows which of our modules import, not what they draw.
STAND_INS = """
import importlib.abc, importlib.machinery, sys, types
from unittest.mock import MagicMock

SERVED = {"IPython", "PIL", "anywidget", "filelock", "ipywidgets", "matplotlib", "numpy"}
SERVED |= {"platformdirs", "traitlets"}


class Anything(type):
    def __getattr__(cls, name):
        return MagicMock()

    def __getitem__(cls, key):
        return cls


class StandIn(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if not name[0].isupper():
            return MagicMock()
        return Anything(name, (), {"tag": lambda self, **_: self})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in SERVED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
sys.path[:0] = FOLDERS
"""
IN_PYODIDE = """
import { loadPyodide } from "PYODIDE/pyodide.mjs";
const python = await loadPyodide();
python.FS.mkdirTree("/repository");
python.FS.mount(python.FS.filesystems.NODEFS, { root: "ROOT" }, "/repository");
try {
  console.log(python.runPython(CODE));
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
"""
CALCULATED = """
import json
import browser_lab as lab
model = lab.cluster.model("Llama-2-70B")
cluster = lab.cluster.Cluster("A100 SXM4 80GB", gpus=64)
step = lab.cluster.step(model, cluster, lab.cluster.Layout(4, 8, 2), 512)
plan = lab.schedule.simulate(lab.schedule.one_f_one_b(3, 5))
order = lab.schedule.one_f_one_b(3, 5)
passed = lab.check("14.3", {"order": order, "transfer_s": 0.0})
json.dumps([step.seconds, step.mfu, plan.makespan_s, plan.bubble,
            lab.catalog.find("H100").name, str(passed)])
"""


@pytest.mark.complete
@needs("pyodide")
def test_pyodide_imports_what_the_notebooks_import_and_calculates_the_same(
    made, tmp_path
):
    imports = {
        line.strip()
        for notebook in made.values()
        for _, source in notebooks.code(notebook)
        for line in source.splitlines()
        if re.match(r"(from|import) ", line)
    }
    folders = ["book/lite/browser", "."]
    folders += [folder.relative_to(ROOT).as_posix() for folder in IMPORT_FOLDERS[1:]]
    stand_ins = STAND_INS.replace(
        "FOLDERS", repr([f"/repository/{f}" for f in folders])
    )
    code = "\n".join([stand_ins, "import browser_lab", *sorted(imports), CALCULATED])
    script = IN_PYODIDE.replace("PYODIDE", programs.path_of("pyodide")).replace(
        "ROOT", str(ROOT)
    )
    script = script.replace("CODE", json.dumps(code))
    command = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    here = run(
        [["calculated", CALCULATED.replace("json.dumps", "print(json.dumps") + ")"]],
        tmp_path,
    )
    there, here = (json.loads(text.splitlines()[-1]) for text in (done.stdout, here))
    assert there == here
