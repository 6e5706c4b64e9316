"""Find and load CUDA's compiler libraries, from wheels or a toolkit; none of them needs
a driver or a GPU.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kerneltrace._arguments import as_capability
from kerneltrace.errors import CompileError, MissingCompiler
from kerneltrace.source.front_end import DEFAULT_CAPABILITY, is_simulator

# one of each folder that is needed
_HEADERS = (
    "cuda_fp16.h",
    "nv/target",
    "crt/mma.h",
    "cuda/std/version",
    "cupy/complex.cuh",
)
_NOT_LOADED = ("DynamicLibNotFoundError", "NvvmSupportError")


def target(compute_capability: tuple[int, int] | None) -> tuple[tuple[int, int], str]:
    """The compute capability to compile for, and why: as asked, that of this machine's
    GPU, or the default.
    """
    if compute_capability is not None:
        return as_capability(compute_capability), "as asked"
    own = gpu_capability()
    if own:
        return own, "this machine's GPU"
    return DEFAULT_CAPABILITY, "the default, since there is no GPU here"


def gpu_capability() -> tuple[int, int] | None:
    """The compute capability of this machine's current GPU; None without one."""
    if importlib.util.find_spec("torch"):
        import torch

        return torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    cuda: Any = importlib.import_module("numba.cuda")
    if not cuda.is_available() or is_simulator():
        return None
    major, minor = cuda.get_current_device().compute_capability
    return int(major), int(minor)


def missing(library: str) -> MissingCompiler:
    """The error for a compiler library that isn't there, with the command that installs
    it.
    """
    if sys.platform == "darwin":
        return MissingCompiler(
            f"{library} is missing: NVIDIA has none for macOS. Use Linux, Windows or"
            " Binder for this cell."
        )
    return MissingCompiler(
        f"{library} is missing. Install it, no GPU needed: pip install"
        f" '{_requirement()}'"
    )


def is_missing(error: BaseException) -> bool:
    """Whether an error, or one of its causes, says that a library of CUDA could not be
    loaded.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) or type(cause).__name__ in _NOT_LOADED:
            return True
        if re.search(
            r"lib(nvrtc|nvvm|nvJitLink|device)\S* (cannot|can't|could not) be|No such"
            r" file: lib",
            str(cause),
        ):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _requirement() -> str:
    """The requirement that matches the CUDA version of CUDA's bindings or of torch;
    CUDA 12 without either.
    """
    for package, pattern in (
        ("cuda-bindings", r"(1[23])\."),
        ("torch", r".*\+cu(1[23])"),
    ):
        with suppress(importlib.metadata.PackageNotFoundError):
            match = re.match(pattern, importlib.metadata.version(package))
            if match:
                return f"numba-cuda[cu{match[1]}]"
    return "numba-cuda[cu12]"


def bindings(name: str, version: str, library: str) -> Any:
    """A module of CUDA's Python bindings; MissingCompiler, which names `what`, where
    its library doesn't load.

    `version` names a function of the module: the library is loaded by the first call,
    not by the import.
    """
    try:
        module = importlib.import_module(f"cuda.bindings.{name}")
        getattr(module, version)()
    except (ImportError, RuntimeError) as error:
        raise missing(library) from error
    return module


def header_folders() -> list[str]:
    """Folders with CUDA's own headers, such as cuda_fp16.h and mma.h, and those that
    they include, if there are any.
    """
    wheels = [_wheel_headers(library) for library in ("cudart", "cccl", "nvcc", "crt")]
    compiler = shutil.which("nvcc")
    toolkits = [
        os.environ.get("CUDA_PATH"),
        os.environ.get("CUDA_HOME"),
        compiler and Path(compiler).resolve().parents[1],
        "/usr/local/cuda",
    ]
    includes = [
        *filter(None, wheels),
        *(Path(toolkit, "include") for toolkit in toolkits if toolkit),
    ]
    folders = [place for folder in includes for place in (folder, folder / "cccl")]
    # CuPy and Triton carry copies of some
    for place in _places("cupy"):
        include = place / "_core" / "include"
        folders += [include / "cupy" / "_cccl" / "libcudacxx", include]
    folders += [
        place / "backends" / "nvidia" / "include" for place in _places("triton")
    ]
    needed = []
    for name in _HEADERS:
        having = [folder for folder in folders if (folder / name).is_file()]
        needed += [str(folder) for folder in having[:1]]
    return list(dict.fromkeys(needed))


def _places(package: str) -> list[Path]:
    """The folders of an installed package, which isn't imported; none of another."""
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def _wheel_headers(library: str) -> Path | None:
    # an older cuda-pathfinder raises for a library that it doesn't know
    with suppress(Exception):
        folder = importlib.import_module(
            "cuda.pathfinder"
        ).find_nvidia_header_directory(library)
        return Path(folder) if folder else None
    return None


def link(
    ltoir: bytes, architecture: str, max_registers: int | None
) -> tuple[str, str, bytes]:
    """Link NVVM's link-time code with nvJitLink; returns PTX, the assembler's log, and
    machine code.

    `architecture` is such as "sm_80". Linking at this level optimizes and assembles the
    whole program at once, as numba does at a launch; from PTX, nvJitLink would assemble
    each part as callable from others, which takes more registers.
    """
    cap = [f"-maxrregcount={max_registers}"] if max_registers else []
    options = [f"-arch={architecture}", "-lto", *cap]
    ptx, _ = _linked(ltoir, [*options, "-ptx"], "ptx")
    cubin, log = _linked(ltoir, [*options, "-Xptxas=-v"], "cubin")
    return ptx.decode().rstrip("\0 \n"), log, cubin


def _linked(ltoir: bytes, options: list[str], output: str) -> tuple[bytes, str]:
    handle = None
    api = bindings("nvjitlink", "version", "nvJitLink, CUDA's linker,")
    try:
        handle = api.create(len(options), options)
        api.add_data(handle, api.InputType.LTOIR, ltoir, len(ltoir), "kernel")
        api.complete(handle)
        code = _read(api, f"linked_{output}", handle)
        log = _read(api, "info_log", handle)
        return code, log.decode(errors="replace").rstrip("\0 \n")
    except api.nvJitLinkError as error:
        log = _read(api, "error_log", handle) if handle else b""
        message = log.decode(errors="replace").strip("\0 \n") or str(error)
        raise CompileError(
            f"nvJitLink can't make code with {' '.join(options)}: {message}."
            f" {_advice(message)}"
        ) from error
    finally:
        if handle:
            api.destroy(handle)


def _advice(message: str) -> str:
    """What to do about what nvJitLink says."""
    # torch may hold nvJitLink at its own CUDA, while pip takes the newest NVVM
    if "newer version of nvJitLink" in message:
        return (
            "NVVM, numba's compiler, is newer than this linker: install an nvidia-nvvm"
            " of the same CUDA release as nvidia-nvjitlink (`pip list` shows both)."
        )
    return (
        "An unsupported architecture needs a newer nvJitLink, an undefined name a"
        " simpler kernel."
    )


def _read(api: Any, part: str, handle: int) -> bytes:
    text = bytearray(getattr(api, f"get_{part}_size")(handle))
    getattr(api, f"get_{part}")(handle, text)
    return bytes(text)
