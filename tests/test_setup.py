"""scripts/setup.py without a network, and the files that it and conda install from."""

import contextlib
import fcntl
import http.server
import importlib.metadata
import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from scripts import notebooks
from tests.selection import sampled

ROOT = Path(__file__).parents[1]

# Headers that nvidia-smi printed with these drivers.
SMI_550 = "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |"
SMI_580 = "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |"
SMI_470 = "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |"
SMI_NONE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
SMI_UNKNOWN = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: N/A      |"


@pytest.fixture
def setup(monkeypatch):
    """scripts/setup.py as a module."""
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / "scripts" / "setup.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "cuda", "extra"),
    [
        (SMI_550, (12, 4), "cuda12"),
        (SMI_580, (13, 0), "cuda13"),
        (SMI_580.replace("CUDA Version", "CUDA UMD Version"), (13, 0), "cuda13"),
        (SMI_470, (11, 4), "cpu"),
        (SMI_NONE, None, "cpu"),
        (SMI_UNKNOWN, None, "cpu"),
        ("", None, "cpu"),
    ],
)
def test_the_driver_decides_on_cupy(setup, text, cuda, extra):
    assert setup.cuda_of_smi(text) == cuda
    assert setup.choose(cuda, "Linux").extra == extra


@pytest.mark.parametrize(("code", "cuda"), [(12040, (12, 4)), (13000, (13, 0)), (11080, (11, 8)), (0, None)])
def test_the_driver_library_codes_its_version(setup, code, cuda):
    assert setup.cuda_of_code(code) == cuda


def test_an_old_driver_and_macos_are_told_what_they_get(setup):
    assert "update the driver" in setup.choose((11, 4), "Linux").why
    assert "no wheel" in setup.choose(None, "Darwin").why


@pytest.mark.parametrize(
    ("printed", "capability", "extra"),
    [
        ("7.0\n", (7, 0), "cuda12"),
        ("9.0\n6.0\n", (6, 0), "cuda12"),
        ("7.5\n", (7, 5), "cuda13"),
        ("[N/A]\n", None, "cuda13"),
    ],
)
def test_a_gpu_too_old_for_cuda_13_gets_cuda_12(setup, monkeypatch, tmp_path, printed, capability, extra):
    executable(tmp_path / "nvidia-smi", f'printf "{printed}"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert setup.oldest_capability() == capability
    choice = setup.choose((13, 0), "Linux", capability)
    assert choice.extra == extra
    assert extra == "cuda13" or f"compute capability is {capability[0]}.{capability[1]}" in choice.why


def test_a_failing_nvidia_smi_counts_as_no_driver(setup, monkeypatch, tmp_path):
    executable(tmp_path / "nvidia-smi", f'echo "{SMI_NONE}"; exit 9')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert setup.driver_cuda() is None
    executable(tmp_path / "nvidia-smi", f'echo "{SMI_550}"')
    assert setup.driver_cuda() == (12, 4)


def test_cuda_12_needs_a_torch_built_for_it(setup):
    assert setup.has_cuda12_torch("Available versions: 2.15.0, 2.13.0+cu126, 2.13.0", "2.13.0")
    assert not setup.has_cuda12_torch("Available versions: 2.15.0+cu126, 2.13.0+cpu, 2.13.0", "2.13.0")
    left = setup.without_cuda12_torch(setup.choose((12, 4), "Linux"))
    assert left.extra == "cpu"
    assert left.why.startswith("The NVIDIA driver supports CUDA 12.4, but the torch that pip finds here")
    assert "PIP_EXTRA_INDEX_URL" in left.why


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_another_python_is_refused_with_what_to_do(setup, version):
    with pytest.raises(setup.SetupFailed, match=rf"this is {version[0]}\.{version[1]}: `make PYTHON=python3\.12`"):
        setup.check_python(version)
    setup.check_python((3, 13, 1))


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("WARNING: Retrying after connection broken by 'NameResolutionError'\nERROR: No matching", "no connection"),
        (
            "Collecting x\nERROR: Cannot install x\nERROR: ResolutionImpossible: for help",
            '"ERROR: Cannot install x"',
        ),
        ("Segmentation fault\n\n", '"Segmentation fault"'),
        ("", '"nothing"'),
    ],
)
def test_a_failure_of_pip_ends_in_one_sentence(setup, output, sentence):
    assert sentence in setup.explain(output)
    assert "same command" in setup.explain(output)


