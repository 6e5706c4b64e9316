"""Look for everything the workbook can use on this machine, and say what to do about
what isn't there: `make doctor`.

The exit status is 0 where the workbook runs on the CPU.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from kerneltrace import check_numba
from kerneltrace.errors import MissingCompiler
from labkit.core import results
from labkit.core.display import ShownAsTable, Table
from labkit.core.units import GIB, format_bytes
from labkit.measure import host, turns
from labkit.measure.host import memory_bytes, usable_cores
from labkit.measure.machine import machine

State = Literal["ok", "missing", "problem"]

PYTHONS = ((3, 11), (3, 14))  # oldest and newest
MEMORY_NEEDED_BYTES = 1.5 * GIB  # a notebook stays under 2 GB, Binder's limit
DISK_NEEDED_BYTES = 1 * GIB  # datasets and image shards
COMPILERS = ("c++", "g++", "clang++", "cl")
OLDER_COMPILERS = (
    "update the NVIDIA driver; where you can't, install compilers no newer than the"
    " CUDA version that nvidia-smi shows, for 12.8: pip install"
    " 'cuda-toolkit[nvcc,nvrtc]==12.8.*'"
)
REINSTALL = "`make clean`, then `make lab` (with conda: make the environment anew)"


@dataclass(frozen=True)
class Row:
    """What one check sees: 'missing' is optional and absent, 'problem' is needed or
    present and doesn't work.
    """

    name: str
    state: State
    seen: str
    todo: str = ""


@dataclass(frozen=True)
class Check:
    """One thing to look for; `needed` if nothing runs on the CPU without it."""

    name: str
    probe: Callable[[str], Row]
    needed: bool = False

    def run(self) -> Row:
        """Look; whatever the probe raises becomes a row."""
        try:
            return self.probe(self.name)
        except Exception as error:
            reason = " ".join(str(error).split())[:100]
            return Row(
                self.name, "problem", f"{type(error).__name__}: {reason}", REINSTALL
            )


@dataclass(frozen=True, repr=False)
class Diagnosis(ShownAsTable):
    """The rows of a whole examination; `works` if the CPU path does."""

    rows: tuple[Row, ...]
    works: bool

    def table(self) -> Table:
        """What was looked for, its state, what is there and what to do, a row each."""
        rows = tuple((row.name, row.state, row.seen, row.todo) for row in self.rows)
        verdict = (
            "The workbook runs on this machine."
            if self.works
            else "The workbook can't run here yet."
        )
        return Table(
            rows,
            ("what", "state", "found", "what to do"),
            "This machine and the workbook",
            (verdict,),
        )


def examine(checks: Sequence[Check] | None = None) -> Diagnosis:
    """Run the checks, all of CHECKS if none are given. Takes seconds, since it imports
    torch, numba and CuPy.
    """
    pairs = [(check, check.run()) for check in (CHECKS if checks is None else checks)]
    works = all(row.state == "ok" for check, row in pairs if check.needed)
    return Diagnosis(tuple(row for _, row in pairs), works)


def python(name: str) -> Row:
    """The Python that runs this."""
    version = f"{platform.python_version()} at {sys.executable}"
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Row(name, "ok", version)
    return Row(
        name,
        "problem",
        version,
        "use Python 3.11 to 3.14: `make lab PYTHON=python3.13`",
    )


def cores(name: str) -> Row:
    """Cores this process may use, of those the machine has."""
    return Row(
        name, "ok", f"{usable_cores()} usable of {os.cpu_count()}: {host.cpu_model()}"
    )


def memory(name: str) -> Row:
    """Main memory this process may use."""
    size = memory_bytes()
    if size >= MEMORY_NEEDED_BYTES:
        return Row(name, "ok", format_bytes(size))
    return Row(
        name,
        "problem",
        format_bytes(size),
        f"give it {format_bytes(MEMORY_NEEDED_BYTES)} or more",
    )


def driver(name: str) -> Row:
    """The NVIDIA driver, as nvidia-smi reports it, or the kernel where
    that is missing.
    """
    smi = shutil.which("nvidia-smi")
    version = host.nvidia_driver()
    if smi is None:
        if version is None:
            return Row(
                name,
                "missing",
                "no NVIDIA driver",
                "nothing, unless there is an NVIDIA GPU: then install it",
            )
        return Row(name, "ok", f"NVIDIA {version}")
    command = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
    completed = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False
    )
    lines = completed.stdout.split("\n")
    if completed.returncode or not lines[0].strip():
        answer = " ".join((completed.stdout + completed.stderr).split())[:100]
        return Row(
            name,
            "problem",
            f"nvidia-smi failed: {answer}",
            "reinstall the NVIDIA driver, or reboot after an update",
        )
    return Row(name, "ok", f"NVIDIA {lines[0].strip()}")


def gpus(name: str) -> Row:
    """The GPUs that torch can use."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = machine().gpus
    if usable:
        return Row(name, "ok", "; ".join(map(str, usable)))
    if torch.cuda.is_available():  # Source: torch.cuda.PYTORCH_RELEASES_CODE_CC
        why = (
            f"this torch has no code for the {torch.cuda.get_device_name()}, so the CPU"
            " is used"
        )
        return Row(
            name,
            "problem",
            why,
            "install torch for CUDA 12.6, which has code for older GPUs",
        )
    if driver("driver").state != "ok":
        return Row(
            name,
            "missing",
            "none",
            "nothing: the CPU is measured, others' numbers show what only a GPU can",
        )
    if torch.version.cuda is None:
        return Row(name, "problem", "torch is built without CUDA", REINSTALL)
    reason = (
        str(caught[0].message).split("\n")[0][:100] if caught else "torch finds none"
    )
    return Row(
        name,
        "problem",
        reason,
        f"torch is built for CUDA {torch.version.cuda}: update the driver to suit",
    )


