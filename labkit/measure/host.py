"""What the operating system reports: processor, and the cores and memory that this
process may use.

Texts and folders are arguments, so that tests can pass samples from other machines.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

# Of nvidia-smi --help-query-gpu.
GPU_STATE = (
    "clocks.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)
# nvml.h: HwSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown
_REASONS = "clocks_event_reasons.active"
_SLOWED = 0xC8
CGROUPS = Path("/sys/fs/cgroup")
# Instruction sets that raise a matmul's peak: vector width, and bfloat16 in hardware.
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def usable_cores() -> int:
    """Logical cores that affinity and the cgroup's quota leave to this process; at
    least 1.

    A quota is rounded down, because more threads use it up early in each period (100
    ms) and are then all stopped until the next; a matmul waits for its slowest thread.
    Source: Linux, Documentation/scheduler/sched-bwc.rst.
    """
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # not on macOS
        cores = len(process.cpu_affinity())
    else:
        cores = psutil.cpu_count() or 1
    quota = cpu_quota(CGROUPS, own_cgroup())
    if quota is not None:
        cores = min(cores, int(quota))
    return max(1, cores)


def own_cgroup() -> str:
    """The text of /proc/self/cgroup; empty if there is none."""
    return _text(Path("/proc/self/cgroup"))


def cpu_quota(root: Path, own: str) -> float | None:
    """The lowest CPU quota of this process's cgroups, in cores; None without a limit.

    `root` is where cgroups are mounted, `own` the text of /proc/self/cgroup; versions 1
    and 2 are read.
    """
    folders = list(_cgroup_folders(root, own))
    texts = [_text(folder / "cpu.max") for folder in folders]
    for folder in folders:
        quota = _text(folder / "cpu.cfs_quota_us")
        period = _text(folder / "cpu.cfs_period_us")
        texts.append(f"{quota} {period}")
    quotas = (parse_cpu_max(text) for text in texts)
    return min((quota for quota in quotas if quota is not None), default=None)


def parse_cpu_max(text: str) -> float | None:
    """Cores from quota and period in µs: '150000 100000' -> 1.5. None for 'max' or
    version 1's -1.
    """
    match = re.fullmatch(r"(\d+) (\d+)", text)
    if match is None:
        return None
    quota, period = map(int, match.groups())
    return quota / period if quota and period else None


def throttled(root: Path, own: str) -> tuple[float, float]:
    """Seconds for which a CPU limit stopped this process's cgroup, and the CPU seconds
    that the cgroup used.

    Of the cgroups above it, the one that was stopped longest. (0, 0) where none is
    limited; version 2 only. Source: Linux, Documentation/admin-guide/cgroup-v2.rst,
    "cpu.stat".
    """
    stalls = [(0.0, 0.0)]
    for folder in _cgroup_folders(root, own):
        stat = dict(
            line.split(maxsplit=1)
            for line in _text(folder / "cpu.stat").splitlines()
            if " " in line
        )
        numbers = [stat.get(name, "") for name in ("throttled_usec", "usage_usec")]
        if all(number.isdigit() for number in numbers):
            stalls.append((int(numbers[0]) * 1e-6, int(numbers[1]) * 1e-6))
    return max(stalls)


def memory_bytes(root: Path = CGROUPS, own: str | None = None) -> int:
    """Bytes of main memory that this process may use: those installed, or its cgroups'
    lowest limit if that is lower.

    `root` is where cgroups are mounted, `own` the text of /proc/self/cgroup; versions 1
    and 2 are read.
    """
    limits = [int(psutil.virtual_memory().total)]
    for folder in _cgroup_folders(root, own_cgroup() if own is None else own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name)
            if text.isdigit() and int(text) > 0:
                limits.append(int(text))
    return min(limits)


def _cgroup_folders(root: Path, own: str, controller: str = "cpu") -> Iterator[Path]:
    """Folders whose limits apply: the process's own cgroup and its parents, up to the
    mount point.
    """
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            mounts = (root, root / "unified")
        elif controller in controllers.split(","):  # version 1
            mounts = (root / controller, root / controllers)
        else:
            continue
        for mount in mounts:
            own_folder = mount / path.lstrip("/")
            # A container often sees its own cgroup at the mount, while `path` is the
            # host's: so read the mount too.
            for folder in (own_folder, *own_folder.parents):
                if folder.is_relative_to(mount):
                    yield folder


def cpu_model() -> str:
    """The processor's name without marks and filler, 'AMD EPYC 7B13'; 'unknown CPU' if
    the system doesn't say.
    """
    if sys.platform == "win32":
        import winreg

        with winreg.OpenKey(
            winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        ) as key:
            model = str(winreg.QueryValueEx(key, "ProcessorNameString")[0])
    elif sys.platform == "darwin":
        model = printed("sysctl", "-n", "machdep.cpu.brand_string")
    else:
        # /proc/cpuinfo has no names of Arm's processors: lscpu knows them by their
        # numbers
        model = _fields(_text(Path("/proc/cpuinfo"))).get("model name", "")
        model = model or _fields(printed("lscpu")).get("Model name", "")
    return tidy_model(model or platform.processor())


def cpu_flags(cpuinfo: str | None = None) -> tuple[str, ...]:
    """The FLAGS in the text of an x86 processor's /proc/cpuinfo, by default this
    machine's; empty elsewhere.
    """
    cpuinfo = _text(Path("/proc/cpuinfo")) if cpuinfo is None else cpuinfo
    named = set(_fields(cpuinfo).get("flags", "").split())
    return tuple(flag for flag in FLAGS if flag in named)


def tidy_model(name: str) -> str:
    """Strip trademarks, clock and filler from a processor's name: 'Intel(R) Xeon(R) CPU
    @ 2.20GHz' -> 'Intel Xeon'.
    """
    name = re.sub(
        r"\((R|TM|C)\)|@.*|\b\d+-Core\b|\b(Processor|CPU)\b|\bwith Radeon.*",
        " ",
        name,
        flags=re.I,
    )
    return " ".join(name.split()) or "unknown CPU"


def last_level_cache_bytes(
    folder: Path = Path("/sys/devices/system/cpu/cpu0/cache"),
) -> int | None:
    """Bytes of core 0's largest cache; None if the system doesn't say. A virtual
    machine may report the host's.
    """
    texts = [_text(path) for path in folder.glob("index*/size")]
    sizes = [
        int(text.removesuffix("K")) * 1024
        for text in texts
        if re.fullmatch(r"\d+K", text)
    ]
    return max(sizes, default=None)


def nvidia_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver, such as '570.86.15'; None without a driver, or if
    the system doesn't say.
    """
    match = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)?)\b", _text(path))
    return match[1] if match else None