def executable(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def project(setup, monkeypatch, tmp_path):
    """A project folder whose .venv has a stub for pip; `.pip(script)` says what the stub does."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    stub = 'echo "$@" >> calls\nexit 0'

    def make_venv(venv):
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        executable(venv / "bin" / "python", stub)

    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "make_venv", make_venv)
    monkeypatch.setattr(setup, "driver_cuda", lambda: None)
    return tmp_path


def calls(project):
    return (project / "calls").read_text().splitlines()


def test_it_installs_once_and_does_nothing_twice(setup, project, capsys):
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 1
    assert "-m pip install -c constraints.txt -e .[lab,test,cpu]" in calls(project)[0]
    said = capsys.readouterr().out
    assert "2 to 5 minutes" in said
    assert re.search(r"ready after \d+ s", said)
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 1
    assert "up to date" in capsys.readouterr().out


def test_a_change_of_the_pins_or_of_the_driver_installs_again(setup, project, monkeypatch):
    setup.set_up(project / ".venv", switch=False)
    with open(project / "constraints.txt", "a") as file:
        file.write("# changed\n")
    setup.set_up(project / ".venv", switch=False)
    monkeypatch.setattr(setup, "driver_cuda", lambda: (13, 0))
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 3
    assert "cuda13" in calls(project)[2]


def test_another_python_replaces_the_environment_only_when_asked_for(setup, project, monkeypatch):
    setup.set_up(project / ".venv", switch=False)
    monkeypatch.setattr(setup.sys, "version_info", (3, 12, 9) if sys.version_info[1] != 12 else (3, 13, 1))
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 1
    setup.set_up(project / ".venv", switch=True)
    assert len(calls(project)) == 2


def test_a_failed_or_interrupted_install_leaves_no_stamp(setup, project, monkeypatch):
    setup.set_up(project / ".venv", switch=False)
    (project / "constraints.txt").write_text("torch==2.13.0\n")
    executable(project / ".venv" / "bin" / "python", 'echo "ERROR: a strange one"; exit 1')
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


def test_a_damaged_stamp_counts_as_none(setup, project):
    setup.set_up(project / ".venv", switch=False)
    (project / ".venv" / "workbook-stamp.json").write_text('{"python": "3.12"')
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 2


def started(project):
    """A process that sets up `project`; its pip writes the file `begun` and ends once `go` is written to."""
    code = (
        "import pathlib, runpy, sys\n"
        "names = runpy.run_path(sys.argv[1])\n"
        "root = pathlib.Path(sys.argv[2])\n"
        "def make_venv(venv):\n"
        "    (venv / 'bin').mkdir(parents=True)\n"  # fails where another set-up is in it
        "    (venv / 'bin' / 'python').write_text('#!/bin/sh\\n: > begun; cat go; echo pip >> calls\\n')\n"
        "    (venv / 'bin' / 'python').chmod(0o755)\n"
        "space = names['set_up'].__globals__\n"
        "space.update(ROOT=root, make_venv=make_venv, driver_cuda=lambda: None)\n"
        "names['set_up'](root / '.venv', switch=False)\n"
    )
    command = [sys.executable, "-c", code, ROOT / "scripts" / "setup.py", project]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_of_two_set_ups_at_once_one_waits_and_finds_it_done(project):
    os.mkfifo(project / "go")
    processes = [started(project) for _ in range(2)]
    first_lines = [process.stdout.readline() for process in processes]
    (project / "go").write_text("")  # only now, when both have said something, pip ends
    said = {line: process.communicate(timeout=60)[0] for line, process in zip(first_lines, processes, strict=True)}
    waits, works = sorted(said)
    assert waits.startswith("Another set-up of this folder is running: waiting")
    assert said[waits].startswith(".venv is up to date")
    assert works.startswith("Setting up")
    assert ".venv is ready" in said[works]
    assert calls(project) == ["pip"]


def test_a_set_up_that_is_killed_holds_others_off_until_its_pip_has_ended(project):
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
    said = started(project).communicate(timeout=60)[0]
    assert "FileExistsError" in said, "a half-made .venv has to be made anew"


def test_what_was_taken_out_of_the_environment_is_installed_again(setup, project, monkeypatch):
    packages = project / ".venv" / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "numpy").mkdir()
    setup.set_up(project / ".venv", switch=False)
    (packages / "mine").mkdir()
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 1
    (packages / "numpy").rmdir()
    setup.set_up(project / ".venv", switch=False)
    assert len(calls(project)) == 2
    (project / ".venv" / "bin" / "python").unlink()
    assert setup.read_stamp(project / ".venv") is None


def demo_wheel():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("demo.py", "x = 1\n" * 5000)
        wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo-1.0.dist-info/RECORD", "")
    return content.getvalue()


LISTED = b'<html><body><a href="/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a></body></html>'
LOGIN = b"<html><body>Please log in to this network.</body></html>"


@pytest.fixture
def index(monkeypatch):
    """A package index on this machine: `index[".whl"]` and `index[""]` are what it answers for a wheel and a list."""
    answers = {"": (200, LISTED), ".whl": (200, demo_wheel())}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = answers[".whl" if self.path.endswith(".whl") else ""]
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        yield answers
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, ""),
        ({".whl": (200, demo_wheel()[:9000])}, "came damaged or cut short"),
        ({"": (500, b"")}, "gave no usable answer"),
        (None, "There is no connection to the package index"),
        *sampled(
            [
                ({".whl": (200, LOGIN)}, "came damaged or cut short"),
                ({".whl": (500, b"")}, "gave no usable answer"),
                ({"": (403, b"")}, "gave no usable answer"),
                ({"": (200, LOGIN)}, "gave no usable answer"),
            ],
            0,
        ),
    ],
)
def test_a_failing_index_ends_in_one_true_sentence(setup, index, monkeypatch, tmp_path, wrong, sentence):
    if wrong is None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the port "discard": nobody listens
        monkeypatch.setenv("PIP_RETRIES", "1")  # only then pip says why
    index.update(wrong or {})
    arguments = ["install", "--no-deps", "--target", str(tmp_path / "target"), "demo==1.0"]
    with pytest.raises(setup.SetupFailed, match=sentence) if sentence else contextlib.nullcontext():
        setup.run_pip(Path(sys.executable), arguments, tmp_path / "setup.log")
    assert (tmp_path / "target" / "demo.py").exists() is not bool(sentence)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied", "build"), "can't be written: it is read-only"),
        (OSError(30, "Read-only file system", "build"), "can't be written: it is read-only"),
        (OSError(28, "No space left on device"), "The disk is full"),
        (OSError(122, "Disk quota exceeded"), "The disk is full"),
        (OSError(5, "Input/output error"), "mend that, then run the same command"),
    ],
)
def test_a_folder_that_cannot_be_written_gets_its_own_advice(setup, project, monkeypatch, error, sentence):
    def refused(*args, **more):
        raise error

    monkeypatch.setattr(setup.Path, "mkdir", refused)
    with pytest.raises(SystemExit, match=sentence):
        setup.main()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Error: [Errno 30] Read-only file system: '/x/.venv'", "can't be written: it is read-only"),
        ("Error: [Errno 13] Permission denied: '/x/.venv'", "can't be written: it is read-only"),
        ("not created successfully because ensurepip is not available", "apt-get install python3-venv"),
        ("Error: [Errno 28] No space left on device", "The disk is full"),
        ("Error: Unable to create directory '/x/.venv'", "says \"Error: Unable to create directory '/x/.venv'\""),
    ],
)
def test_a_venv_that_cannot_be_made_is_told_why(setup, monkeypatch, tmp_path, said, sentence):
    executable(tmp_path / "python", f'echo "{said}"; exit 1')
    monkeypatch.setattr(setup.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(setup.SetupFailed, match=re.escape(sentence)):
        setup.make_venv(tmp_path / ".venv")


def test_no_venv_module_is_a_sentence(setup, monkeypatch, tmp_path):
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(setup.SetupFailed, match="apt-get install python3-venv"):
        setup.make_venv(tmp_path)


def test_large_downloads_are_shown_and_the_rest_is_not(setup):
    assert (
        setup.shown("  Downloading torch-2.13.0-cp312-none-linux.whl (526.6 MB)\n")
        == "  downloading torch, 526.6 MB ..."
    )
    assert setup.shown("Downloading tqdm-4.70.1-py3-none-any.whl (78 kB)") is None
    assert setup.shown("Installing collected packages: a, b, c") == "  installing 3 packages ..."
    assert setup.shown("Collecting torch==2.13.0") is None


def test_make_lists_its_targets_and_names_a_missing_python():
    listed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True).stdout
    assert {"make lab", "make test", "make check", "make bench", "make record"} <= set(re.findall(r"make \w+", listed))
    done = subprocess.run(["make", "-C", ROOT, "setup", "PYTHON=python3.77"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "python3.77 is missing or too old: install Python 3.11, 3.12 or 3.13" in done.stderr


# environment.yml, pyproject.toml and constraints.txt

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "cupy-cuda12x": "cupy-core",
    "cupy-cuda13x": "cupy-core",
}
# The tests, the appendix, the book and the graders are for a clone with make; conda-forge has no Amaranth and no FSRS:
# pip brings them with labkit.
WITH_MAKE = [text for extra in ("test", "appendix", "book", "teaching") for text in EXTRAS[extra]]
NOT_IN_CONDA = {canonicalize_name(Requirement(text).name) for text in (*WITH_MAKE, "amaranth", "fsrs")}


def requirements():
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    return [Requirement(text) for text in texts]


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert len({canonicalize_name(name) for name, _ in pairs}) == len(pairs)
    return {canonicalize_name(name): version for name, version in pairs}


def conda_ranges():
    """{conda name: range} and the pip block."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    named = [re.match(r"([a-z0-9-]+)(.*)", entry) for entry in entries if isinstance(entry, str)]
    (pip_block,) = [entry["pip"] for entry in entries if isinstance(entry, dict)]
    return {match[1]: match[2] for match in named}, pip_block


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_constraints_pin_each_dependency_inside_its_range(requirement):
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_the_pins_install_on_the_first_release_of_the_oldest_python(setup):
    first = "{}.{}.0".format(*setup.OLDEST)
    wanted = {}
    for name, version in pins().items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.distribution(name)
            if installed.version == version and installed.metadata.get("Requires-Python"):
                wanted[f"{name}=={version}"] = SpecifierSet(installed.metadata.get("Requires-Python"))
    assert wanted, "nothing that is pinned is installed here, so nothing was checked"
    assert [pin for pin, pythons in wanted.items() if not pythons.contains(first)] == []


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_conda_has_each_dependency_in_the_same_range(requirement):
    ranges, _ = conda_ranges()
    name = canonicalize_name(requirement.name)
    if name in NOT_IN_CONDA:
        assert name not in ranges
    else:
        assert SpecifierSet(ranges[CONDA_NAMES.get(name, name)]) == requirement.specifier


def test_conda_has_nothing_else_and_installs_labkit_itself():
    ranges, pip_block = conda_ranges()
    known = {CONDA_NAMES.get(canonicalize_name(r.name), canonicalize_name(r.name)) for r in requirements()}
    assert set(ranges) - known == {"python", "pip"}
    assert pip_block == ["-e ."]


def test_the_pythons_agree(setup):
    supported = SpecifierSet(PROJECT["requires-python"])
    for minor in range(8, 20):
        inside = setup.OLDEST <= (3, minor) <= setup.NEWEST
        assert supported.contains(f"3.{minor}.1") is inside
    assert supported.contains(conda_ranges()[0]["python"].removeprefix("=") + ".0")


def test_the_extras_that_setup_can_choose_exist(setup):
    drivers = [None, (11, 4), (12, 4), (13, 0)]
    assert {setup.choose(cuda, "Linux").extra for cuda in drivers} == set(EXTRAS) - {
        "appendix",
        "book",
        "lab",
        "teaching",
        "test",
    }


def test_binder_starts_with_the_smallest_sizes():
    command = [ROOT / "start", "sh", "-c", "echo $LABKIT_PROFILE"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ci\n"


def test_workflows_run_pinned_commits_and_colab_fetches_a_tag():
    used = [
        line.split("uses:")[1].strip()
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []
    cell = notebooks.COLAB.format(address="ADDRESS", version=notebooks.version())
    assert f"--branch v{notebooks.version()} ADDRESS" in cell
