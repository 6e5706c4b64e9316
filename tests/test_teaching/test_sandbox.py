"""What a program in a sandbox sees, what it may take, and what grading says where there
is no sandbox.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.errors import LabError
from labkit.core.paths import ROOT
from teaching import judging, sandbox
from tests.needs import needs

pytestmark = pytest.mark.slow  # starts processes

SEEN = """
import json, os, pathlib, socket, subprocess
def refused(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "allowed"
def connect(): socket.create_connection(("192.0.2.1", 80), timeout=1)
def fork_many():
    children = [subprocess.Popen(["sleep", "5"]) for _ in range(2000)]
def large(): open("large", "wb").write(bytes(2**29))
print(json.dumps({
    "clone": sorted(os.listdir(ROOT)),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "variables": sorted(os.environ),
    "write": {p: refused(lambda: pathlib.Path(p, "x").write_text(""))
              for p in ("/", "/usr", "/dev", "/workbook", ROOT)},
    "network": refused(connect),
    "forks": refused(fork_many),
    "large": refused(large),
}))
"""


@needs("bwrap")
def test_a_program_sees_its_folder_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "42")
    (tmp_path / "secret").write_text("42")
    code = f"ROOT = {str(ROOT)!r}\n{SEEN}"
    command = sandbox.command([sys.executable, "-c", code], {})
    completed = subprocess.run(
        command,
        env=sandbox.environment(inside=True),
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(completed.stdout)
    environment = Path(sys.prefix)
    if environment.is_relative_to(ROOT):
        assert seen["clone"] == [environment.relative_to(ROOT).parts[0]]
    else:
        assert seen["clone"] == []
    assert seen["processes"] <= 3
    assert "SECRET" not in seen["variables"]
    assert "allowed" not in seen["write"].values()
    assert seen["network"] != "allowed"
    assert seen["forks"] == "BlockingIOError"
    assert seen["large"] == "OSError"


def test_the_first_line_says_what_grading_cannot_prevent(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    sandbox.refusal.cache_clear()
    try:
        with pytest.raises(
            LabError, match=r"bubblewrap isn't installed.*--unprotected"
        ):
            sandbox.protection(unprotected=False)
        words = sandbox.protection(unprotected=True)
        assert words.startswith("Graded unprotected: ")
        assert "gradebook" in words
    finally:
        sandbox.refusal.cache_clear()


def test_a_refusal_is_the_first_that_graders_print(monkeypatch, capsys):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    sandbox.refusal.cache_clear()
    try:
        with pytest.raises(LabError):
            judging._begin_grading(unprotected=False)
    finally:
        sandbox.refusal.cache_clear()
    assert capsys.readouterr().err.startswith("Nothing is graded: bubblewrap isn't")


def test_a_machine_that_refuses_namespaces_is_told(monkeypatch, tmp_path):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sandbox.refusal.cache_clear()
    try:
        with pytest.raises(LabError, match=r"\(bwrap: No permissions\).*containers"):
            sandbox.protection(unprotected=False)
    finally:
        sandbox.refusal.cache_clear()
