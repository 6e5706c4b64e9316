"""Compile kernels written for numba.cuda with NVVM and nvJitLink."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.errors import CompileError, LabError
from labkit.gpu.compiler.compiled import Compiled, compiled
from labkit.gpu.compiler.toolchain import is_missing, link, missing, target

_CHILD_S = 120.0
_KEPT = ("fastmath", "launch_bounds", "lineinfo")  # of what @cuda.jit was told


@dataclass(frozen=True)
class Job:
    """All that NVVM needs: a Python function, the types of its arguments, and options of cuda.compile."""

    function: Any
    types: tuple[Any, ...]
    compute_capability: tuple[int, int]
    options: dict[str, Any]


def compile_numba(
    kernel: Any,
    signature: Any,
    *,
    compute_capability: tuple[int, int] | None = None,
    max_registers: int | None = None,
    fastmath: bool = False,
) -> Compiled:
    """Compile a kernel written for numba.cuda, which needs no GPU and no driver; the kernel isn't run.

    `kernel` is what @cuda.jit gives, also under numba's simulator, or the plain function. `signature` is a tuple of
    numba types, or of arguments like those it is called with. `compute_capability` is that of this machine's GPU if
    None, (8, 0) without one; the result says which. `max_registers` a thread and `fastmath` add to what @cuda.jit was
    told. The code is linked as numba links it at a launch. Raises CompileError with the compiler's words,
    MissingExtra without numba-cuda, NVVM or nvJitLink. Source: numba-cuda documentation, `cuda.compile`.
    """
    function, told = _function(kernel)
    capability, why = target(compute_capability)
    options = {name: told[name] for name in _KEPT if told.get(name)} | ({"fastmath": True} if fastmath else {})
    job = Job(function, _types(signature, function), capability, options)
    ltoir = _in_child(job) if _simulated() else to_ltoir(job)
    linked = link(ltoir, "sm_{}{}".format(*capability), max_registers or told.get("max_registers"))
    made = compiled(linked.ptx, linked.log, linked.cubin, compute_capability=capability, why=why)
    return replace(made, kernels={function.__name__: made.only})


def to_ltoir(job: Job) -> bytes:
    """A kernel as link-time code of NVVM, made in this process, whose numba must not be simulating."""
    cuda: Any = importlib.import_module("numba.cuda")
    rejected: Any = importlib.import_module("numba.core.errors").NumbaError
    if getattr(cuda, "implementation", "") != "NVIDIA":
        raise missing("numba-cuda, which compiles for GPUs,")
    known = inspect.signature(cuda.compile).parameters
    options = {name: value for name, value in job.options.items() if name in known}
    try:
        with _pretend(job.compute_capability):
            ltoir, _ = cuda.compile(
                job.function,
                job.types,
                device=False,
                cc=job.compute_capability,
                abi="numba",
                output="ltoir",
                **options,
            )
    except Exception as error:
        if is_missing(error):
            raise missing("NVVM, the compiler that numba needs,") from error
        kind = "numba rejected" if isinstance(error, rejected) else f"{type(error).__name__} while numba compiled"
        advice = (
            "Mend that line, then compile again."
            if isinstance(error, rejected)
            else "Check that this CUDA still knows the compute capability."
        )
        raise CompileError(
            f"{kind} {job.function.__name__}{_place(job.function)} for {_listed(job.types)}: {error}\n{advice}"
        ) from error
    return bytes(ltoir)


@contextmanager
def _pretend(compute_capability: tuple[int, int]) -> Iterator[None]:
    """Answer numba's question for the current GPU, which it asks for each device function though a target is given."""
    asks: Any = importlib.import_module("numba.cuda.dispatcher")
    kept = asks.get_current_device
    asks.get_current_device = lambda: SimpleNamespace(compute_capability=compute_capability)
    try:
        yield
    finally:
        asks.get_current_device = kept


def _place(function: Any) -> str:
    code = function.__code__
    return f" (line {code.co_firstlineno} of {os.path.basename(code.co_filename)})"  # noqa: PTH119 - may be <stdin>


