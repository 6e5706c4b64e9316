"""What the operating system says of this computer: processor, cores and memory that this process may use.

The parsers take text or folders as arguments, so that tests can feed them samples of machines that aren't here.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# The ones that change what a matmul can reach: vector width, and bfloat16 in hardware.
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
    allowed = os.cpu_count() or 1
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
    return whole_cores(cpu_quota(CGROUPS, own_cgroup()), allowed)


def whole_cores(quota: float | None, allowed: int) -> int:
    """Threads worth starting under a quota of so many cores' time: rounded down, at least 1, at most `allowed`.

    Down, because threads beyond the quota use it up early in each period (100 ms) and then all stand still
    until the next; a matmul waits for its slowest thread. Source: Linux, Documentation/scheduler/sched-bwc.rst.
    """
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def memory_bytes() -> int:
    """Bytes of main memory this process may use: what is installed, or the cgroup's limit where that is lower."""
    limit = memory_limit(CGROUPS, own_cgroup())
    return _installed_bytes() if limit is None else min(limit, _installed_bytes())


def own_cgroup() -> str:
    """The text of /proc/self/cgroup; empty where there is none."""
    return _text(Path("/proc/self/cgroup")) or ""


def cpu_quota(root: Path, own: str) -> float | None:
    """Cores' worth of CPU time the cgroups allow, the tightest of all levels; None without a limit.

    `root` is where cgroups are mounted, `own` the text of /proc/self/cgroup; versions 1 and 2 are read.
    """
    quotas = []
    for folder in _cgroup_folders(root, own, "cpu"):
        text = _text(folder / "cpu.max")
        if text is None:
            text = f"{_text(folder / 'cpu.cfs_quota_us') or 'max'} {_text(folder / 'cpu.cfs_period_us') or ''}"
        quotas.append(parse_cpu_max(text))
    return min((q for q in quotas if q is not None), default=None)


def parse_cpu_max(text: str) -> float | None:
    """Cores of a quota and its period, in µs: '150000 100000' -> 1.5. None for 'max' or version 1's -1."""
    fields = [int(f) for f in text.split() if f.removeprefix("-").isdigit()]
    if len(fields) != 2 or fields[0] <= 0 or fields[1] <= 0:
        return None
    return fields[0] / fields[1]


def memory_limit(root: Path, own: str) -> int | None:
    """Bytes the cgroups allow, the tightest of all levels; None without a limit."""
    folders = _cgroup_folders(root, own, "memory")
    texts = [_text(f / name) for f in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return min((int(t) for t in texts if t and t.isdigit() and int(t) > 0), default=None)


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
    """The processor's name as people write it: 'AMD EPYC 7B13'. 'unknown CPU' when the system doesn't say."""
    if sys.platform == "win32":
        found = _windows_cpu()
    elif sys.platform == "darwin":
        found = _sysctl("machdep.cpu.brand_string")
    else:
        found = parse_cpu_model(_text(Path("/proc/cpuinfo")) or "")
    return tidy_model(found or platform.processor() or "unknown CPU")


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
    """Those of FLAGS that an x86 processor's /proc/cpuinfo names; empty elsewhere."""
    named = set(_cpuinfo_fields(cpuinfo).get("flags", "").split())
    return tuple(flag for flag in FLAGS if flag in named)


def cpu_flags() -> tuple[str, ...]:
    """Those of FLAGS this processor has; empty where the system doesn't say."""
    return parse_flags(_text(Path("/proc/cpuinfo")) or "")


def tidy_model(name: str) -> str:
    """A processor's name without marks, clock and filler: 'Intel(R) Xeon(R) CPU @ 2.20GHz' -> 'Intel Xeon'."""
    name = re.sub(r"\((R|TM|C)\)|@.*|\b\d+-Core\b|\b(Processor|CPU)\b|\bwith Radeon.*", " ", name, flags=re.I)
    return " ".join(name.split()) or "unknown CPU"


def last_level_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Size of the largest cache of core 0, in bytes, or None where the system doesn't say.

    A virtual machine may report the whole host's cache.
    """
    sizes = [_text(path) or "" for path in folder.glob("index*/size")]
    return max((int(s[:-1]) * 1024 for s in sizes if re.fullmatch(r"\d+K", s)), default=None)


def others_running(proc: Path = Path("/proc")) -> int | None:
    """Threads of other programs that run or wait for a core at this moment; None where the system doesn't say.

    This process's own are subtracted: a maths library's workers spin for a while after they have finished.
    """
    match = re.search(r" (\d+)/\d+ ", _text(proc / "loadavg") or "")
    if match is None:
        return None
    stats = [_text(path) or "" for path in proc.glob("self/task/*/stat")]
    own = sum(stat.rpartition(")")[2].split()[:1] == ["R"] for stat in stats)
    return max(0, int(match[1]) - own)


def nvidia_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver, '570.86.15', or None: no driver, or a system that doesn't say."""
    match = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)?)\b", _text(path) or "")
    return match[1] if match else None


def _cpuinfo_fields(cpuinfo: str) -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo."""
    lines = cpuinfo.strip().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


if sys.platform == "win32":
    import ctypes
    import winreg

    class _MemoryStatus(ctypes.Structure):  # MEMORYSTATUSEX of the Windows API
        _fields_ = (("length", ctypes.c_ulong), ("load", ctypes.c_ulong), ("values", ctypes.c_ulonglong * 7))

    def _windows_cpu() -> str:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])

    def _installed_bytes() -> int:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.values[0])

else:

    def _installed_bytes() -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
