"""What the operating system says of this computer: processor, cores and memory that this process may use.

The parsers take text or folders as arguments, so that tests can feed them samples of machines that aren't here.
"""

from __future__ import annotations

import contextlib
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
# The instruction sets that change what a matmul can reach: vector width, and bfloat16 in hardware.
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
# Part numbers of Arm's own server and board cores. Source: Linux, arch/arm64/include/asm/cputype.h.
_ARM_PARTS = {
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}


def usable_cores() -> int:
    """Logical cores this process may keep busy: affinity and the cgroup's quota respected, at least 1."""
    process = psutil.Process()
    # macOS has no affinity, and psutil no such method there.
    allowed = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1
    return whole_cores(cpu_quota(CGROUPS, own_cgroup()), allowed)


def whole_cores(quota: float | None, allowed: int) -> int:
    """Threads worth starting under a quota of so many cores' time: rounded down, at least 1, at most `allowed`.

    Down, because threads beyond the quota use it up early in each period (100 ms) and then all stand still
    until the next; a matmul waits for its slowest thread. Source: Linux, Documentation/scheduler/sched-bwc.rst.
    """
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def memory_bytes() -> int:
    """Bytes of main memory this process may use: what is installed, or the cgroup's limit where that is lower."""
    installed = int(psutil.virtual_memory().total)
    limit = memory_limit(CGROUPS, own_cgroup())
    return installed if limit is None else min(limit, installed)


def own_cgroup() -> str:
    """The text of /proc/self/cgroup; empty where there is none."""
    return _text(Path("/proc/self/cgroup"))


def cpu_quota(root: Path, own: str) -> float | None:
    """Cores' worth of CPU time the cgroups allow, the tightest of all levels; None without a limit.

    `root` is where cgroups are mounted, `own` the text of /proc/self/cgroup; versions 1 and 2 are read.
    """
    folders = list(_cgroup_folders(root, own, "cpu"))
    texts = [_text(folder / "cpu.max") for folder in folders]
    texts += [f"{_text(f / 'cpu.cfs_quota_us')} {_text(f / 'cpu.cfs_period_us')}" for f in folders]
    return min((quota for text in texts if (quota := parse_cpu_max(text)) is not None), default=None)


def parse_cpu_max(text: str) -> float | None:
    """Cores of a quota and its period, in µs: '150000 100000' -> 1.5. None for 'max' or version 1's -1."""
    match = re.fullmatch(r"(\d+) (\d+)", text)
    quota, period = map(int, match.groups()) if match else (0, 0)
    return quota / period if quota and period else None


def memory_limit(root: Path, own: str) -> int | None:
    """Bytes the cgroups allow, the tightest of all levels; None without a limit."""
    folders = _cgroup_folders(root, own, "memory")
    texts = [_text(f / name) for f in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return min((int(text) for text in texts if text.isdigit() and int(text) > 0), default=None)


def _cgroup_folders(root: Path, own: str, controller: str) -> Iterator[Path]:
    """Folders whose limits apply, own cgroup first, then its parents up to where its hierarchy is mounted."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            mounts = [root, root / "unified"]
        elif controller in controllers.split(","):
            mounts = [root / controller, root / controllers]
        else:
            continue
        for mount in mounts:
            folder = mount / path.lstrip("/")
            # A container often sees its own cgroup at the mount while `path` is the host's: the mount is read too.
            yield from (f for f in (folder, *folder.parents) if f == mount or mount in f.parents)


def cpu_model() -> str:
    """The processor's name as people write it: 'AMD EPYC 7B13'. 'unknown CPU' where the system doesn't say."""
    if sys.platform == "win32":
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            found = str(winreg.QueryValueEx(key, "ProcessorNameString")[0])
    elif sys.platform == "darwin":
        found = ""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            found = subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True, timeout=5)
    else:
        found = parse_cpu_model(_text(Path("/proc/cpuinfo"))) or ""
    return tidy_model(found or platform.processor())


def parse_cpu_model(cpuinfo: str) -> str | None:
    """The processor's name in the text of /proc/cpuinfo; Arm cores, which have none there, by their part number."""
    fields = _cpuinfo_fields(cpuinfo)
    if name := fields.get("model name"):
        return name
    if part := fields.get("CPU part"):
        is_arms_own = fields.get("CPU implementer") == "0x41"
        return f"Arm {_ARM_PARTS[part]}" if is_arms_own and part in _ARM_PARTS else f"Arm core {part}"
    return None


def parse_flags(cpuinfo: str) -> tuple[str, ...]:
    """The FLAGS that an x86 processor's /proc/cpuinfo names; empty elsewhere."""
    named = set(_cpuinfo_fields(cpuinfo).get("flags", "").split())
    return tuple(flag for flag in FLAGS if flag in named)


def cpu_flags() -> tuple[str, ...]:
    """The FLAGS that this processor has; empty where the system doesn't say."""
    return parse_flags(_text(Path("/proc/cpuinfo")))


def tidy_model(name: str) -> str:
    """A processor's name without marks, clock and filler: 'Intel(R) Xeon(R) CPU @ 2.20GHz' -> 'Intel Xeon'."""
    name = re.sub(r"\((R|TM|C)\)|@.*|\b\d+-Core\b|\b(Processor|CPU)\b|\bwith Radeon.*", " ", name, flags=re.I)
    return " ".join(name.split()) or "unknown CPU"


def last_level_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Size of the largest cache of core 0, in bytes, or None where the system doesn't say.

    A virtual machine may report the whole host's cache.
    """
    sizes = [_text(path) for path in folder.glob("index*/size")]
    return max((int(s[:-1]) * 1024 for s in sizes if re.fullmatch(r"\d+K", s)), default=None)


def others_running(proc: Path = Path("/proc")) -> int | None:
    """Threads of other programs that run or wait for a core at this moment; None where the system doesn't say.

    This process's own are subtracted: a maths library's workers spin for a while after they have finished.
    """
    match = re.search(r" (\d+)/\d+ ", _text(proc / "loadavg"))
    if match is None:
        return None
    states = [_text(path).rpartition(")")[2].split()[:1] for path in proc.glob("self/task/*/stat")]
    return max(0, int(match[1]) - states.count(["R"]))


def nvidia_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver, '570.86.15', or None: no driver, or a system that doesn't say."""
    match = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)?)\b", _text(path))
    return match[1] if match else None


def _cpuinfo_fields(cpuinfo: str) -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo."""
    lines = cpuinfo.strip().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str:
    """What a file of the system says; empty where it can't be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
