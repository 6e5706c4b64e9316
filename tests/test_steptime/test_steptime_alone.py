"""steptime away from the repository: its README's example runs with nothing beside it but its own folder."""

import re
import shutil
import subprocess
import sys

import pytest

from labkit.core.paths import ROOT

OTHERS = ("labkit", "kerneltrace", "ranks", "trainplan", "exercises")
BLOCKED = f"import sys\nsys.modules |= dict.fromkeys({OTHERS})\n"


@pytest.mark.slow
def test_the_readmes_example_runs_alone(tmp_path):
    shutil.copytree(ROOT / "steptime", tmp_path / "steptime", ignore=shutil.ignore_patterns("__pycache__"))
    section = (ROOT / "steptime" / "README.md").read_text(encoding="utf-8").split("## On your own code")[1]
    (block,) = re.findall(r"```python\n(.+?)```", section.split("\n## ")[0], re.DOTALL)
    (tmp_path / "example.py").write_text(BLOCKED + block)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "own time a step" in done.stdout
    assert "share of the time  without it" in done.stdout


def test_importing_it_and_its_errors_is_light():
    code = "import sys, steptime, steptime.errors; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
