"""Compile kernels written for numba.cuda with NVVM and nvJitLink."""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import replace
from typing import Any

from kerneltrace._arguments import flag, whole
from kerneltrace._text import brief_repr
from kerneltrace.compiler.compiled import Compiled, compiled
from kerneltrace.compiler.toolchain import is_missing, link, missing, target
from kerneltrace.errors import CompileError
from kerneltrace.source.front_end import is_simulator, pretended_device

# options of @cuda.jit that change the code of a launch
_KEPT = ("fastmath", "launch_bounds")


def compile_numba(
    kernel: Any,
    signature: Any,
    *,
    compute_capability: tuple[int, int] | None = None,
    max_registers: int | None = None,
    fastmath: bool = False,
) -> Compiled:
    """Compile a kernel written for numba.cuda, without running it; needs no GPU and no
    driver.

    `kernel` is what @cuda.jit returns, or the plain function. `signature` is a tuple of
    numba types, or of example arguments. `compute_capability` defaults to that of this
    machine's GPU, or (8, 0) without one; the result says which. `max_registers` a
    thread and `fastmath` add to the options of @cuda.jit. The code is linked as numba
    links it at a launch. Raises CompileError with the compiler's message, or where
    numba.cuda is its simulator; MissingCompiler without numba-cuda, NVVM or nvJitLink.
    Source: numba-cuda documentation, `cuda.compile`.
    """
    function, jit_options = _function(kernel)
    if max_registers is not None:
        max_registers = whole("max_registers", max_registers, least=1)
    fastmath = flag("fastmath", fastmath)
    capability, why = target(compute_capability)
    options = {name: jit_options[name] for name in _KEPT if jit_options.get(name)}
    options["lineinfo"] = True
    if fastmath:
        options["fastmath"] = True
    ltoir = _compile_to_ltoir(
        function, _types(signature, function), capability, options
    )
    cap = max_registers or jit_options.get("max_registers")
    linked = link(ltoir, f"sm_{capability[0]}{capability[1]}", cap)
    module = compiled(*linked, compute_capability=capability, why=why)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return replace(
        module,
        kernels={function.__name__: module.only},
        source=_source(function),
        parameters=names,
    )


def _source(function: Any) -> dict[int, str]:
    """The lines of a function's source by their numbers; none where there is no source
    to read.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return {}
    return dict(enumerate(map(str.rstrip, lines), first))


def _compile_to_ltoir(
    function: Any,
    types: tuple[Any, ...],
    capability: tuple[int, int],
    options: dict[str, Any],
) -> bytes:
    """Compile to the link-time code (LTO IR) of NVVM."""
    if is_simulator():
        raise CompileError(
            "numba.cuda is its simulator here, which has no compiler. Restart with"
            " NUMBA_ENABLE_CUDASIM=0."
        )
    cuda: Any = importlib.import_module("numba.cuda")
    rejected: Any = importlib.import_module("numba.core.errors").NumbaError
    # the numba.cuda that numba itself ships
    if getattr(cuda, "implementation", "") != "NVIDIA":
        raise missing("numba-cuda, which compiles for GPUs,")
    # older versions know fewer options
    parameters = inspect.signature(cuda.compile).parameters
    options = {name: value for name, value in options.items() if name in parameters}
    # As for a launch: numba's own calling convention, and code that is optimized when
    # it is linked.
    target_options = {
        "device": False,
        "cc": capability,
        "abi": "numba",
        "output": "ltoir",
    }
    try:
        with pretended_device(capability):
            ltoir, _ = cuda.compile(function, types, **target_options, **options)
    except Exception as error:
        if is_missing(error):
            raise missing("NVVM, the compiler that numba needs,") from error
        if isinstance(error, rejected):
            kind = "numba rejected"
            advice = "Correct that line, then compile again."
        else:
            kind = f"{type(error).__name__} while numba compiled"
            advice = "Check that this CUDA still supports the compute capability."
        code = function.__code__
        place = f"line {code.co_firstlineno} of {os.path.basename(code.co_filename)}"  # noqa: PTH119 - may be <stdin>
        raise CompileError(
            f"{kind} {function.__name__} ({place}) for ({', '.join(map(str, types))}):"
            f" {error}\n{advice}"
        ) from error
    return bytes(ltoir)


def _function(kernel: Any) -> tuple[Any, dict[str, Any]]:
    """The Python function of a kernel, and the options it was given in @cuda.jit."""
    # compiled, simulated, plain
    function = getattr(kernel, "py_func", None) or getattr(kernel, "fn", None) or kernel
    if not inspect.isfunction(function):
        raise TypeError(
            "Expected a @cuda.jit kernel or a Python function, got"
            f" {brief_repr(kernel)}. Pass it without [...]."
        )
    options = dict(getattr(kernel, "targetoptions", {}) or {})
    if options.get("device") or getattr(kernel, "_device", False):
        raise ValueError(
            f"Expected a kernel, got the device function {function.__name__}: compile"
            " the kernel that calls it."
        )
    return function, options


def _types(signature: Any, function: Any) -> tuple[Any, ...]:
    """Numba's types for a signature of types or example arguments; TypeError or
    ValueError if they don't fit the function.
    """
    arguments = getattr(signature, "args", signature)
    if not isinstance(arguments, tuple | list):
        raise TypeError(
            "Expected the signature as a tuple of numba types or of arguments, got"
            f" {brief_repr(signature)}. Write (numba.float32[::1], numba.int32), or"
            " (array, n)."
        )
    count = function.__code__.co_argcount
    if len(arguments) != count:
        names = ", ".join(function.__code__.co_varnames[:count])
        raise ValueError(
            f"Expected {count} types for {function.__name__}({names}), got"
            f" {len(arguments)}."
        )
    return tuple(map(_type, arguments))


def _type(value: Any) -> Any:
    numba: Any = importlib.import_module("numba")
    if isinstance(value, numba.types.Type):
        return value
    try:
        return numba.typeof(value)
    except ValueError as error:
        raise TypeError(
            "Expected numba types, arrays or numbers in the signature, got"
            f" {brief_repr(value)}: numba has no type for it."
        ) from error
