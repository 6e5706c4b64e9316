"""The wheel of trainplan alone: all modules, the tables that it reads, and the README's example without any package."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from labkit.core.paths import DATA, ROOT
from trainplan import cluster

pytestmark = pytest.mark.slow
PACKAGE = ROOT / "trainplan"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The unpacked wheel, built from a copy."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, folder / "trainplan", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    shutil.copytree(DATA, folder / "data")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "./trainplan", "-w", "dist"]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    zipfile.ZipFile(next((folder / "dist").glob("trainplan-*.whl"))).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_it_holds_all_modules_the_tables_and_nothing_else(wheel):
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    tables = ("matmul_efficiency", "planner_steps", "zero_bubble_throughput_small", "zero_bubble_times")
    data = {"trainplan/data/gpus.csv", *(f"trainplan/data/published/{name}.csv" for name in tables)}
    files = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    assert {name for name in files if ".dist-info/" not in name} == modules | data


def alone(wheel, *arguments):
    """What a Python without site-packages prints that finds the wheel's files."""
    command = [sys.executable, "-S", "-W", "error", *arguments]
    run = subprocess.run(command, cwd=wheel, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_readme_s_example_runs_without_any_package(wheel):
    [example] = re.findall(r"(?s)```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"))
    out = alone(wheel, "-c", example)
    assert "predicted 5,956 tokens/s a GPU" in out
    assert "Rejected of" in out


def test_it_finds_its_tables_without_the_repository(wheel):
    code = "from trainplan.cluster import published_steps; from trainplan.schedule import published_errors\n"
    out = alone(wheel, "-c", f"{code}print(published_steps('megatron')); print(published_errors())")
    assert out.splitlines()[0] == str(cluster.published_steps("megatron"))
    assert "Zero bubble, 24 runs" in out
    assert "matplotlib" in alone(wheel, "-m", "trainplan", "--help")


def test_the_readme_s_picture_is_what_its_script_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [script] = re.findall(r"(?s)```py\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"))
    exec(script, {})
    size = slice(16, 24)  # width and height in a PNG's header
    assert (tmp_path / "steps.png").read_bytes()[size] == (PACKAGE / "steps.png").read_bytes()[size]
