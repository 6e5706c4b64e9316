"""otter-grader and nbgrader grade what learners hand in: right, half right, not done,
and with cheats.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import nbgrader, otter, sandbox
from tests.needs import needs
from tests.test_teaching.cheats import CHEATS, WRONG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.complete,
    needs("otter", "nbgrader", "bwrap"),
]

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
    "scripts": ((), "", 0.0),
}
# What would run in the browser of whoever reads the notebook.
SCRIPTS = """<script>alert(1)</script><img src=x onerror="alert(2)">
<iframe srcdoc="<script>alert(3)</script>"></iframe>

[page](javascript:alert(4))
"""
# What runs, or would: tags, attributes, and links.
RUNS = re.compile(
    r"(?i)<(?:script|iframe|object|embed)|<[^>]*\son\w+=|href=.javascript:"
)


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
    if name == "scripts":
        notebook = json.loads(text)
        for kind in ("markdown", "raw"):
            cell = {"cell_type": kind, "id": kind, "metadata": {}, "source": SCRIPTS}
            notebook["cells"].append(cell)
        text = json.dumps(notebook)
    return text.replace(*RENAMED) if name == "renamed" else text


def scores_of(course, name, home):
    """Learner -> points in nbgrader's gradebook, of 3."""
    code = (
        "from nbgrader.api import Gradebook\nwith Gradebook('sqlite:///gradebook.db')"
        " as book:\n"
    )
    code += f"    rows = book.submission_dicts('{name}')\n"
    code += (
        "    print({row['student']: (row['score'], row['max_score']) for row in rows})"
    )
    printed = run(["python", "-c", code], course, home).strip().splitlines()[-1]
    pairs = ast.literal_eval(printed)
    assert {most for _, most in pairs.values()} == {3.0}
    return {student: points for student, (points, _) in pairs.items()}


@pytest.mark.timeout(1500)  # six notebooks
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
    assert scores_of(course, name, home) == {
        student: points for student, (*_, points) in HAND_INS.items()
    }
    pages = {
        p.parts[-3]: p.read_text(encoding="utf-8")
        for p in (course / "feedback").rglob(f"{name}.html")
    }
    assert set(pages) == set(HAND_INS)
    assert "00.3 passed: Right for 1 to 97 threads" in pages["all"]
    assert "00.3 todo: Replace the dots" in pages["replaced"]
    assert ">page</a>" in pages["scripts"]
    assert RUNS.findall(pages["scripts"]) == RUNS.findall(pages["replaced"])
    assert len(list((exchange / "gpu-training" / "feedback").rglob("*.html"))) == len(
        HAND_INS
    )


POINTS = ["00.3=2", "00.5"]


@pytest.fixture(scope="module")
def cheating(tmp_path_factory):
    """Hand-ins by name, each with one cheat, and an honest one at the end; and the
    teacher's folder, which the cheats know.
    """
    assert sandbox.refusal() == ""
    course = tmp_path_factory.mktemp("course")
    folder = tmp_path_factory.mktemp("learners") / "00"
    otter.write("00", folder, POINTS)
    (released,) = (folder / "student").iterdir()
    hand_ins = {
        str(i): with_cheat(released, code.replace("COURSE", str(course)))
        for i, code in enumerate(CHEATS.values())
    }
    hand_ins["honest"] = handed_in(released, solved=("00.3", "00.5"))
    return hand_ins, course, folder / "autograder.zip"


def with_cheat(path, code):
    """A learner's notebook with a cheat in the place of the answers, as text."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    places = iter([f"{WRONG}\n{code}", "pass"])
    for cell in notebook["cells"]:
        if notebook_files.stub_of(cell) is not None:
            cell["source"] = next(places)
    return json.dumps(notebook)


def total(scores):
    """The points that all cheats have together, and those of the honest one."""
    honest = scores.pop("honest")
    assert len(scores) == len(CHEATS) == 48
    return {list(CHEATS)[int(i)]: n for i, n in scores.items() if n}, honest


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_cheat_scores_in_nbgrader(cheating, tmp_path):
    hand_ins, course, _ = cheating
    name = nbgrader.write("00", course, POINTS)
    run(["nbgrader", "generate_assignment", name], course, tmp_path)
    released = course / "release" / name / f"{name}.ipynb"
    graded = [
        cell
        for cell in json.loads(released.read_text(encoding="utf-8"))["cells"]
        if "nbgrader" in cell["metadata"]
    ]
    for student, text in hand_ins.items():
        notebook = json.loads(text)
        notebook["cells"] += graded
        folder = course / "submitted" / student / name
        folder.mkdir(parents=True)
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    before = {path.name for path in course.iterdir()}
    settings = (course / "nbgrader_config.py").read_text(encoding="utf-8")
    run(["nbgrader", "autograde", name], course, tmp_path)
    assert total(scores_of(course, name, tmp_path)) == ({}, 3.0)
    assert {path.name for path in course.iterdir()} - before <= {"autograded"}
    assert (course / "nbgrader_config.py").read_text(encoding="utf-8") == settings


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_no_cheat_scores_in_otter(cheating, tmp_path):
    hand_ins, _, autograder = cheating
    scores = {}
    for student, text in hand_ins.items():
        folder = tmp_path / student
        folder.mkdir()
        (folder / "submission.ipynb").write_text(text, encoding="utf-8")
        command = ["otter", "run", "-a", autograder, "submission.ipynb"]
        run(command, folder, tmp_path / "home")
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        scores[student] = sum(test.get("score", 0.0) for test in results["tests"])
    assert total(scores) == ({}, 3.0)
