"""The benchmark of one user's memory: what a kernel holds, what it starts, and a server that doesn't start."""

import json
import subprocess
import sys

import nbformat
import pytest

from benchmarks import user_memory

MIB = 2**20
CHILD = f"import time; held = bytearray(b'x') * {400 * MIB}; print(flush=True); time.sleep(60)"
CODE = f"""
import subprocess, sys, time
gone = bytearray(b"x") * {200 * MIB}
del gone
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
time.sleep(1)
child.kill()
"""


@pytest.mark.slow  # starts a kernel
def test_the_peak_counts_what_is_gone_and_what_the_kernel_started(tmp_path, monkeypatch):
    path = tmp_path / "00_x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)]), path)
    monkeypatch.setattr(user_memory, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(user_memory, "server", lambda: MIB)
    own, together, server = (gib * 1024 for _, _, gib, _ in user_memory.rows())
    assert 200 < own < 400 < together
    assert server == 1


@pytest.mark.slow  # starts a kernel
def test_a_notebook_that_fails_has_no_figure(tmp_path):
    path = tmp_path / "00_x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(RuntimeError, match=r"00_x\.ipynb did not run to its end"):
        user_memory.kernel(path)


def test_a_server_that_ended_is_named_and_one_that_listens_is_found(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(RuntimeError, match="run `make lab` to see why"):
        user_memory._about(tmp_path / "jpserver.json", ended)
    file = tmp_path / "there.json"
    file.write_text(json.dumps({"url": "http://localhost:1/", "token": "t"}))
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as waits:
        assert user_memory._about(file, waits)["token"] == "t"
