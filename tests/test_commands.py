"""README, CONTRIBUTING, the Makefile and continuous integration name the same commands, and promise what is run."""

import re
import shlex

import pytest

from labkit.core.paths import ROOT
from tests.needs import ADDED_BY

PROSE = ["README.md", "CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
CODE = [".ci/run", *(str(path.relative_to(ROOT)) for path in (ROOT / ".github/workflows").iterdir())]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def targets(shown=False):
    """The Makefile's targets; with `shown` those that `make` lists."""
    return set(re.findall(rf"(?m)^([a-z-]+):(?!=)[^#\n]*{'## ' if shown else ''}", text("Makefile")))


def called(name):
    """The targets that a file says or runs: `make extras appendix`, and lines of code that begin with make."""
    found = re.findall(r"(?m)(?:`|^|run: |PATH=\S+ |ALL=1 |step )make((?: [a-z][a-z-]*)+)(?=$|[^\w-])", text(name))
    return {target for words in found for target in words.split()}


@pytest.mark.parametrize("name", [*PROSE, *CODE])
def test_every_command_that_is_named_exists(name):
    assert called(name) <= targets()


def test_every_command_that_make_lists_is_explained():
    assert targets(shown=True) - {"help"} <= called("README.md") | called("CONTRIBUTING.md")


def steps():
    """The commands that .ci/run times, in their order."""
    return [
        shlex.split(line.removeprefix("step ")) for line in text(".ci/run").splitlines() if line.startswith("step ")
    ]


def test_continuous_integration_first_runs_what_a_newcomer_is_promised_and_nothing_is_installed_before():
    bare = ["env", "PATH=$bare_path", "make"]
    assert steps()[:2] == [[*bare, "test"], [*bare, "check"]]
    assert {"lab", "test"} <= called("README.md")
    before = text(".ci/run").partition("step env")[0]
    assert re.findall(r"install -qq -y (.*) >", before) == ["make python3-venv"]


def test_then_it_adds_every_set_of_packages_and_runs_what_was_left_out():
    added = next(step for step in steps() if "extras" in step)
    assert {f"make {target}" for target in added[1:]} == set(ADDED_BY)
    assert steps()[-1] == ["env", "LABKIT_REQUIRE_ALL=1", "make", "test-all", "TESTED=build/tested.txt"]
    assert steps().index(added) < len(steps()) - 1


@pytest.mark.parametrize("command", ADDED_BY)
def test_each_set_of_packages_is_described(command):
    (row,) = [line for line in text("CONTRIBUTING.md").splitlines() if line.startswith(f"| `{command}` |")]
    assert re.findall(r"[\w.+]+(?=,|\s\|$)", row.partition(":")[2]) == list(ADDED_BY[command])