def torch_works(name: str) -> Row:
    """Torch multiplies two matrices."""
    import torch

    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    total = float((torch.ones(4, 4) @ torch.ones(4, 4)).sum())
    if total != 64.0:
        return Row(
            name,
            "problem",
            f"{torch.__version__}: the sum of a 4 x 4 product is {total}, not 64",
            REINSTALL,
        )
    return Row(name, "ok", f"{torch.__version__}, built {built}")


def numba_works(name: str) -> Row:
    """Numba compiles a function, and numba-cuda goes with it."""
    import numba

    try:
        check_numba()
    except RuntimeError as error:
        reason, _, todo = str(error).partition(". ")
        return Row(name, "problem", reason, todo)
    if numba.njit(lambda n: n + 1)(1) != 2:
        return Row(
            name, "problem", f"{numba.__version__} compiles 1 + 1 wrongly", REINSTALL
        )
    return Row(name, "ok", str(numba.__version__))


def cupy_works(name: str) -> Row:
    """CuPy imports, and finds a GPU or doesn't."""
    try:
        import cupy
    except ModuleNotFoundError:
        todo = (
            "nothing: macOS has none"
            if sys.platform == "darwin"
            else "pip install cupy-cuda12x (no GPU needed)"
        )
        return Row(name, "missing", "not installed", todo)
    return Row(
        name,
        "ok",
        f"{cupy.__version__},"
        f" {'with a GPU' if cupy.is_available() else 'no GPU: it only imports'}",
    )


def gpu_compilers(name: str) -> Row:
    """NVRTC and NVVM compile a kernel each, which needs no GPU."""
    import numpy as np

    from kerneltrace import compile_cuda, compile_numba

    try:
        compile_cuda('extern "C" __global__ void f(float* a) { a[0] = 1; }')
        compile_numba(_store_one, (np.zeros(1, np.float32),))
    except MissingCompiler as error:
        missing, _, todo = str(error).partition(". ")
        return Row(name, "missing", missing, todo)
    if machine().gpus:
        try:
            _launched()
        except Exception as error:
            if "UNSUPPORTED_PTX" not in str(
                error
            ) and "unsupported toolchain" not in str(error):
                raise
            return Row(
                name,
                "problem",
                f"newer than the driver, which refuses what they make: {error}",
                OLDER_COMPILERS,
            )
    return Row(
        name, "ok", "NVRTC for CUDA C++ and NVVM for numba work, also without a GPU"
    )


