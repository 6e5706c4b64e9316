"""Run torch.compile with one sentence where it can't work and a cache that no earlier
run has filled; CUDA graphs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import logging
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from labkit.core import results
from labkit.core.errors import GraphCompileError, LabError
from labkit.core.own_folder import has_space, make_private, writing
from labkit.core.parameters import checked
from labkit.core.temp_folder import plain_temp_folder
from labkit.core.units import DAY_S
from labkit.measure.machine import machine
from labkit.train.data.build_cache import cache_folder

_CODE_GENERATOR = "inductor"
_INSTALL = {
    "Triton": "install the package triton",
    "a C compiler": "install one (on Debian and Ubuntu the package gcc)",
    "a C++ compiler": "install one (on Debian and Ubuntu the package g++)",
    "Python's headers": "install them (on Debian and Ubuntu the package python3-dev)",
}


def missing() -> str:
    """Return what this machine lacks for torch.compile's code generator, in words; ""
    where nothing is missing.

    Inductor turns a graph into C++, which needs a compiler (the one that CXX names,
    else g++, clang++ on macOS, cl on Windows), and on a GPU into Triton, which needs
    the package and a C compiler (CC, else gcc or clang). What calls the result is built
    with Python.h. Source: torch._inductor.config.cpp.cxx; triton.runtime.build.
    """
    on_gpu = bool(machine().gpus)
    if on_gpu and importlib.util.find_spec("triton") is None:
        return "Triton"
    if on_gpu:
        language = "C"
        variable = "CC"
        compilers = ["gcc", "clang"]
    else:
        language = "C++"
        variable = "CXX"
        usual = {"darwin": "clang++", "win32": "cl"}
        compilers = [usual.get(sys.platform, "g++")]
    if variable in os.environ:
        compilers = [os.environ[variable]]
    if not any(map(shutil.which, compilers)):
        return f"a {language} compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers"
    return ""


@checked
def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    """Return `torch.compile(fn, **options)` for a function or a module; nothing is
    compiled before the first call.

    Raises GraphCompileError where the code generator (backend "inductor", the default)
    lacks a compiler, BadArgument for what can't be called. The backends "eager" and
    "aot_eager" generate no code and need no compiler.
    """
    generates = options.get("backend", _CODE_GENERATOR) == _CODE_GENERATOR
    if generates and (lack := missing()):
        raise GraphCompileError(
            f"torch.compile needs {lack} to build the kernels that it writes, and finds"
            f' none: {_INSTALL[lack]}, or pass backend="aot_eager", which traces and'
            " builds nothing."
        )
    # torch warns of these at the first call of the result, which `quiet` around this
    # line can't reach.
    warnings.filterwarnings(
        "ignore",
        "TensorFloat32 tensor cores|\\s*Online softmax is disabled",
        UserWarning,
    )
    with quiet():
        if generates:
            _own_folder()
        return torch.compile(fn, **options)


def forget_compiled() -> None:
    """Forget what torch.compile holds in memory, as a new process would begin; the
    folder of compiled code stays.
    """
    torch.compiler.reset()
    utils: Any = importlib.import_module("torch._inductor.utils")
    utils.clear_inductor_caches()  # else the same kernels would be found in memory


def fresh_cache() -> Path:
    """Make torch.compile keep its results in a new, empty folder from now on, and
    forget what it holds in memory.

    Otherwise a first call finds on the disk what an earlier run has compiled, and takes
    the time of a later call. The folder, below labkit's cache folder, is removed when
    Python ends: code that was loaded from it may run until then. Except at full size,
    compilation uses no worker processes, which saves memory. Source: PyTorch recipe
    "Compile Time Caching Configuration", TORCHINDUCTOR_CACHE_DIR.
    """
    if results.profile() != "full":
        with quiet():
            config: Any = importlib.import_module("torch._inductor.config")
        config.compile_threads = 1
    home = _own_folder() / "compiled"
    home.mkdir(exist_ok=True)
    for old in home.iterdir():
        # another process may remove it at the same moment
        with contextlib.suppress(OSError):
            # left by a process that was killed
            if time.time() - old.stat().st_mtime > DAY_S:
                shutil.rmtree(old, ignore_errors=True)
    with writing(home, "Set LABKIT_HOME to a folder of yours with free space."):
        folder = Path(tempfile.mkdtemp(dir=home))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    forget_compiled()
    return folder


def _own_folder() -> Path:
    """A folder for what the compiler writes, this user's alone and without a space in
    its path; inductor is told of it.

    What inductor finds there it runs. It has precompiled headers in the folder for
    temporary files, under a name that another user may have taken before; and of its
    commands to the C++ compiler it quotes some paths only. Source:
    torch._inductor.codecache and cpp_builder, torch 2.13.
    """
    home = _stand_in() if has_space(cache_folder()) else cache_folder()
    with writing(home, "Set LABKIT_HOME to a folder of yours with free space."):
        make_private(results.state_folder(), home)
    caching: Any = importlib.import_module("torch._inductor.codecache")
    config: Any = importlib.import_module("torch._inductor.config")
    cpp: Any = importlib.import_module("torch.utils.cpp_extension")
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, caching.default_cache_dir()):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(home / "inductor")
    caching._HEADER_DIR = str(home / "headers")
    caching._HEADER_LOCK_DIR = str(home / "headers" / "locks")
    # Headers are preprocessed in the temporary folder, and not worth their 150 MB in a
    # folder that is removed.
    if has_space(tempfile.gettempdir()) or has_space(cache_folder()):
        config.cpp_cache_precompile_headers = False
    cpp.TORCH_LIB_PATH = _plain("torch", cpp.TORCH_LIB_PATH)
    variables = sysconfig.get_config_vars()
    variables["LIBDIR"] = _plain("python", variables.get("LIBDIR") or "")
    return home


def _plain(name: str, path: str) -> str:
    """The path, or where it has a space, that of a link to it."""
    if not has_space(path):
        return path
    link = _stand_in() / name
    link.symlink_to(path, target_is_directory=True)
    return str(link)


@functools.cache
def _stand_in() -> Path:
    """A folder whose path has no space, removed when Python ends."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-", dir=plain_temp_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the compiler's warnings and log: what a reader needs of them is in this
    room's own messages.
    """
    with contextlib.ExitStack() as undo, warnings.catch_warnings(action="ignore"):
        undo.callback(logging.disable, logging.root.manager.disable)
        # what the compiler logs as an error it raises too
        logging.disable(logging.ERROR)
        yield


_WARM_UPS = 3  # what torch.cuda.make_graphed_callables does by default


@checked
def captured(step: Callable[[], object]) -> Callable[[], object]:
    """Return a function that replays the kernels of `step` as one CUDA graph, on the
    tensors of the recording.

    `step` runs four times, three of them to warm up; the fourth is recorded and
    computes nothing. It must read its inputs from tensors that stay in place (write new
    batches into them with copy_), wait for nothing on the GPU, and change nothing in
    Python that a later step needs: a replay runs no Python. An optimizer such as SGD
    may be inside if its learning rate never changes. The function returns None: `step`
    has to copy a loss that is wanted into a tensor of yours. The function keeps `step`,
    and with it all tensors that the step uses. Raises LabError without a CUDA GPU, and
    where the step can't be recorded. Source: PyTorch documentation, "CUDA semantics",
    CUDA Graphs.
    """
    if not machine().gpus:
        raise LabError(
            "Expected a CUDA GPU to record a CUDA graph on, got none. Guard the call"
            " with machine.gpus."
        )
    # untyped in some versions
    stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
    side = stream()
    side.wait_stream(torch.cuda.current_stream())
    # lazy initialization, as of cuBLAS, must not be part of the recording
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    usual = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        # a recording that can't be ended leaves its own stream behind
        torch.cuda.set_stream(usual)
        # What broke the recording; the error of ending it only says that it was broken.
        cause = (
            error.__context__ if isinstance(error.__context__, RuntimeError) else error
        )
        reason = str(cause).partition("\n")[0].rstrip(".")
        raise LabError(
            f"The step can't be recorded as a CUDA graph: {reason}. Take out what waits"
            " for the GPU (item(), print, a branch on a tensor) or what moves data"
            " from the CPU."
        ) from error

    # a graph holds addresses alone: without the step its tensors would go
    def replay(_keep: object = step) -> None:
        graph.replay()

    return replay
