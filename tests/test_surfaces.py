"""Where the workbook runs besides Linux with make: a hub's image, Binder, Windows.

None of them is here: what can be shown without them is shown.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import PureWindowsPath

import pytest

from labkit.core.paths import ROOT
from teaching import handout

pytestmark = pytest.mark.slow  # copies the workbook, and starts Python anew

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTION = re.compile(r"(FROM|RUN|COPY|USER|WORKDIR|CMD) (\S.*)", re.DOTALL)


def instructions():
    """[(name, arguments)] of the image's file."""
    code = re.sub(r"(?m)^#.*\n", "", DOCKERFILE).replace("\\\n", " ")
    lines = [line for line in code.splitlines() if line.strip()]
    matches = [INSTRUCTION.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [match.groups() for match in matches]


def left_out_of_the_image(path):
    """Whether Dockerfile.dockerignore leaves a path out: its last pattern that fits."""
    patterns = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    left_out = False
    for pattern in patterns.split():
        name = pattern.removeprefix("!").removeprefix("**/").removesuffix("/**")
        parts = path.split("/") if pattern.lstrip("!").startswith("**/") else [path]
        parts = parts if "/**" not in pattern else [path.split("/")[0]]
        if any(fnmatch.fnmatch(part, name) for part in parts):
            left_out = not pattern.startswith("!")
    return left_out


def test_what_the_image_copies_and_runs_is_there_in_a_hand_out_too(tmp_path):
    copied = [text.split() for name, text in instructions() if name == "COPY"]
    assert copied == [
        ["docker/requirements.txt", "/opt/"],
        [".", "/opt/workbook"],
    ]
    needed = [
        "docker/requirements.txt",
        "pyproject.toml",
        "README.md",  # pyproject.toml names it, and LICENSE
        "LICENSE",
        "scripts/setup.py",
        ".jupyter/labconfig/page_config.json",
        "notebooks/00_start_here.ipynb",
    ]
    for path in needed:
        assert (ROOT / path).exists()
        assert not left_out_of_the_image(path), path
        assert path.split("/")[0] in handout.KEPT
    for path in (".venv", ".git", "build", "labkit/__pycache__"):
        assert left_out_of_the_image(path), path

    (command,) = [text for _, text in instructions() if "quieten" in text]
    code = re.search(r'python -c "(.*)"', command)[1]
    here = code.replace("sys.prefix", repr(str(tmp_path)))
    subprocess.run([sys.executable, "-c", here], cwd=ROOT, check=True)
    assert list(tmp_path.rglob("page_config.json"))
    assert list(tmp_path.rglob("ipython_kernel_config.py"))


def test_the_image_ends_as_a_user_in_a_folder_of_its_own():
    names = [name for name, _ in instructions()]
    last = dict(instructions())
    made = re.search(r"useradd --create-home --uid 1000 (\w+)", DOCKERFILE)[1]
    assert last["USER"] == made
    assert last["WORKDIR"] == f"/home/{made}"
    assert "RUN" not in names[names.index("USER") :]
    assert '"jupyterhub-singleuser"' in last["CMD"]


def test_binders_start_runs_as_a_user_in_a_folder_of_its_own(tmp_path):
    shutil.copy(ROOT / "start", tmp_path / "start")
    folder = tmp_path / "home"
    folder.mkdir()
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    other_user = {"user": 65534} if os.geteuid() == 0 else {}
    completed = subprocess.run(
        ["/bin/bash", "start", "printenv", "LABKIT_PROFILE"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        **other_user,
    )
    assert (completed.stdout, completed.stderr) == ("ci\n", "")
    assert (ROOT / "start").stat().st_mode & 0o111, "Binder starts it as a program"


def repository():
    """The paths of the repository's files, new ones too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs a clone with git")
    return [path for path in listed.stdout.splitlines() if (ROOT / path).exists()]


def test_windows_can_have_every_file_of_the_repository():
    files = repository()
    assert [path for path in files if (ROOT / path).is_symlink()] == []
    assert len({path.casefold() for path in files}) == len(files)
    for path in files:
        parts = PureWindowsPath(path).parts
        assert not PureWindowsPath(path).is_absolute()
        assert not re.search(r'[<>:"|?*\\]', path), path
        assert not any(part.endswith((".", " ")) for part in parts), path
        stems = {part.partition(".")[0].casefold() for part in parts}
        assert not stems & RESERVED, path
        assert len(path) < 180, "with the clone's own folder, 260 characters"


RESERVED = {"aux", "con", "nul", "prn", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}  # fmt: skip

# What is read as text, in one line a thing: it mustn't change with the ends of lines.
READ = """
import hashlib
import gpufacts
from exercises.misconceptions import misconceptions
from labkit.core import results
from labkit.core.data_table import read_table
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from trainplan import csv_tables

def show(name, *things):
    print(name, hashlib.sha256(repr(things).encode()).hexdigest()[:12])

show("devices", gpufacts.devices())
show("misconceptions", misconceptions())
for path in sorted([*ROOT.glob("data/*.csv"), *ROOT.glob("exercises/*.csv")]):
    show(path.name, read_table(path, dict))
for path in notebook_files.paths():
    number = path.name[:2]
    show(path.name, notebook_files.read(path)["cells"])
    show(number, exercise_files.solutions(number))
for number in exercise_files.numbers():
    show(number, exercise_files.hints(number))
for path in sorted(ROOT.glob("packages/trainplan/trainplan/data/*.csv")):
    show(path.name, csv_tables.rows(path.stem))
for path in sorted(ROOT.glob("data/recorded/*.jsonl")):
    show(path.name, *results.read(path))
"""
TEXTS = {".css", ".csv", ".cu", ".html", ".in", ".ipynb", ".js", ".json", ".jsonl", ".md", ".py", ".toml"}  # fmt: skip
COPIED = ("data", "exercises", "labkit", "notebooks", "packages/gpufacts/gpufacts", "packages/kerneltrace/kerneltrace", "packages/trainplan/trainplan", "pyproject.toml")  # fmt: skip


def read_in(root):
    """What READ prints of the workbook in a folder."""
    packages = [root / folder for folder in COPIED if folder.startswith("packages")]
    found_first = [root, *(package.parent for package in packages)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, found_first))}
    environment["PYTHONHASHSEED"] = "0"  # sets are shown in one order
    environment.pop("LABKIT_NOTEBOOKS", None)
    code = f"{READ}\nassert str(ROOT) == {str(root)!r}, ROOT\n"
    completed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return completed.stdout.splitlines()


def test_files_that_windows_ended_the_lines_of_read_the_same(tmp_path):
    """As an editor there saves them, or git with core.autocrlf."""
    for path in repository():
        if path.startswith(COPIED):
            content = (ROOT / path).read_bytes()
            if (ROOT / path).suffix in TEXTS:
                content = content.replace(b"\n", b"\r\n")
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
    here = read_in(ROOT)
    assert len(here) > 100
    assert [line for line in read_in(tmp_path) if line not in here] == []


# What Python has on Unix alone; torch and the like are loaded first.
WITHOUT_UNIX = """
import importlib, os, pkgutil, signal, sys
import IPython, ipywidgets, matplotlib.pyplot, multiprocessing.util, numba, psutil
import filelock, torch.distributed, torch.utils.data
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty")
OF_OS = ("fork", "geteuid", "getloadavg", "getuid", "killpg", "sched_getaffinity", "waitid")
OF_SIGNAL = ("SIGALRM", "SIGHUP", "SIGKILL", "setitimer")
sys.modules.update(dict.fromkeys(MODULES))
for owner, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names:
        vars(owner).pop(name, None)
sys.platform = "win32"
PACKAGES = ("gpufacts", "kerneltrace", "labkit", "ranks", "steptime", "trainplan")
for package in map(importlib.import_module, PACKAGES):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if "__main__" not in module.name and ".frameworks" not in module.name:
            importlib.import_module(module.name)
"""


@pytest.mark.complete
def test_every_module_is_imported_without_what_only_unix_has():
    command = [sys.executable, "-c", WITHOUT_UNIX]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr[-2000:]
