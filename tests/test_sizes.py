"""Limits of size hold: one rises as planned before, or as others fall by as much, in every version of limits.toml."""

import itertools
import shutil
import subprocess

import pytest

from labkit.core.paths import PACKAGES, ROOT
from scripts import size

TABLE = size.LIMITS.relative_to(ROOT).as_posix()
FIRST = {"core": 100, "rest": 200}
PLANS_BEFORE_2026 = 3  # versions before the plan had room for PTX, experiments and the clusters of 2026


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def versions(root, table="limits"):
    """A table of each commit that has changed it since the limits were set anew, oldest first, and as it stands."""
    commits = git(root, "log", "--first-parent", "--reverse", "--diff-filter=AM", "--format=%H", "--", TABLE).split()
    texts = [git(root, "show", f"{commit}:{TABLE}") for commit in commits]
    texts.append((root / TABLE).read_text(encoding="utf-8"))
    return [size.read(text, table) for text in texts if f"[{table}]" in text]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="without git there is no earlier version of the limits")
def test_a_limit_rises_only_as_others_fall_by_as_much():
    if git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("a shallow clone has no earlier version of the limits: git fetch --unshallow")
    plans = versions(ROOT, "plan")
    assert size.unpaid_rises(versions(ROOT), plans) == []
    assert size.unpaid_rises(plans[PLANS_BEFORE_2026:]) == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="without git there is no earlier version of the limits")
def test_a_limit_that_is_missed_is_missed_by_less_in_each_version():
    for before, after in itertools.pairwise(versions(ROOT, "over")):
        assert all(lines <= before.get(name, 0) for name, lines in after.items())


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_every_commit_is_judged_and_what_is_not_committed_yet(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / TABLE).parent.mkdir()
    for limit in (100, 110, 100, None, 120):  # None: the file is taken away
        (tmp_path / TABLE).unlink() if limit is None else (tmp_path / TABLE).write_text(f"[limits]\ncore = {limit}\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "Set a limit")
    (tmp_path / TABLE).write_text("[limits]\ncore = 125\n")
    assert [one["core"] for one in versions(tmp_path)] == [100, 110, 100, 120, 125]


@pytest.mark.parametrize(
    "later",
    [
        [],
        [{"core": 90, "rest": 200}],
        [{"core": 110, "rest": 190}],
        [{"core": 100, "rest": 150, "new": 50}],
        [{"core": 100, "rest": 150}, {"core": 100, "rest": 150}],
    ],
)
def test_a_limit_may_fall_or_be_handed_on(later):
    assert size.unpaid_rises([FIRST, *later]) == []


def test_a_part_grows_to_what_was_planned_before_and_no_further():
    plan = {"core": 150, "rest": 100}
    assert size.unpaid_rises([FIRST, {"core": 150, "rest": 200}], [plan, plan]) == []
    (sentence,) = size.unpaid_rises([FIRST, {"core": 151, "rest": 200}], [plan, plan])
    assert sentence.startswith("core: 1 lines more")
    (sentence,) = size.unpaid_rises([FIRST, {"core": 150, "rest": 200}], [FIRST, plan])
    assert sentence.startswith("core: 50 lines more")


@pytest.mark.parametrize(
    ("later", "name"),
    [
        ([{"core": 101, "rest": 200}], "core"),
        ([{"core": 110, "rest": 191}], "core"),
        ([FIRST | {"new": 1}], "new"),
        ([{"core": 100, "rest": 150}, FIRST], "rest"),
        ([{"core": 101, "rest": 200}, FIRST], "core"),
    ],
)
def test_a_rise_that_nothing_pays_for_is_named_even_if_a_later_version_takes_it_back(later, name):
    (said,) = size.unpaid_rises([FIRST, *later])
    assert said.startswith(f"{name}: ")


def test_every_limit_is_held_and_no_line_counts_twice():
    found = size.sizes()
    over = {name: found[name] - limit for name, limit in size.limits().items() if found[name] > limit}
    assert {name for name, lines in over.items() if lines > size.missed().get(name, 0)} == set()
    packages = [ROOT / name for name in (*PACKAGES, "teaching")]
    all_lines = size.lines(*packages) + size.lines(size.EXERCISES, without="wrong_")
    assert sum(found[name] for name in size.limits()) == all_lines
