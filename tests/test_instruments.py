"""Each instrument beside labkit builds a wheel of its own, and its README's example runs with only what that needs."""

import re
import subprocess
import zipfile

import pytest

from labkit.core.paths import INSTRUMENTS, ROOT
from tests import only_needs

pytestmark = pytest.mark.slow  # builds wheels


@pytest.fixture(scope="module", params=INSTRUMENTS)
def instrument(request, tmp_path_factory):
    """Name, wheel, and the Python of an environment with only what the wheel needs."""
    folder = tmp_path_factory.mktemp(request.param)
    wheel = only_needs.build(request.param, folder)
    return request.param, wheel, only_needs.environment(wheel, folder / "environment")


def run(python, *words, cwd, check=True):
    """What a command prints, in isolation from the repository and the user's own packages."""
    done = subprocess.run([python, "-I", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_of_the_readme_runs_with_only_what_it_needs(instrument, tmp_path):
    name, _, python = instrument
    section = (
        (ROOT / name / "README.md").read_text(encoding="utf-8").split("\n## On your own code\n")[1].split("\n## ")[0]
    )
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    assert run(python, "example.py", cwd=tmp_path).strip()


def test_neither_labkit_nor_another_instrument_is_there(instrument, tmp_path):
    name, _, python = instrument
    others = ["labkit", "exercises", *(other for other in INSTRUMENTS if other != name)]
    asked = f"import importlib.util as u; print([n for n in {others} if u.find_spec(n)])"
    assert run(python, "-c", asked, cwd=tmp_path).strip() == "[]"


def test_the_wheel_has_every_module_and_no_test(instrument):
    name, wheel, _ = instrument
    with zipfile.ZipFile(wheel) as archive:
        packed = {path for path in archive.namelist() if path.endswith(".py")}
    assert packed == {path.relative_to(ROOT).as_posix() for path in (ROOT / name).rglob("*.py")}


def test_its_import_is_light(instrument, tmp_path):
    name, _, python = instrument
    heavy = ["torch", "numba", "matplotlib", "cupy", "pandas"]
    asked = f"import sys, {name}, {name}.errors; print([n for n in {heavy} if n in sys.modules])"
    assert run(python, "-c", asked, cwd=tmp_path).strip() == "[]"


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_the_readme_says_what_a_newcomer_asks(name):
    text = (ROOT / name / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (.*)$", text)
    for heading in ("On your own code", "How data flows through it", "Limits", "How it was validated"):
        assert heading in headings
    pictures = re.findall(r"!\[[^\]]{10,}\]\(([^)]+\.png)\)", text)
    assert pictures, "a picture, with words for those who don't see it"
    for picture in pictures:
        assert (ROOT / name / picture).stat().st_size < 300_000