def _launched() -> None:
    """Launch a kernel of numba and, where there is CuPy, one in CUDA C++: the driver
    loads both.
    """
    import numpy as np
    from numba import cuda

    if cuda.is_available():
        cuda.jit(_store_one)[1, 1](cuda.to_device(np.zeros(1, np.float32)))
    if importlib.util.find_spec("cupy"):
        import cupy

        kernel = cupy.RawKernel(
            'extern "C" __global__ void f(float* a) { a[0] = 1; }', "f"
        )
        kernel((1,), (1,), (cupy.zeros(1, dtype=np.float32),))


def _store_one(array: Any) -> None:
    array[0] = 1


def compiler(name: str) -> Row:
    """The C++ compiler that torch.compile calls: CXX, else the first of COMPILERS on
    the path.
    """
    wanted = tuple(os.environ.get("CXX", "").split()[:1]) or COMPILERS
    path = next(filter(None, map(shutil.which, wanted)), None)
    if path is not None:
        return Row(name, "ok", path)
    todo = {
        "darwin": "xcode-select --install",
        "win32": "install Visual Studio's build tools",
    }
    install = todo.get(sys.platform, "sudo apt-get install g++")
    return Row(
        name,
        "missing",
        f"none of {', '.join(wanted)}",
        f"{install} (only torch.compile needs it)",
    )


def gloo(name: str) -> Row:
    """A process group of one over gloo, which several ranks on CPUs talk through, adds
    up a tensor.
    """
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_gloo_available()):
        return Row(name, "problem", "torch is built without it", REINSTALL)
    if dist.is_initialized():
        return Row(name, "ok", f"a process group of {dist.get_world_size()} is running")
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch has it and does not declare it
    dist.init_process_group(
        "gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=10)
    )
    try:
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()
    return Row(name, "ok", "works")


def disk(name: str) -> Row:
    """Space where results and data are kept."""
    state = results.state_folder()
    place = next(
        folder for folder in (state, *state.parents) if os.access(folder, os.F_OK)
    )
    free = shutil.disk_usage(place).free
    space = f"{format_bytes(free)} free for {state}"
    if not os.access(place, os.W_OK):
        return Row(
            name,
            "problem",
            f"{place} can't be written",
            "set LABKIT_HOME to a folder that can",
        )
    if free < DISK_NEEDED_BYTES:
        todo = (
            f"free {format_bytes(DISK_NEEDED_BYTES)}, or set LABKIT_HOME to a folder on"
            " another disk"
        )
        return Row(name, "problem", space, todo)
    return Row(name, "ok", space)


def turns_to_measure(name: str) -> Row:
    """Whether notebooks on this machine can take turns: a hub names the folder of their
    lock with LABKIT_TURNS.
    """
    path = turns.lock_path()
    if path.is_file() or os.access(path.parent, os.W_OK):
        return Row(name, "ok", f"through {path}")
    return Row(
        name,
        "problem",
        f"{path} can't be made",
        "set LABKIT_TURNS to a folder made with chmod 1777",
    )


CHECKS = (
    Check("Python", python, needed=True),
    Check("cores", cores),
    Check("memory", memory, needed=True),
    Check("driver", driver),
    Check("GPUs", gpus),
    Check("torch", torch_works, needed=True),
    Check("numba", numba_works, needed=True),
    Check("CuPy", cupy_works),
    Check("GPU compilers", gpu_compilers),
    Check("C++ compiler", compiler),
    Check("gloo", gloo, needed=True),
    Check("disk", disk),
    Check("measuring in turn", turns_to_measure),
)


def main() -> int:
    """Print the table; the exit status."""
    diagnosis = examine()
    print(diagnosis)
    return 0 if diagnosis.works else 1


if __name__ == "__main__":
    sys.exit(main())
