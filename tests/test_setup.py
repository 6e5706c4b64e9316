"""scripts/setup.py without a network, and what the Makefile and workflows start."""

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import notebooks

ROOT = Path(__file__).parents[1]

# What nvidia-smi printed, and what follows from it.
SAID_BY_SMI = {
    "| Driver Version: 550.54.15   CUDA Version: 12.4   |": ((12, 4), "cuda12"),
    "| Driver Version: 580.65.06   CUDA UMD Version: 13.0 |": ((13, 0), "cuda13"),
    "| Driver Version: 470.57.02   CUDA Version: 11.4   |": ((11, 4), "cpu"),
    "NVIDIA-SMI has failed because it couldn't communicate": (None, "cpu"),
}


@pytest.fixture
def setup(monkeypatch):
    """scripts/setup.py as a module, on a command line without options."""
    monkeypatch.setattr(sys, "argv", ["setup.py"])
    spec = importlib.util.spec_from_file_location(
        "setup_script", ROOT / "scripts" / "setup.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def executable(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_driver_decides_on_cupy(setup):
    for text, (cuda, extra) in SAID_BY_SMI.items():
        assert setup.cuda_of_smi(text) == cuda
        assert setup.choose(cuda, "Linux").extra == extra
    # of the driver's library, without nvidia-smi
    assert setup.cuda_of_code(12040) == (12, 4)
    assert setup.cuda_of_code(0) is None
    assert "update the driver" in setup.choose((11, 4), "Linux").why
    assert "no wheel" in setup.choose(None, "Darwin").why


def test_a_gpu_too_old_for_cuda_13_gets_cuda_12(setup, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    extras = {}
    for printed in ("9.0\n6.0", "7.5", "[N/A]"):
        executable(tmp_path / "nvidia-smi", f'printf "{printed}\n"')
        capability = setup.oldest_capability()
        extras[capability] = setup.choose((13, 0), "Linux", capability).extra
    assert extras == {(6, 0): "cuda12", (7, 5): "cuda13", None: "cuda13"}


def test_cuda_12_needs_a_torch_built_for_it(setup):
    assert setup.has_cuda12_torch("2.15.0, 2.13.0+cu126, 2.13.0", "2.13.0")
    assert not setup.has_cuda12_torch("2.15.0+cu126, 2.13.0+cpu", "2.13.0")
    left = setup.without_cuda12_torch(setup.choose((12, 4), "Linux"))
    assert left.extra == "cpu"
    assert "PIP_EXTRA_INDEX_URL" in left.why


def test_another_python_is_refused_with_what_to_do(setup):
    for version in ((3, 10), (3, 15, 0)):
        have = ".".join(map(str, version[:2]))
        with pytest.raises(setup.SetupFailed, match=rf"this is {have}: .*`make lab "):
            setup.check_python(version)
    setup.check_python((3, 14, 1))


def test_make_takes_the_first_python_that_the_workbook_runs_on(tmp_path):
    """One that is too old or too new is passed over; a named one is taken."""
    for name in ("python3", "python3.13"):
        executable(tmp_path / name, "exit 1")
    executable(tmp_path / "python3.12", "exit 0")
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["make", "--dry-run", "setup"]
    shown = [
        subprocess.run(
            [*command, *named],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for named in ([], ["PYTHON=/where/python3.11"])
    ]
    assert "\npython3.12 scripts/setup.py" in shown[0]
    assert "\n/where/python3.11 scripts/setup.py --switch" in shown[1]


def test_a_mac_without_pytorch_is_told_where_to_go(setup):
    with pytest.raises(setup.SetupFailed, match=r"Intel processor.*Binder or Colab"):
        setup.check_system("Darwin", "x86_64")
    setup.check_system("Darwin", "arm64")


def test_conda_and_binder_get_no_question_about_news(monkeypatch, tmp_path):
    """Without what setup writes into .venv; Binder's home is the clone itself."""
    from jupyterlab_server.config import get_static_page_config

    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert "JUPYTER_CONFIG_PATH: .jupyter " in text
    monkeypatch.setattr("jupyter_core.paths.ENV_CONFIG_PATH", [])
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(ROOT)
    announcements = "@jupyterlab/apputils-extension:announcements"
    assert announcements not in get_static_page_config(level="all").get(
        "disabledExtensions", {}
    )
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", ".jupyter")
    shown = get_static_page_config(level="all")
    assert shown["disabledExtensions"] == {announcements: True}


# What pip 26 printed where a network answered wrongly, and what the system prints.
SAID_BY_PIP = {
    "ERROR: Wheel 'demo' located at /tmp/demo-1.0-py3-none-any.whl is invalid.": (
        "damaged or cut short"
    ),
    "ERROR: Could not install packages due to an OSError: HTTPConnectionPool(host='x', port=1): Max retries exceeded (Caused by ResponseError('too many 500 error responses'))": (
        "no usable answer"
    ),
    "ERROR: Could not find a version that satisfies demo==1.0 (from versions: none)": (
        "no usable answer"
    ),
    "WARNING: Retrying after connection broken by 'NewConnectionError('[Errno 111] Connection refused')'\nERROR: Could not find a version that satisfies demo==1.0 (from versions: none)": (
        "no connection"
    ),
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.": (
        "isn't the file whose hash"
    ),
    "OSError: [Errno 28] No space left on device": "The disk is full",
    "Collecting x\nERROR: Cannot install x\nERROR: ResolutionImpossible": (
        '"ERROR: Cannot install x"'
    ),
    "": '"nothing"',
}


def test_a_failure_of_pip_ends_in_one_sentence(setup):
    for said, sentence in SAID_BY_PIP.items():
        assert sentence in setup.explain(said)
        assert "same command" in setup.explain(said)


# Of a stand-in for pip: what is installed with hashes, before the rest.
HASHED = 'case "$*" in *--require-hashes*) echo "$@" >> hashed; exit;; esac;'


@pytest.fixture
def project(setup, monkeypatch, tmp_path):
    """A project folder; its .venv has a stand-in for pip that notes its calls."""
    (tmp_path / ".jupyter" / "labconfig").mkdir(parents=True)
    quiet = ".jupyter/labconfig/page_config.json"
    for name in (*setup.INPUTS, quiet):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    def make_venv(venv):
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        executable(venv / "bin" / "python", f'{HASHED} echo "$@" >> calls')

    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "make_venv", make_venv)
    monkeypatch.setattr(setup, "driver_cuda", lambda: None)
    return tmp_path


def calls(project):
    return (project / "calls").read_text().splitlines()


def test_it_installs_again_only_after_a_change(setup, project, monkeypatch, capsys):
    venv = project / ".venv"
    installed = venv / "lib" / "python3.12" / "site-packages" / "numpy"
    installed.mkdir(parents=True)

    def count_after_set_up(*, switch=False):
        setup.set_up(venv, switch=switch)
        return len(calls(project))

    assert count_after_set_up() == 1
    assert "-m pip install -c constraints.txt" in calls(project)[0]
    assert "-e .[lab,test,cpu]" in calls(project)[0]
    requirements = project / "build" / "requirements.txt"
    options = f"-m pip install --require-hashes --no-deps -r {requirements}\n"
    assert (project / "hashed").read_text() == options
    assert count_after_set_up() == 1
    assert "up to date" in capsys.readouterr().out

    with open(project / "constraints.txt", "a") as file:
        file.write("# changed\n")
    assert count_after_set_up() == 2
    installed.rmdir()  # taken out of the environment
    assert count_after_set_up() == 3
    (venv / "workbook-stamp.json").write_text('{"python": "3.12"')  # damaged
    assert count_after_set_up() == 4
    monkeypatch.setattr(setup, "driver_cuda", lambda: (13, 0))
    assert count_after_set_up() == 5
    assert "cuda13" in calls(project)[4]

    other_python = (3, 12, 9) if sys.version_info[1] != 12 else (3, 13, 1)
    monkeypatch.setattr(setup.sys, "version_info", other_python)
    assert count_after_set_up() == 5, "another Python only where it is asked for"
    assert count_after_set_up(switch=True) == 6


def test_a_driver_decides_what_of_the_lock_is_installed(setup):
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    kept = {extra: setup.locked(lock, extra) for extra in ("cpu", "cuda12", "cuda13")}
    installed = {
        extra: re.findall(r"(?m)^(cupy-\w+|nvidia-ml-py|numba)==", text)
        for extra, text in kept.items()
    }
    assert installed == {
        "cpu": ["cupy-cuda13x", "numba"],
        "cuda12": ["cupy-cuda12x", "numba", "nvidia-ml-py"],
        "cuda13": ["cupy-cuda13x", "numba", "nvidia-ml-py"],
    }
    # an entry goes with its hashes
    lines = kept["cpu"].replace("\\\n", "").splitlines()
    assert all(line.startswith("#") or "--hash=sha256:" in line for line in lines)


def test_a_failed_or_interrupted_install_leaves_no_stamp(setup, project, monkeypatch):
    setup.set_up(project / ".venv", switch=False)
    (project / "constraints.txt").write_text("torch==2.13.0\n")
    executable(
        project / ".venv" / "bin" / "python", 'echo "ERROR: a strange one"; exit 1'
    )
    with pytest.raises(setup.SetupFailed, match='"ERROR: a strange one"'):
        setup.set_up(project / ".venv", switch=False)
    assert setup.read_stamp(project / ".venv") is None
    assert "a strange one" in (project / "build" / "setup.log").read_text()

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "run_pip", interrupted)
    with pytest.raises(SystemExit, match=r"Interrupted before \.venv was complete"):
        setup.main()
    assert setup.read_stamp(project / ".venv") is None