def printed(name: str, *arguments: str) -> str:
    """What a program prints, in English; empty where it is missing, fails or hangs."""
    command = [shutil.which(name) or "", *arguments]
    english = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, env=english
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_state(names: Sequence[str] = GPU_STATE) -> dict[str, str]:
    """Of the first GPU in use, by nvidia-smi's `names`: clocks, power, temperature
    (°C); empty if it doesn't say.
    """
    options = [f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    first_gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if first_gpu:
        options.append(f"--id={first_gpu}")
    lines = printed("nvidia-smi", *options).splitlines()
    values = lines[0].split(", ") if lines else []
    if len(values) != len(names):
        return {}
    return dict(zip(names, values, strict=True))


def gpu_slowed() -> bool:
    """Whether hardware slows that GPU down, for heat or supply; a limit of power or
    temperature is its usual clock.
    """
    reasons = gpu_state((_REASONS,)).get(_REASONS, "")
    if re.fullmatch("0x[0-9a-fA-F]+", reasons) is None:
        return False
    return int(reasons, 16) & _SLOWED != 0


def power(*, gpu: bool) -> dict[str, str]:
    """What limits the power: a GPU's limit, and on a laptop whether it runs on mains or
    on its battery.
    """
    limits = {}
    if gpu and (state := gpu_state()):
        limits["power limit"] = state["power.limit"]
    # some systems lack it
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is not None:
        limits["supply"] = "mains" if battery.power_plugged else "battery"
    return limits


def _fields(text: str) -> dict[str, str]:
    """The fields of the first processor that /proc/cpuinfo or lscpu describes."""
    pairs = (line.partition(":") for line in text.strip().split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str:
    """The text of a system file; empty if it can't be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