def _listed(types: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, types))})"


def _function(kernel: Any) -> tuple[Any, dict[str, Any]]:
    """The Python function of a kernel, and what @cuda.jit was told about it."""
    function = getattr(kernel, "py_func", None) or getattr(kernel, "fn", None) or kernel  # compiled, simulated, plain
    if not inspect.isfunction(function):
        raise LabError(
            f"Expected a @cuda.jit kernel or a Python function, got {brief_repr(kernel)}. Pass it without [...]."
        )
    told = dict(getattr(kernel, "targetoptions", {}) or {})
    told.setdefault("fastmath", getattr(kernel, "_fastmath", False))
    if told.get("device") or getattr(kernel, "_device", False):
        raise LabError(
            f"Expected a kernel, got the device function {function.__name__}: compile the kernel that calls it."
        )
    return function, told


def _types(signature: Any, function: Any) -> tuple[Any, ...]:
    """Numba's types for a signature of types or of example arguments; LabError if they don't fit the function."""
    given = getattr(signature, "args", signature)
    if not isinstance(given, tuple | list):
        raise LabError(
            f"Expected the signature as a tuple of numba types or of arguments, got {brief_repr(signature)}. "
            "Write (numba.float32[::1], numba.int32), or (array, n)."
        )
    wanted = function.__code__.co_argcount
    if len(given) != wanted:
        names = ", ".join(function.__code__.co_varnames[:wanted])
        raise LabError(f"Expected {wanted} types for {function.__name__}({names}), got {len(given)}.")
    return tuple(map(_type, given))


def _type(value: Any) -> Any:
    import numpy as np

    numba: Any = importlib.import_module("numba")
    if isinstance(value, numba.types.Type):
        return value
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        layout = "C" if interface.get("strides") is None else "A"
        return numba.types.Array(numba.from_dtype(np.dtype(interface["typestr"])), len(interface["shape"]), layout)
    try:
        return numba.typeof(value)
    except ValueError as error:
        raise LabError(
            f"Expected numba types, arrays or numbers in the signature, "
            f"got {brief_repr(value)}: numba has no type for it."
        ) from error


def _simulated() -> bool:
    """Whether numba.cuda is its simulator here, which has no compiler."""
    return bool(importlib.import_module("numba.core.config").ENABLE_CUDASIM)


def _in_child(job: Job) -> bytes:
    """A kernel as link-time code from a Python of its own, whose numba doesn't simulate."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "labkit.gpu.compiler.child"]
    done = subprocess.run(
        command, input=_pickled(job), capture_output=True, env=environment, timeout=_CHILD_S, check=False
    )
    try:
        answer = pickle.loads(done.stdout)
    except (pickle.UnpicklingError, EOFError) as error:
        said = done.stderr.decode(errors="replace").strip()[-1000:]
        raise CompileError(f"The process that compiles with numba failed: {said}. Restart, then try again.") from error
    if isinstance(answer, LabError):
        raise answer
    return bytes(answer)


def _pickled(job: Job) -> bytes:
    """The job as bytes: functions by value, and simulated device functions as what the child makes of them."""
    base: Any = importlib.import_module("numba.cloudpickle").CloudPickler

    class Pickler(base):  # type: ignore[misc]  # its base is only known when numba is loaded
        def reducer_override(self, value: Any) -> Any:
            if type(value).__name__ == "FakeCUDAKernel":
                return redecorate, (value.fn, bool(getattr(value, "_device", False)))
            return super().reducer_override(value)

    buffer = io.BytesIO()
    try:
        Pickler(buffer).dump(job)
    except Exception as error:
        raise CompileError(
            f"{job.function.__name__} uses something that can't be sent to the process that compiles: {error}. "
            "Set NUMBA_ENABLE_CUDASIM=0 before numba is imported, or leave that out of the kernel."
        ) from error
    return buffer.getvalue()


def redecorate(function: Any, device: bool) -> Any:
    """A function that the simulator had decorated, decorated for the compiler. The child calls it."""
    return importlib.import_module("numba.cuda").jit(device=device)(function)
