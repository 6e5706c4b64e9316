"""What `make doctor` says of a machine, and what it says to do."""

import sys

import pytest

from scripts import doctor
from scripts.doctor import Check, Row, examine

NAMES = [
    "Python",
    "cores",
    "memory",
    "driver",
    "GPUs",
    "torch",
    "numba",
    "CuPy",
    "GPU compilers",
    "C++ compiler",
]
NAMES += ["gloo", "disk", "measuring in turn"]


def fails(name):
    raise RuntimeError("it is\nbroken")


def is_there(name):
    return Row(name, "ok", "there")


def is_absent(name):
    return Row(name, "missing", "not there", "nothing")


@pytest.mark.slow
@pytest.mark.complete  # all probes, for real
def test_the_cpu_path_works_here_and_every_row_says_what_is_there():
    report = examine()
    assert [row.name for row in report.rows] == NAMES
    assert all(row.seen for row in report.rows)
    assert all(row.todo for row in report.rows if row.state != "ok")
    assert report.works, str(report)


def test_a_probe_that_raises_is_a_row():
    row = Check("x", fails).run()
    assert (row.state, row.seen) == ("problem", "RuntimeError: it is broken")
    assert "make lab" in row.todo
    text = str(examine([Check("C++ compiler", is_absent)]))
    assert "C++ compiler  missing  not there  nothing" in text


@pytest.mark.parametrize(
    ("checks", "works"),
    [
        (
            [
                Check("a", is_there, needed=True),
                Check("b", is_absent),
                Check("c", fails),
            ],
            True,
        ),
        ([Check("a", fails, needed=True), Check("b", is_there)], False),
        ([Check("a", is_absent, needed=True)], False),
    ],
)
def test_only_what_is_needed_decides(checks, works):
    report = examine(checks)
    assert report.works is works
    assert ("can't run here yet" in str(report)) is not works


def test_without_a_compiler_it_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    row = doctor.compiler("C++ compiler")
    assert row.state == "missing"
    assert "torch.compile" in row.todo


def test_the_driver_is_read_from_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 580.65.06; echo 580.65.06\n")
    smi.chmod(0o755)
    assert doctor.driver("driver") == Row("driver", "ok", "NVIDIA 580.65.06")
    smi.write_text("#!/bin/sh\necho couldn\\'t communicate with the driver; exit 9\n")
    row = doctor.driver("driver")
    assert row.state == "problem"
    assert "couldn't communicate" in row.seen


def test_what_is_short_is_told_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 2**29)
    assert doctor.memory("memory").state == "problem"
    monkeypatch.setenv("LABKIT_TURNS", str(tmp_path))
    assert doctor.turns_to_measure("turns").state == "ok"
    monkeypatch.setenv("LABKIT_TURNS", str(tmp_path / "missing"))
    assert "LABKIT_TURNS" in doctor.turns_to_measure("turns").todo
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "not" / "yet"))
    assert doctor.disk("disk").state == "ok"
    monkeypatch.setattr(doctor, "DISK_NEEDED_BYTES", 2**70)
    assert "LABKIT_HOME" in doctor.disk("disk").todo


def test_the_command_exits_with_the_verdict(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", (Check("a", is_there, needed=True),))
    assert doctor.main() == 0
    monkeypatch.setattr(doctor, "CHECKS", (Check("a", fails, needed=True),))
    assert doctor.main() == 1
    assert "RuntimeError: it is broken" in capsys.readouterr().out


@pytest.mark.slow
def test_a_missing_gpu_compiler_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    row = doctor.gpu_compilers("GPU compilers")
    assert row.state == "missing"
    assert row.seen == "NVRTC, CUDA's compiler for C++, is missing"
    assert "pip install 'numba-cuda[cu1" in row.todo or sys.platform == "darwin"
