"""Readers work in the notebooks themselves: what they wrote fails no test, and a new
version loses none of it.
"""

import json
import os
import subprocess
from datetime import date

import pytest

from labkit.core.paths import ROOT
from scripts import copies, update

TODAY = date(2026, 11, 29)


def git(folder, *arguments):
    who = ["-c", "user.name=A Reader", "-c", "user.email=reader@example.org"]
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True)


def notebook(source, output=None):
    """A notebook of one cell, as shipped or, with an output, as Jupyter saves it."""
    cell = {
        "cell_type": "code",
        "execution_count": None if output is None else 1,
        "metadata": {},
        "outputs": []
        if output is None
        else [{"output_type": "stream", "text": output}],
        "source": source,
    }
    language = {"name": "python"}
    if output is not None:
        language["version"] = "3.12.1"
    return json.dumps({"cells": [cell], "metadata": {"language_info": language}})


@pytest.fixture
def clones(tmp_path):
    """A repository with two notebooks, and a reader's clone of it."""
    origin = tmp_path / "origin"
    (origin / "notebooks").mkdir(parents=True)
    for name in ("00_a", "01_b"):
        (origin / "notebooks" / f"{name}.ipynb").write_text(notebook("answer = ..."))
    (origin / "labkit.py").write_text("old\n")
    (origin / ".gitignore").write_text("notebooks/kept/\n")
    git(origin, "init", "--quiet", "--initial-branch=main")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "First")
    reader = tmp_path / "reader"
    git(tmp_path, "clone", "--quiet", origin, reader)
    return origin, reader


def release(origin, name, text):
    (origin / name).write_text(text)
    git(origin, "commit", "--quiet", "-a", "-m", "Next")


def test_a_notebook_as_shipped_is_nobody_s_and_one_that_jupyter_saved_is():
    assert not copies.is_worked_in(notebook("x = 1"))
    assert copies.is_worked_in(notebook("x = 1", output="1"))
    without_outputs = json.loads(notebook("x = 1"))
    without_outputs["metadata"]["language_info"]["version"] = "3.13.0"
    assert copies.is_worked_in(json.dumps(without_outputs))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shipped = copies.as_shipped(path)
        assert shipped is not None
        assert not copies.is_worked_in(shipped)


def test_tests_look_at_the_shipped_text_of_a_notebook_that_was_worked_in(clones):
    _, reader = clones
    notebooks = reader / "notebooks"
    (notebooks / "00_a.ipynb").write_text(notebook("answer = wrong", output="error"))
    target = reader / "copies"
    copies.write_copies(notebooks, target)
    assert [path.name for path in copies.worked_in(notebooks)] == ["00_a.ipynb"]
    assert (target / "00_a.ipynb").read_text() == notebook("answer = ...")
    assert (target / "01_b.ipynb").read_text() == notebook("answer = ...")
    (notebooks / "01_b.ipynb").unlink()
    copies.write_copies(notebooks, target)
    assert [path.name for path in target.iterdir()] == ["00_a.ipynb"]


def test_without_git_what_set_up_kept_is_looked_at(tmp_path, monkeypatch):
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    for name, value in {
        "ROOT": tmp_path,
        "NOTEBOOKS": notebooks,
        "AS_SHIPPED": tmp_path / "kept",
    }.items():
        monkeypatch.setattr(copies, name, value)
    # the folder of a test may be inside of somebody's repository
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (notebooks / "00_a.ipynb").write_text(notebook("answer = ..."))
    copies.keep_shipped()
    (notebooks / "00_a.ipynb").write_text(notebook("answer = 3", output="3"))
    (notebooks / "01_b.ipynb").write_text(notebook("mine", output="3"))
    copies.keep_shipped()
    copies.write_copies(notebooks, tmp_path / "copies")
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["00_a.ipynb"]
    assert (tmp_path / "copies" / "00_a.ipynb").read_text() == notebook("answer = ...")


def test_a_changed_notebook_is_kept_and_an_unchanged_one_stays(clones):
    origin, reader = clones
    mine = notebook("answer = 42", output="passed")
    for name in ("00_a", "01_b"):
        (reader / "notebooks" / f"{name}.ipynb").write_text(mine)
    release(origin, "notebooks/01_b.ipynb", notebook("better = ..."))
    said = update.update(reader, TODAY)
    assert (reader / "notebooks" / "00_a.ipynb").read_text() == mine
    assert (reader / "notebooks" / "01_b.ipynb").read_text() == notebook("better = ...")
    kept = reader / "notebooks" / "kept" / "01_b_2026-11-29.ipynb"
    assert kept.read_text() == mine
    assert str(kept.relative_to(reader)) in said[-1]
    assert len(said) == 2
    assert update.update(reader, TODAY) == ["This is the newest version already."]
    # a second one of the same day keeps both
    (reader / "notebooks" / "01_b.ipynb").write_text(mine)
    release(origin, "notebooks/01_b.ipynb", notebook("best = ..."))
    update.update(reader, TODAY)
    assert len(list(kept.parent.iterdir())) == 2


def test_where_git_can_t_go_on_everything_is_as_it_was(clones):
    origin, reader = clones
    mine = notebook("answer = 42", output="passed")
    (reader / "notebooks" / "01_b.ipynb").write_text(mine)
    (reader / "labkit.py").write_text("the reader's own\n")
    release(origin, "labkit.py", "new\n")
    release(origin, "notebooks/01_b.ipynb", notebook("better = ..."))
    with pytest.raises(update.GitFailed, match=r"labkit\.py"):
        update.update(reader, TODAY)
    assert (reader / "notebooks" / "01_b.ipynb").read_text() == mine
    assert (reader / "labkit.py").read_text() == "the reader's own\n"


def test_a_folder_without_git_or_without_an_upstream_says_what_to_do(
    clones, tmp_path, monkeypatch
):
    origin, _ = clones
    with pytest.raises(update.GitFailed, match="upstream"):
        update.update(origin, TODAY)
    monkeypatch.setattr(update, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="without git: download the new version"):
        update.main()


@pytest.mark.complete
def test_the_suite_passes_where_somebody_has_worked_in_a_notebook(tmp_path):
    """In a clone: the form of a notebook and its exercises, after it was saved."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", ROOT, clone)
    path = next((clone / "notebooks").glob("03_*.ipynb"))
    worked = json.loads(path.read_text(encoding="utf-8"))
    worked["metadata"]["language_info"]["version"] = "3.12.1"
    for cell in worked["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"] = 7
            cell["source"] = "answer = 1 / 0  # a reader's\n" * 40
    path.write_text(json.dumps(worked), encoding="utf-8")
    command = [
        ROOT / ".venv/bin/python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LABKIT_", "PYTEST_"))
    }
    folders = [clone, *(clone / "packages").iterdir()]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    tested = ["tests/test_notebooks.py", "tests/test_prose.py", "-k", "03"]
    run = subprocess.run(
        [*command, *tested],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:]