SET_UP = """
import pathlib, runpy, sys
names = runpy.run_path(sys.argv[1])
root = pathlib.Path(sys.argv[2])

def make_venv(venv):
    (venv / "bin").mkdir(parents=True)  # fails where another setup is in it
    hashed = 'case "$*" in *--require-hashes*) exit;; esac;'
    pip = f"#!/bin/sh\\n{hashed} : > begun; cat go; echo pip >> calls\\n"
    (venv / "bin" / "python").write_text(pip)
    (venv / "bin" / "python").chmod(0o755)

space = names["set_up"].__globals__
space.update(ROOT=root, make_venv=make_venv, driver_cuda=lambda: None)
names["set_up"](root / ".venv", switch=False)
"""


def started(project):
    """A process that sets up `project`; its pip ends once `go` is written to."""
    command = [sys.executable, "-c", SET_UP, ROOT / "scripts" / "setup.py", project]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.slow
def test_of_two_set_ups_at_once_one_waits_and_finds_it_complete(project):
    os.mkfifo(project / "go")
    processes = [started(project) for _ in range(2)]
    first_lines = [process.stdout.readline() for process in processes]
    (project / "go").write_text("")  # only now, when both have said something, pip ends
    rest = [process.communicate(timeout=60)[0] for process in processes]
    (waiting, waiting_rest), (working, working_rest) = sorted(
        zip(first_lines, rest, strict=True)
    )
    assert waiting.startswith("Another setup of this folder is running: waiting")
    assert waiting_rest.startswith(".venv is up to date")
    assert working.startswith("Setting up")
    assert ".venv is ready" in working_rest
    assert calls(project) == ["pip"]


