"""README, CONTRIBUTING, docs, the Makefile and continuous integration name the same
commands.
"""

import re
import shlex
import subprocess

from labkit.core.paths import ROOT
from tests.needs import ADDED_BY

MAINTAINING = ROOT / "docs" / "maintaining.md"
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def targets(shown=False):
    """The Makefile's targets; with `shown` those that `make` lists."""
    explained = "## " if shown else ""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(rf"(?m)^([a-z-]+):(?!=)[^#\n]*{explained}", makefile))


def called(path):
    """The targets that a file says or runs: `make extras appendix`, and
    lines of code.
    """
    before = r"(?m)(?:`|^|run: |PATH=\S+ |ALL=1 |step )"
    commands = rf"{before}make((?: [a-z][a-z-]*)+)(?=$|[^\w-])"
    names = re.findall(commands, path.read_text(encoding="utf-8"))
    return {target for words in names for target in words.split()}


def test_every_command_that_is_named_exists():
    code = [ROOT / ".ci" / "run", *(ROOT / ".github" / "workflows").iterdir()]
    for path in [*GUIDES, *code]:
        assert called(path) <= targets(), path.name


def test_every_command_that_make_lists_is_explained():
    explained = set().union(*map(called, GUIDES))
    assert targets(shown=True) - {"help"} <= explained


def test_make_lists_each_command_once():
    shown = subprocess.run(
        ["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True
    ).stdout
    listed = re.findall(r"(?m)^  make ([a-z-]+)", shown)
    assert set(listed) == targets(shown=True)
    assert len(listed) == len(set(listed))


def test_continuous_integration_starts_bare_and_leaves_nothing_out():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    before = script.partition("step env")[0]
    assert re.findall(r"install -qq -y (.*) >", before) == ["make python3-venv"]
    lines = [line for line in script.splitlines() if line.startswith("step ")]
    steps = [shlex.split(line)[1:] for line in lines]
    bare = ["env", "PATH=$bare_path", "make"]
    assert steps[:2] == [[*bare, "test"], [*bare, "check"]]
    assert {f"make {target}" for target in steps[2][1:]} == set(ADDED_BY)
    assert (
        "export LABKIT_REQUIRE_ALL=1" in script.partition("step make test-packages")[0]
    )
    assert [step[1] for step in steps[3:]] == [
        "test-packages",
        "test-all",
        "test-gpu-path",
    ]


def test_each_set_of_packages_is_described():
    lines = MAINTAINING.read_text(encoding="utf-8").splitlines()
    for command, names in ADDED_BY.items():
        (row,) = [line for line in lines if line.startswith(f"| `{command}` |")]
        listed = re.findall(r"[\w.+]+(?=,|\s\|$)", row.partition(":")[2])
        assert listed == list(names)
