"""Which tests run, what the summary says of the others, and which programs a bare PATH
lacks.
"""

import os
import shutil

import pytest

from scripts import programs
from tests import needs, selection

pytest_plugins = "pytester"

INI = """
[pytest]
markers =
    complete: left out
    needs: what it needs
    nightly: left out but at night
    slow: takes long
"""
CELLS = """
import pytest

class Cell(pytest.Item):
    def runtest(self):
        assert self.name != "Cell 1" or not self.path.with_suffix(".broken").exists()

class Notebook(pytest.File):
    def collect(self):
        return [Cell.from_parent(self, name=f"Cell {n}") for n in range(3)]

def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".ipynb":
        return Notebook.from_parent(parent, path=file_path)
"""


@pytest.fixture
def run(pytester):
    """Run pytest with the plugin in a folder of its own."""
    pytester.makeini(INI)
    return lambda *options: pytester.runpytest_inprocess(
        "-p", "tests.selection", "-p", "no:cacheprovider", *options
    )


def test_a_skip_for_what_is_absent_is_told_with_the_command_that_adds_it():
    skipped = {
        needs.reason(["g++", "ip"]): 3,
        needs.reason(["chromium"]): 2,
        "needs a CUDA GPU": 5,
    }
    assert selection.not_tested(
        skipped, {"06": "make programs", "16": "make programs"}, 1234
    ) == [
        "5 tests need `make programs`: chromium, g++, ip",
        "notebooks that ran without what `make programs` adds: 06 16",
        "5 tests skipped: needs a CUDA GPU",
        "1,234 tests more: `make test-all`, `make nightly`",
    ]
    assert selection.not_tested({}, {}, 0) == []


def test_a_sample_is_always_the_same_and_keeps_names_values_and_marks():
    cases = [
        pytest.param(n, n + 1, id=f"case {n}", marks=pytest.mark.slow)
        for n in range(50)
    ]
    params = selection.sampled(cases, 7)
    assert params == selection.sampled(cases, 7)
    assert [(param.id, param.values) for param in params] == [
        (f"case {n}", (n, n + 1)) for n in range(50)
    ]
    marks = [[mark.name for mark in param.marks] for param in params]
    assert marks.count(["slow"]) == 7
    assert marks.count(["slow", "nightly"]) == 43
    assert [param.values for param in selection.sampled(["a", ("b", 2)], 5)] == [
        ("a",),
        ("b", 2),
    ]


TIERS = """
import pytest
from tests.selection import sampled

@pytest.mark.parametrize("n", sampled(list(range(9)), 4))
def test_n(n):
    pass

@pytest.mark.complete
def test_complete():
    pass
"""


def test_what_is_left_out_is_counted_and_later_tiers_run_it(pytester, run):
    pytester.makepyfile(TIERS)
    some = run()
    some.assert_outcomes(passed=4, deselected=6)
    some.stdout.fnmatch_lines(["6 tests more: `make test-all`, `make nightly`"])
    run("--complete").assert_outcomes(passed=5, deselected=5)
    every = run("--nightly")
    every.assert_outcomes(passed=10)
    every.stdout.no_fnmatch_line("*make nightly*")


def test_a_long_run_names_the_files_that_take_most_of_it(pytester, run, monkeypatch):
    pytester.makepyfile(
        test_a="def test_it(): pass\n",
        test_b="import time\ndef test_it(): time.sleep(0.6)\n",
    )
    run().stdout.no_fnmatch_line("*with the most seconds*")
    monkeypatch.setattr(selection, "LONG_S", 0.1)
    run().stdout.fnmatch_lines(
        [
            "*files with the most seconds, of 1*",
            "     1 s test_b.py",
            "     0 s test_a.py",
        ]
    )


def test_a_missing_package_skips_with_a_sentence_and_fails_where_everything_is_required(
    pytester, run, monkeypatch
):
    monkeypatch.setitem(needs.ADDED_BY, "make extras", ("no_such_package",))
    monkeypatch.delenv("LABKIT_REQUIRE_ALL", raising=False)
    pytester.makepyfile(
        "from tests.needs import needs\n@needs('no_such_package')\ndef test_it():"
        " pass\n"
    )
    bare = run()
    bare.assert_outcomes(skipped=1)
    bare.stdout.fnmatch_lines(["1 test need* `make extras`: no_such_package"])
    monkeypatch.setenv("LABKIT_REQUIRE_ALL", "1")
    required = run()
    required.assert_outcomes(errors=1)
    required.stdout.fnmatch_lines(["*needs no_such_package: `make extras` adds it*"])


def test_quick_imports_neither_slow_folders_nor_files_that_say_so(pytester, run):
    (pytester.path / "test_ranks").mkdir()
    (pytester.path / "test_ranks" / "test_ranks.py").write_text("raise ImportError\n")
    (pytester.path / "test_slow.py").write_text(
        "import pytest\npytestmark = pytest.mark.slow  # why\nassert False\n"
    )
    (pytester.path / "test_both.py").write_text(
        "import pytest\n@pytest.mark.slow\ndef test_slow(): pass\ndef test_quick():"
        " pass\n"
    )
    run("-m", "not slow").assert_outcomes(passed=1, deselected=1)
    run().assert_outcomes(errors=2)


def test_what_nobody_adds_can_not_be_needed():
    with pytest.raises(KeyError, match="numpy"):
        needs.needs("numpy")


def test_what_passed_is_left_out_and_a_notebook_runs_as_a_whole(pytester, run):
    pytester.makeconftest(CELLS)
    for name in ("97_passes.ipynb", "98_fails.ipynb", "98_fails.broken"):
        (pytester.path / name).touch()
    pytester.makepyfile("def test_one(): pass\ndef test_two(): pass\n")
    run().assert_outcomes(passed=2 + 3 + 2, failed=1)
    (pytester.path / "98_fails.broken").unlink()
    again = run("--tested", "build/tested.txt", "-rA")
    again.assert_outcomes(passed=3, deselected=5)
    again.stdout.fnmatch_lines([f"PASSED 98_fails.ipynb::Cell {n}" for n in range(3)])
    run("--tested", "build/tested.txt").assert_outcomes(deselected=8)


def test_a_bare_path_lacks_compilers_browsers_and_ip_and_keeps_the_rest(
    tmp_path, monkeypatch
):
    there = tmp_path / "there"
    bare = tmp_path / "bare"
    there.mkdir()
    kept = ["make", "sh", "git", "grep"]
    hidden = ["g++", "gcc-12", "cc", "x86_64-linux-gnu-gcc", "chromium", "ip", "tc"]
    for name in [*kept, *hidden, "python3.11", "pip"]:
        (there / name).write_text("#!/bin/sh\n")
        (there / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(there))
    programs.main(["hide", str(bare)])
    assert sorted(path.name for path in bare.iterdir()) == sorted([*kept, "python3"])
    monkeypatch.setenv("PATH", str(bare))
    assert [programs.path_of(name) for name in programs.PACKAGES] == [None] * len(
        programs.PACKAGES
    )
    assert shutil.which("make") == str(bare / "make")
    assert os.access(bare / "python3", os.X_OK)