@pytest.mark.slow
def test_a_killed_set_up_holds_others_off_until_its_pip_has_ended(project):
    os.mkfifo(project / "go")
    with started(project) as killed:
        while killed.poll() is None and not (project / "begun").exists():
            time.sleep(0.01)
        killed.kill()
    with open(project / "build" / "setup.lock", "a") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (project / "go").write_text("")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert calls(project) == ["pip"]


def test_what_cannot_be_written_is_told_with_what_to_do(setup, project, monkeypatch):
    def refused(*args, **more):
        raise PermissionError(13, "Permission denied", "build")

    monkeypatch.setattr(setup.Path, "mkdir", refused)
    with pytest.raises(SystemExit, match="can't be written"):
        setup.main()


def test_a_venv_that_cannot_be_made_is_told_why(setup, monkeypatch, tmp_path):
    monkeypatch.setattr(setup.sys, "executable", str(tmp_path / "python"))
    for said, words in {
        "ensurepip is not available": "apt-get install python3-venv",
        "Error: strange": 'says "Error: strange"',
    }.items():
        executable(tmp_path / "python", f'echo "{said}"; exit 1')
        with pytest.raises(setup.SetupFailed, match=words):
            setup.make_venv(tmp_path / ".venv")


def test_a_disk_that_is_full_before_pip_is_installed_is_told(
    setup, monkeypatch, tmp_path
):
    said = "Command '['python', '-m', 'ensurepip']' returned non-zero exit status 1."
    executable(tmp_path / "python", f'echo "{said}"; exit 1')
    monkeypatch.setattr(setup.sys, "executable", str(tmp_path / "python"))
    full = SimpleNamespace(free=0)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda _: full)
    with pytest.raises(setup.SetupFailed, match="The disk is full"):
        setup.make_venv(tmp_path / ".venv")


@pytest.mark.parametrize("target", ["setup", "update"])
def test_make_names_a_missing_python(target):
    make = ["make", "-C", ROOT, target, "PYTHON=python3.77"]
    refused = subprocess.run(make, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "python3.77 is missing or too old: install Python 3.11" in refused.stderr


def test_an_unknown_option_sets_nothing_up(setup, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["setup.py", "--help"])
    monkeypatch.setattr(setup, "set_up", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(SystemExit, match=r"usage: setup\.py"):
        setup.main()


def test_workflows_run_pinned_commits_and_colab_fetches_a_tag():
    workflows = (ROOT / ".github" / "workflows").glob("*.yml")
    used = re.findall(
        r"uses: *(.*)", "".join(path.read_text(encoding="utf-8") for path in workflows)
    )
    pinned = r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+"
    assert used
    assert [action for action in used if not re.fullmatch(pinned, action)] == []
    cell = notebooks.COLAB.format(address="ADDRESS", version=notebooks.version())
    assert f"--branch v{notebooks.version()} ADDRESS" in cell
