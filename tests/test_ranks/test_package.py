"""The package by itself: its README's example runs where no labkit is, and its project file names all that it has."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

from labkit.core.paths import ROOT

PACKAGE = ROOT / "ranks"


def test_the_readmes_example_runs_without_labkit(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "ranks", ignore=shutil.ignore_patterns("__pycache__"))
    section = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## On your own code")[2]
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```", section.partition("\n## ")[0])
    script = tmp_path / "mean.py"
    script.write_text(f"{example}\nimport sys\nassert not {{'labkit', 'matplotlib'}} & set(sys.modules)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert re.fullmatch(r"4 ranks returned after .* s \[1\.5, 1\.5, 1\.5\]", first)
    assert re.search(r"(?m)^rank 3: communication all_reduce, [\d.]+ ms$", done.stdout)
    assert re.search(r"(?m)^rank 2 failed first, .*: ValueError: no data left\.$", done.stdout)


def test_the_project_names_all_its_packages():
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {path.parent.relative_to(ROOT) for path in PACKAGE.rglob("__init__.py") if "build" not in path.parts}
    assert set(project["tool"]["setuptools"]["packages"]) == {".".join(folder.parts) for folder in folders}
