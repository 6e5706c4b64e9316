"""Describe this machine (cores, memory, GPUs, versions), and choose sizes and threads
for it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from labkit.core import results
from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import Number, checked
from labkit.core.units import GIB, format_bytes
from labkit.measure import host
from labkit.measure.bench import sync_of

T = TypeVar("T")
Threads = Annotated[int, Number(least=1, most=1024)]  # torch itself crashes far above

# that `pick` needs free for its sizes for a GPU: a card of 8 GB has them, with a
# desktop on it
_ROOM_BYTES = 6 * GIB
_FLAG_WORDS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512 BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}


@dataclass(frozen=True)
class Gpu:
    """A CUDA device as torch sees it; `memory_bytes` is the device's total."""

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int

    def __str__(self) -> str:
        major, minor = self.compute_capability
        return (
            f"{self.name}, {format_bytes(self.memory_bytes)}, compute capability"
            f" {major}.{minor}"
        )


@dataclass(frozen=True, repr=False)
class Machine(ShownAsTable):
    """The machine that runs this code. `cores` and `memory_bytes` are what this process
    may use.

    `flags` are the instruction sets that matter to a matmul, empty except on x86 Linux.
    `versions` are those that results depend on; `cuda` and `driver` are among them only
    with a GPU.
    """

    cpu: str
    cores: int
    total_cores: int
    memory_bytes: int
    flags: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    versions: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def device(self) -> str:
        """The device to use, as torch names it: 'cuda' with a GPU, else 'cpu'."""
        return "cuda" if self.gpus else "cpu"

    @property
    def sync(self) -> Callable[[], None]:
        """A function that waits for the device's queued work; on a CPU
        it does nothing.
        """
        return sync_of(self.device)

    @property
    def cpu_name(self) -> str:
        """The processor with its usable cores and best instruction set: '2-core Intel
        Xeon (AMX)'.
        """
        name = f"{self.cores}-core {self.cpu}"
        for flag, word in _FLAG_WORDS.items():
            if flag in self.flags:
                return f"{name} ({word})"
        return name

    @property
    def name(self) -> str:
        """A short name for labels: the GPU's, with the number of GPUs if there are
        several, else `cpu_name`.
        """
        if not self.gpus:
            return self.cpu_name
        first = self.gpus[0].name
        return first if len(self.gpus) == 1 else f"{len(self.gpus)}x {first}"

    @property
    def slug(self) -> str:
        """A short name for files: 'intel-xeon-2-cores', 'nvidia-h200',
        'nvidia-h200-x8'.
        """
        if len(self.gpus) > 1:
            words = f"{self.gpus[0].name} x{len(self.gpus)}"
        elif self.gpus:
            words = self.gpus[0].name
        else:
            cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
            words = f"{self.cpu} {cores}"
        return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")

    def table(self) -> Table:
        """Hardware, versions, and where results are kept."""
        processor = self.cpu
        if self.flags:
            processor += f" ({', '.join(self.flags)})"
        cores = f"{self.cores}"
        if self.cores != self.total_cores:
            cores += f" usable of {self.total_cores}"
        versions = [f"{name} {version}" for name, version in self.versions.items()]
        log = results.results()
        rows = (
            ("Processor", processor),
            ("Cores", cores),
            ("Memory", format_bytes(self.memory_bytes)),
            *[("GPU", str(gpu)) for gpu in self.gpus or ["none that torch can use"]],
            ("Versions", ", ".join(versions)),
            ("Results kept in", log.note or str(log.path)),
            ("Profile", results.profile()),
        )
        return Table(
            rows, title=f"This machine: {self.name}", notes=tuple(log.damaged())
        )


def machine() -> Machine:
    """Describe this machine, as the system and torch report it at this moment. Nothing
    is measured.
    """
    gpus = _gpus()
    return Machine(
        cpu=host.cpu_model(),
        cores=host.usable_cores(),
        total_cores=os.cpu_count() or 1,
        memory_bytes=host.memory_bytes(),
        flags=host.cpu_flags(),
        gpus=gpus,
        versions=_versions(has_gpu=bool(gpus)),
    )


def pick(*, ci: T, cpu: T, gpu: T) -> T:
    """Choose a size: `ci` if LABKIT_PROFILE is ci or smoke, else `gpu` with a CUDA GPU
    that has room, else `cpu`.

    A GPU has room if 6 GiB of its memory were free when this process first asked: a
    notebook's sizes go together.
    """
    if results.profile() != "full":
        return ci
    if gpu != cpu and _gpus() and _free_at_first() >= _ROOM_BYTES:
        return gpu
    return cpu


@functools.cache
def _free_at_first() -> int:
    import torch

    return int(torch.cuda.mem_get_info()[0])


def give_back_gpu_memory() -> None:
    """Give the GPU memory that torch and CuPy keep for later back to the GPU; nothing
    happens without a GPU.
    """
    torch = sys.modules.get("torch")
    cupy = sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        if cupy is not None:
            cupy.get_default_memory_pool().free_all_blocks()


@checked
@contextlib.contextmanager
def threads(n: Threads) -> Iterator[int]:
    """Let torch use `n` CPU threads within the block.

    More than usable_cores() are allowed, to see what that costs. Raises BadArgument
    unless `n` is an integer of at least 1.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield n
    finally:
        torch.set_num_threads(before)


def _gpus() -> tuple[Gpu, ...]:
    import torch

    if not torch.cuda.is_available():
        return ()
    gpus = []
    for i in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(i)
        capability = (device.major, device.minor)
        # The device is "cuda", the first GPU, so those after one that can't be used
        # can't either.
        if not has_code(capability, torch.cuda.get_arch_list()):
            break
        gpus.append(Gpu(device.name, capability, device.total_memory))
    return tuple(gpus)


def has_code(capability: tuple[int, int], built_for: Sequence[str]) -> bool:
    """Whether code for these architectures ('sm_86', 'compute_90') runs on a GPU of
    this compute capability.

    Machine code runs on its own major version from its minor version on, PTX on all
    that are newer. Source: CUDA C++ Programming Guide, "Application Compatibility".
    """
    own_major, _ = capability
    for kind, digits, digit in re.findall(
        r"(sm|compute)_(\d+)(\d)", " ".join(built_for)
    ):
        major = int(digits)
        minor = int(digit)
        runs = kind == "compute" or own_major == major
        if runs and capability >= (major, minor):
            return True
    return False


def _versions(*, has_gpu: bool) -> dict[str, str]:
    """Versions of Python and of installed packages, read without importing them; absent
    packages are left out.
    """
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy", "numba"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    if has_gpu:
        import torch

        if torch.version.cuda:
            versions["cuda"] = torch.version.cuda
        if driver := host.nvidia_driver():
            versions["driver"] = driver
    return versions
