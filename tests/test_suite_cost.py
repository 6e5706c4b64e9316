"""What the tests cost: all processes are counted, and the command's exit status is kept."""

import re
import subprocess
import sys

import pytest

from benchmarks import suite_cost
from labkit.core.paths import ROOT

pytestmark = pytest.mark.slow  # burns processor time

TENTH = 0.1  # of a second, to which a cost is rounded
BURN = "import os; sum(range(3 * 10**7)); print(sum(os.times()[:2]), flush=True)"


def noting(tmp_path, code):
    """What a new process printed whose command is Python code, and what it noted."""
    path = tmp_path / "cost.json"
    program = f"""
import sys
from pathlib import Path
from benchmarks import suite_cost
suite_cost._STEPS = 200_000
sys.exit(suite_cost.main([sys.executable, "-c", {code!r}], Path({str(path)!r})))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    return done, suite_cost.noted(path)


def test_a_command_is_counted_and_its_exit_status_kept(tmp_path):
    done, cost = noting(tmp_path, f"{BURN}; raise SystemExit(3)")
    assert done.returncode == 3
    assert cost.suite_s > 0.9 * float(done.stdout) - TENTH / 2
    assert cost.ratio == cost.suite_s / cost.piece_s


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to another process")
def test_what_outlives_the_process_that_started_it_is_counted(tmp_path):
    code = f"import os, subprocess, sys\npid = subprocess.Popen([sys.executable, '-c', {BURN!r}]).pid"
    done, cost = noting(tmp_path, f"{code}\nos.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\nos._exit(0)")
    assert cost.suite_s > 0.9 * float(done.stdout) - TENTH / 2


def test_only_a_whole_make_test_is_noted():
    def recipe(*words):
        return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    whole = re.search(r"benchmarks\.suite_cost .*-m pytest (.*)", recipe("test"))
    assert whole[1].endswith(" tests")
    for words in (["test", "NB=04"], ["quick"], ["test-all"]):
        assert "suite_cost" not in recipe(*words)


def test_without_a_run_there_is_no_cost(tmp_path):
    assert suite_cost.noted(tmp_path / "cost.json") is None
