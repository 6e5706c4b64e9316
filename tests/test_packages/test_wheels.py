"""Each package beside labkit has a wheel, with which its example and its command run,
and only what the wheel needs.
"""

import re
import subprocess
import zipfile

import pytest

from labkit.core.paths import INSTRUMENTS, PROJECTS, SOURCES
from scripts import release
from scripts.recipes import example
from tests.test_packages import only_needs
from trainplan import cluster

pytestmark = pytest.mark.slow  # builds wheels

PRINTED = {  # by the README's example
    "gpufacts": (r"(?m)^A100 SXM4 80GB: 153 FLOP a byte", r"(?m)^MFU 56%$"),
    "kerneltrace": (
        r"column_means: 64 blocks of 64 threads",
        r"\[race\] line 11: .*\(line 14\)",
        r"32 sectors a request, where 4 would do",
        r"column_means on A100 SXM4 80GB: ",
    ),
    "ranks": (
        r"\A4 ranks returned after .* s \[1\.5, 1\.5, 1\.5\]\n",
        r"(?m)^rank 3: communication all_reduce, [\d.]+ ms$",
        r"(?m)^rank 2 failed first, .*: ValueError: no data left\.$",
    ),
    "steptime": (r"own time a step", r"share of the time  without it"),
    "trainplan": (r"predicted 5,987 tokens/s a GPU", r"Rejected of"),
}
HEAVY = ["cupy", "matplotlib", "numba", "numpy", "torch"]


@pytest.fixture(scope="module", params=INSTRUMENTS)
def instrument(request, tmp_path_factory):
    """Name, wheel, and the Python of an environment with only what the wheel needs."""
    folder = tmp_path_factory.mktemp(request.param)
    wheel = only_needs.build(request.param, folder)
    return request.param, wheel, only_needs.environment(wheel, folder / "environment")


def run(python, *words, cwd, status=0):
    """What a command prints, in isolation from the repository and the user's own
    packages.
    """
    done = subprocess.run(
        [python, "-I", *words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_example_of_the_readme_runs_with_only_what_it_needs(instrument, tmp_path):
    name, _, python = instrument
    (tmp_path / "example.py").write_text(example(name), encoding="utf-8")
    out = run(python, "example.py", cwd=tmp_path)
    assert [
        pattern for pattern in PRINTED[name] if not re.search(pattern, out)
    ] == [], out


def test_neither_labkit_nor_another_instrument_is_there(instrument, tmp_path):
    name, _, python = instrument
    used = {name, *(["gpufacts"] if name in ("kerneltrace", "trainplan") else [])}
    others = ["labkit", "exercises", *sorted(set(INSTRUMENTS) - used)]
    asked = (
        f"import importlib.util as u; print([n for n in {others} if u.find_spec(n)])"
    )
    assert run(python, "-c", asked, cwd=tmp_path).strip() == "[]"


def test_the_wheel_has_every_module_the_tables_as_they_are_and_no_test(instrument):
    name, wheel, _ = instrument
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            path: archive.read(path)
            for path in archive.namelist()
            if ".dist-info/" not in path
        }
    modules = {path for path in packed if path.endswith(".py")}
    assert modules == {
        path.relative_to(PROJECTS / name).as_posix()
        for path in SOURCES[name].rglob("*.py")
    }
    # tables, and the parts of the planner's page
    folders = (f"{name}/data/", f"{name}/page/")
    files = {path for path in packed if path.startswith(folders)}
    assert all(packed[path] == (PROJECTS / name / path).read_bytes() for path in files)
    assert packed.keys() - modules - files == {f"{name}/py.typed"}


def test_the_wheel_has_its_license_and_nothing_of_others(instrument):
    name, wheel, _ = instrument
    version = release.project(name)["version"]
    with zipfile.ZipFile(wheel) as archive:
        assert release.wheel_faults(archive.namelist(), name, version) == []


def test_its_import_is_light(instrument, tmp_path):
    name, _, python = instrument
    asked = f"import sys, {name}; print([n for n in {HEAVY} if n in sys.modules])"
    assert run(python, "-c", asked, cwd=tmp_path).strip() == "[]"


def test_its_command_runs(instrument, tmp_path):
    name, _, python = instrument
    if name == "kerneltrace":
        (tmp_path / "mine.py").write_text(example(name).partition("trace = ")[0])
        launch = [
            "--grid=64",
            "--block=64",
            "--arg=float32:64x64",
            "--arg=zeros:float32:64",
            "--device=T4",
        ]
        # it has a race
        out = run(
            python, "-m", name, "mine.py::column_means", *launch, cwd=tmp_path, status=1
        )
        assert "[race] line 11: " in out
        assert "column_means on T4: " in out
    elif name == "trainplan":
        assert "MFU" in run(
            python, "-m", name, "llama3-70b", "--gpus", "512xH100", cwd=tmp_path
        )
        asked = (
            "from trainplan.cluster import published_steps;"
            " print(published_steps('megatron'))"
        )
        assert run(python, "-c", asked, cwd=tmp_path).strip() == str(
            cluster.published_steps("megatron")
        )
        run(python, "-m", "trainplan.page", cwd=tmp_path)
        page = (tmp_path / "planner.html").read_text(encoding="utf-8")
        assert "cdn.jsdelivr.net/pyodide/" in page


def test_the_picture_of_trainplan_s_readme_is_what_its_script_draws(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(
        r"(?s)```py\n(.*?)```",
        (PROJECTS / "trainplan" / "README.md").read_text(encoding="utf-8"),
    )
    exec(script, {})
    size = slice(16, 24)  # width and height in a PNG's header
    assert (tmp_path / "steps.png").read_bytes()[size] == (
        PROJECTS / "trainplan" / "steps.png"
    ).read_bytes()[size]


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_the_readme_says_what_a_newcomer_asks(name):
    text = (PROJECTS / name / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (.*)$", text)
    for heading in (
        "On your own code",
        "How data flows through it",
        "Limits",
        "How it was validated",
    ):
        assert heading in headings
    pictures = re.findall(r"!\[[^\]]{10,}\]\(([^)]+\.png)\)", text)
    # gpufacts shows what its command prints
    assert pictures or name == "gpufacts", "a picture, and words for who can't see it"
    for picture in pictures:
        assert (PROJECTS / name / picture).stat().st_size < 300_000
