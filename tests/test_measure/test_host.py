import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit.measure import host

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
model name\t: something else
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd bf16
CPU implementer\t: 0x41
CPU part\t: 0xd0c
"""


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("150000 100000", 1.5),
        ("max 100000", None),
        ("", None),
    ],
)
def test_a_quota_is_read_in_cores(text, cores):
    assert host.parse_cpu_max(text) == cores


@pytest.mark.parametrize(
    ("quota", "allowed", "cores"),
    [(0.5, 8, 1), (None, 8, 8), (3.9, 8, 3), (16.0, 8, 8)],
)
def test_whole_cores_round_down_but_never_to_none(quota, allowed, cores, monkeypatch):
    monkeypatch.setattr(host, "cpu_quota", lambda root, own: quota)
    monkeypatch.setattr(
        host.psutil.Process,
        "cpu_affinity",
        lambda self: list(range(allowed)),
        raising=False,
    )
    assert host.usable_cores() == cores


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_2_takes_the_tightest_level(tmp_path):
    write(tmp_path / "pod" / "app", cpu__max="400000 100000", memory__max="max")
    write(tmp_path / "pod", cpu__max="200000 100000", memory__max="268435456")
    own = "0::/pod/app\n"
    assert host.cpu_quota(tmp_path, own) == 2.0
    assert host.memory_bytes(tmp_path, own) == 2**28


def test_no_limit_is_none(tmp_path):
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert host.cpu_quota(tmp_path, "1:cpu:/\n") is None
    assert host.cpu_quota(tmp_path, "") is None
    assert host.memory_bytes(tmp_path, "0::/\n") == psutil.virtual_memory().total
    assert host.memory_bytes(tmp_path, "") == psutil.virtual_memory().total


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have neither /proc nor lscpu"
)
@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [(XEON, "Intel Xeon"), (GRAVITON, "Neoverse-N1"), ("", "Neoverse-N1")],
    ids=["x86", "Arm", "none"],
)
def test_the_name_is_that_in_cpuinfo_or_what_lscpu_prints(
    tmp_path, monkeypatch, cpuinfo, name
):
    lscpu = tmp_path / "lscpu"
    lscpu.write_text(
        "#!/bin/sh\necho 'Vendor ID:  ARM'\necho '  Model name:  Neoverse-N1'\n",
        encoding="utf-8",
    )
    lscpu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(
        host, "_text", lambda path: cpuinfo if path == Path("/proc/cpuinfo") else ""
    )
    assert host.cpu_model() == name
    if name != "Intel Xeon":
        lscpu.unlink()
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(host.platform, "processor", lambda: "")
        assert host.cpu_model() == "unknown CPU"


@pytest.mark.parametrize(
    ("name", "tidy"),
    [
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel Xeon"),
        ("AMD Ryzen 7 5800X 8-Core Processor", "AMD Ryzen 7 5800X"),
        ("12th Gen Intel(R) Core(TM) i7-1260P", "12th Gen Intel Core i7-1260P"),
        ("Processor", "unknown CPU"),
    ],
)
def test_names_are_tidied(name, tidy):
    assert host.tidy_model(name) == tidy


def test_the_driver_is_read_from_its_file(tmp_path):
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release"
        " Build  (dvs)\n"
    )
    assert host.nvidia_driver(file) == "570.86.15"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54  Tue Feb 20 01:13:37"
        " UTC 2024\n"
    )
    assert host.nvidia_driver(file) == "550.54"
    assert host.nvidia_driver(tmp_path / "none") is None


def test_a_cgroup_that_was_stopped_says_for_how_long_and_what_it_used(tmp_path):
    write(tmp_path, **{"cpu.stat": "usage_usec 9000000\nthrottled_usec 1000000\n"})
    write(
        tmp_path / "a" / "b",
        **{"cpu.stat": "usage_usec 500000\nnr_throttled 3\nthrottled_usec 2500000\n"},
    )
    assert host.throttled(tmp_path, "0::/a/b") == (2.5, 0.5)
    assert host.throttled(tmp_path, "0::/") == (1.0, 9.0)
    assert host.throttled(tmp_path / "none", "0::/") == (0.0, 0.0)
    # without a limit, Linux has no such line
    write(tmp_path / "c", **{"cpu.stat": "usage_usec 7\nuser_usec 5\n"})
    assert host.throttled(tmp_path / "c", "0::/") == (0.0, 0.0)


def test_clocks_and_power_are_those_that_nvidia_smi_prints(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho '1065 MHz, 1590 MHz, 69.80 W, 70.00 W, 71'\n", encoding="utf-8"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert host.gpu_state() == {
        "clocks.sm": "1065 MHz",
        "clocks.max.sm": "1590 MHz",
        "power.draw": "69.80 W",
        "power.limit": "70.00 W",
        "temperature.gpu": "71",
    }
    assert host.power(gpu=True)["power limit"] == "70.00 W"
    assert "power limit" not in host.power(gpu=False)
    smi.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    assert host.gpu_state() == {}
    smi.write_text(
        "#!/bin/sh\n[ $3 = --id=1 ] && echo '7 MHz, 8 MHz, 9 W, 10 W, 11'\n",
        encoding="utf-8",
    )
    assert host.gpu_state() == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert host.gpu_state()["clocks.sm"] == "7 MHz"


def test_a_hung_nvidia_smi_says_nothing(monkeypatch):
    def hang(*_, timeout, **__):
        raise host.subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(host.subprocess, "run", hang)
    assert host.gpu_state() == {}


@pytest.mark.parametrize(("plugged", "supply"), [(True, "mains"), (False, "battery")])
def test_a_laptop_runs_on_mains_or_on_its_battery(monkeypatch, plugged, supply):
    monkeypatch.setattr(
        host.psutil,
        "sensors_battery",
        lambda: SimpleNamespace(power_plugged=plugged),
        raising=False,
    )
    assert host.power(gpu=False) == {"supply": supply}
    monkeypatch.setattr(host.psutil, "sensors_battery", lambda: None, raising=False)
    assert host.power(gpu=False) == {}
