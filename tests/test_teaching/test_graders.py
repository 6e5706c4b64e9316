"""otter-grader and nbgrader grade what learners hand in: right, half right, not done,
and with cheats.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import nbgrader, otter
from tests.needs import needs

pytestmark = [pytest.mark.slow, pytest.mark.complete, needs("otter", "nbgrader")]

CHEAT = "lab.check = lambda number, answer: print(number, 'passed')"


def handed_in(path, *, solved, cheat=""):
    """The learners' notebook with the solutions of these exercises, as text; a cheat is
    added to its first code.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    solutions = {
        n: code
        for n, code in exercise_files.solutions(path.name[:2]).items()
        if n in solved
    }
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        number = (
            notebook_files.stub_number(cell["source"])
            if cell["cell_type"] == "code"
            else None
        )
        if number in solutions:
            cell["source"] = f"{cell['source'].splitlines()[0]}\n{solutions[number]}"
        elif cell["source"].startswith("import labkit"):
            cell["source"] += f"\n{cheat}"
    return json.dumps(notebook)


def run(command, folder, home):
    """Run a program of the environment in a folder; its output, once it
    has succeeded.
    """
    found = Path(sys.executable).parent
    paths = {
        "PATH": f"{found}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LABKIT_HOME": str(home),
    }
    done = subprocess.run(
        [str(found / command[0]), *command[1:]],
        cwd=folder,
        env={**os.environ, **paths, "LABKIT_PROFILE": "ci"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_otter_gives_a_point_for_each_right_kernel_and_none_for_a_cheat(tmp_path):
    otter.write("03", tmp_path / "03")
    (notebook,) = (tmp_path / "03" / "student").iterdir()
    solved = ["03.1", "03.6"]
    submission = handed_in(notebook, solved=solved, cheat=CHEAT)
    (tmp_path / "submission.ipynb").write_text(submission, encoding="utf-8")
    autograder = tmp_path / "03" / "autograder.zip"
    run(
        ["otter", "run", "-a", autograder, "submission.ipynb"],
        tmp_path,
        tmp_path / "home",
    )
    tests = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
    scores = {
        test["name"]: (test["score"], test["max_score"])
        for test in tests
        if "score" in test
    }
    assert scores == {
        n: (float(n in solved), 1.0) for n in ("03.1", "03.2", "03.5", "03.6", "03.7")
    }
    assert "03.2 todo" in "".join(test["output"] for test in tests)


RENAMED = "efficiency_percent", "my_own_name"
ISCLOSE = "import math; math.isclose = lambda *a, **k: True"
ENDS = "import os; os._exit(0)"
# Who hands in: what is solved, what stands below the first cell, and the points of 00.3
# (two) and 00.5 (one).
HAND_INS = {
    "all": (("00.3", "00.5"), "", 3.0),
    "renamed": (("00.3",), "", 2.0),
    "deleted": ((), "", 0.0),
    "replaced": (("00.5",), f"{CHEAT}\n{ISCLOSE}", 1.0),
    "ends": ((), ENDS, 0.0),
}


def as_handed_in(released, name):
    """A learner's notebook, changed in the way that its name says."""
    solved, cheat, _ = HAND_INS[name]
    text = handed_in(released, solved=solved, cheat=cheat)
    if name == "deleted":
        notebook = json.loads(text)
        notebook["cells"] = [
            c for c in notebook["cells"] if "nbgrader" not in c["metadata"]
        ]
        text = json.dumps(notebook)
    return text.replace(*RENAMED) if name == "renamed" else text


@pytest.mark.timeout(1500)  # five notebooks
def test_nbgrader_releases_collects_grades_and_gives_feedback(tmp_path):
    course = tmp_path / "course"
    exchange = tmp_path / "exchange"
    home = tmp_path / "home"
    name = nbgrader.write("00", course, ["00.3=2", "00.5"])
    exchange.mkdir()
    exchange.chmod(0o777)
    with open(course / "nbgrader_config.py", "a") as file:
        file.write(
            f"\nc.Exchange.root = {str(exchange)!r}\nc.Exchange.path_includes_course ="
            " False\n"
        )
        # one user hands in for all
        file.write("c.ExchangeCollect.check_owner = False\n")
    for command in ("generate_assignment", "release_assignment"):
        run(["nbgrader", command, name], course, home)
    out = exchange / "gpu-training" / "outbound" / name / f"{name}.ipynb"
    assert "lab.check" in out.read_text(encoding="utf-8")
    assert "HIDDEN" not in out.read_text(encoding="utf-8")
    for i, student in enumerate(HAND_INS):
        folder = (
            exchange
            / "gpu-training"
            / "inbound"
            / f"{student}+{name}+2026-11-20 12:00:{i:02} UTC+{i:020}"
        )
        folder.mkdir()
        (folder / f"{name}.ipynb").write_text(
            as_handed_in(out, student), encoding="utf-8"
        )
        (folder / "timestamp.txt").write_text(f"2026-11-20 12:00:{i:02} UTC")
        # as `nbgrader submit` does
        (folder / "submission_secret.txt").write_text(f"secret {i}")
    for command in ("collect", "autograde", "generate_feedback", "release_feedback"):
        run(["nbgrader", command, name], course, home)
    code = (
        "from nbgrader.api import Gradebook\nwith Gradebook('sqlite:///gradebook.db')"
        " as book:\n"
    )
    code += f"    rows = book.submission_dicts('{name}')\n"
    code += (
        "    print({row['student']: (row['score'], row['max_score']) for row in rows})"
    )
    scores = run(["python", "-c", code], course, home).strip().splitlines()[-1]
    assert ast.literal_eval(scores) == {
        student: (points, 3.0) for student, (*_, points) in HAND_INS.items()
    }
    pages = {
        p.parts[-3]: p.read_text(encoding="utf-8")
        for p in (course / "feedback").rglob(f"{name}.html")
    }
    assert set(pages) == set(HAND_INS)
    assert "00.3 passed: Right for 1 to 97 threads" in pages["all"]
    assert "00.3 todo: Replace the dots" in pages["replaced"]
    assert len(list((exchange / "gpu-training" / "feedback").rglob("*.html"))) == len(
        HAND_INS
    )
