"""kerneltrace without the repository around it: what its wheel holds is enough for README's example and the command."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from labkit.core.paths import DATA, ROOT

PACKAGE = ROOT / "kerneltrace"
PROJECT = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
EXAMPLE = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("installed")
    for name in SETUPTOOLS["packages"]:
        source = PACKAGE / SETUPTOOLS["package-dir"].get(name, name.partition(".")[2])
        target = folder / name.replace(".", "/")
        target.mkdir()
        files = [*source.glob("*.py"), *(source / file for file in SETUPTOOLS["package-data"].get(name, ()))]
        for file in files:
            shutil.copy(file, target)
    return folder


def run(installed, *command):
    """Run Python where only this kerneltrace is found, and nothing of the repository."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    code = "import sys, runpy; sys.modules['labkit'] = None; sys.argv = sys.argv[1:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__') if sys.argv[0].endswith('.py') else "
    code += "runpy.run_module(sys.argv[0], run_name='__main__')"
    full = [sys.executable, "-c", code, *map(str, command)]
    return subprocess.run(full, capture_output=True, text=True, env=environment, cwd=installed, check=False)


def test_the_example_of_the_readme_runs_and_finds_its_race(installed, tmp_path):
    assert len(EXAMPLE) == 1
    script = tmp_path / "example.py"
    script.write_text(EXAMPLE[0])
    done = run(installed, script)
    assert (done.returncode, done.stderr) == (0, "")
    assert "column_means: 64 blocks of 64 threads" in done.stdout
    assert "[race] line 11: " in done.stdout
    assert "(line 14)" in done.stdout
    assert "32 sectors a request, where 4 would do" in done.stdout
    assert "column_means on A100 SXM4 80GB: " in done.stdout


def test_the_command_runs(installed, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(EXAMPLE[0].partition("trace = ")[0])
    launch = ["--grid=64", "--block=64", "--arg=float32:64x64", "--arg=zeros:float32:64", "--device=T4"]
    done = run(installed, "kerneltrace", f"{script}::column_means", *launch)
    assert (done.returncode, done.stderr) == (1, "")
    assert "[race] line 11: " in done.stdout
    assert "column_means on T4: " in done.stdout


def test_its_tables_are_those_of_the_wheel(installed, tmp_path):
    script = tmp_path / "tables.py"
    script.write_text("from kerneltrace import data_table, devices\nprint(data_table.DATA, len(devices.devices()))\n")
    done = run(installed, script)
    rows = len((DATA / "gpus.csv").read_text(encoding="utf-8").splitlines()) - 1
    assert done.stdout.split() == [str(installed / "kerneltrace" / "data"), str(rows)]
    (installed / "kerneltrace" / "data" / "gpus.csv").unlink()
    assert "Restore it with `pip install --force-reinstall kerneltrace`." in run(installed, script).stderr


def test_the_wheel_has_every_folder_of_the_package():
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in PACKAGE.rglob("*.py")}
    assert set(SETUPTOOLS["packages"]) == {*folders, "kerneltrace.data"}


def test_importing_it_and_its_errors_loads_nothing_heavy():
    code = "import sys, kerneltrace, kerneltrace.errors; print({'numpy', 'numba', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"
