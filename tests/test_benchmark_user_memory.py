"""The benchmark of one user's memory: the peak of a kernel, alone and with what it
starts.
"""

import nbformat
import pytest

from benchmarks import user_memory

pytestmark = [pytest.mark.slow, pytest.mark.complete]  # starts a kernel

MIB = 2**20
CHILD = f"held = bytearray(b'x') * {400 * MIB}; print(flush=True); input()"
CODE = f"""
import subprocess, sys, time
gone = bytearray(b"x") * {200 * MIB}
del gone
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], **pipes)
child.stdout.readline()
time.sleep(1)  # it is looked at five times a second
child.communicate(b"end")
"""


def test_the_peak_counts_what_is_gone_and_what_the_kernel_started(
    tmp_path, monkeypatch
):
    path = tmp_path / "00_x.ipynb"
    cells = [nbformat.v4.new_code_cell(CODE)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    monkeypatch.setattr(user_memory, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(user_memory, "server", lambda: MIB)
    own, together, server = (gib * 1024 for _, _, gib, _ in user_memory.rows())
    assert 200 < own < 400 < together
    assert server == 1
