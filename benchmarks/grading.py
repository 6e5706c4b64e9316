"""How long nbgrader takes for a class: hand-ins of notebook 00's four exercises, each
judged in a sandbox. Needs `make extras` and bubblewrap (`make programs`).

usage: python -m benchmarks.grading [HAND_INS]    30 by default
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit.core.units import format_seconds
from labkit.lesson import exercise_files, notebook_files
from teaching import nbgrader, sandbox

NUMBER = "00"
HAND_INS = 30
TARGET_S = 15 * 60.0


def solved(released: Path, missing: str) -> str:
    """A learner's notebook with all solutions but one, as text."""
    notebook = json.loads(released.read_text(encoding="utf-8"))
    solutions = exercise_files.solutions(NUMBER)
    for cell in notebook["cells"]:
        number = notebook_files.stub_of(cell)
        if number is not None and number != missing:
            cell["source"] = f"# {number}\n{solutions[number]}"
    return json.dumps(notebook)


def grade(course: Path, hand_ins: int) -> float:
    """Seconds in which nbgrader grades a class in a new course's folder."""
    name = nbgrader.write(NUMBER, course)
    run("generate_assignment", name, course)
    released = course / "release" / name / f"{name}.ipynb"
    numbers = sorted(exercise_files.solutions(NUMBER))
    for i in range(hand_ins):
        folder = course / "submitted" / f"learner{i}" / name
        shutil.copytree(released.parent, folder)
        # one in two has all of them
        missing = numbers[i // 2 % len(numbers)] if i % 2 else ""
        text = solved(released, missing)
        (folder / released.name).write_text(text, encoding="utf-8")
    start_s = time.monotonic()
    run("autograde", name, course)
    return time.monotonic() - start_s


def run(command: str, assignment: str, course: Path) -> None:
    """Run one of nbgrader's commands in a course's folder."""
    programs = Path(sys.executable).parent
    # nbgrader calls alembic, which is installed beside it
    surroundings = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(
        [programs / "nbgrader", command, assignment],
        cwd=course,
        env=surroundings,
        check=True,
    )


def main(hand_ins: int = HAND_INS) -> int:
    """Print how long it took; 1 beyond the target."""
    print(sandbox.protection(unprotected=False))
    with tempfile.TemporaryDirectory(prefix="labkit-course-") as folder:
        took_s = grade(Path(folder), hand_ins)
    allowed_s = TARGET_S * hand_ins / HAND_INS
    load = os.getloadavg()[0]
    print(
        f"{hand_ins} hand-ins of four exercises: {format_seconds(took_s)},"
        f" {format_seconds(took_s / hand_ins)} each; at most"
        f" {format_seconds(allowed_s)}. {os.cpu_count()} cores, load {load:.1f}."
    )
    return int(took_s > allowed_s)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
