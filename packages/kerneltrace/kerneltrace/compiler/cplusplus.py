"""Compile CUDA C++ with NVRTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from kerneltrace._arguments import text
from kerneltrace._text import brief_repr
from kerneltrace.compiler.compiled import Compiled, compiled
from kerneltrace.compiler.toolchain import bindings, header_folders, target
from kerneltrace.errors import CompileError

_FILE = "kernel.cu"
_ERROR = re.compile(rf"{re.escape(_FILE)}\((\d+)\): (?:catastrophic )?error\S*:? (.*)")
_NUMBERS = "".join(
    f"using cuda::std::{u}int{bits}_t;\n" for u in ("", "u") for bits in (8, 16, 32, 64)
)
_HOST_HEADERS = {
    "float": "#include <cuda/std/cfloat>\n",
    "limits": "#include <cuda/std/climits>\n",
    "stdint": f"#include <cuda/std/cstdint>\n{_NUMBERS}",
    "math": (
        "#define INFINITY __int_as_float(0x7f800000)\n"
        "#define NAN __int_as_float(0x7fffffff)\n"
        "#define M_PI 3.14159265358979323846\n"
    ),
    # NVRTC knows what kernels use
    **dict.fromkeys(("assert", "stddef", "stdio", "stdlib", "string", "time"), ""),
}
"""C's own headers, which NVRTC has not, as far as kernels use them."""
_HEADERS = {
    name: text
    for header, text in _HOST_HEADERS.items()
    for name in (f"{header}.h", f"c{header}")
} | {"iostream": ""}


def compile_cuda(
    source: str,
    *,
    compute_capability: tuple[int, int] | None = None,
    options: Sequence[str] = (),
) -> Compiled:
    """Compile the text of a CUDA C++ file with NVRTC, which needs no GPU and no driver.

    `compute_capability` defaults to that of this machine's GPU, or (8, 0) without one;
    the result says which. `options` are NVRTC's, such as "--use_fast_math" or
    "--maxrregcount=32". Kernels marked `extern "C"` keep their names; a template's
    instance has its function's name where it is the only one. Raises CompileError with
    the compiler's message and line, MissingCompiler without NVRTC. Source: NVRTC
    documentation, "Supported Compile Options".
    """
    source = text("source", source, advice="Read a file with Path(...).read_text().")
    if not source.strip():
        raise ValueError(
            "Expected the text of a CUDA C++ file, got none. Read it with"
            " Path(...).read_text()."
        )
    if not isinstance(options, list | tuple) or not all(
        isinstance(option, str) for option in options
    ):
        raise TypeError(
            f"Expected options to be a list of text, got {brief_repr(options)}. Write"
            " options=['--use_fast_math']."
        )
    compute_capability, why = target(compute_capability)
    architecture = f"sm_{compute_capability[0]}{compute_capability[1]}"
    command = [
        f"--gpu-architecture={architecture}",
        "--ptxas-options=-v",
        "--generate-line-info",
        *options,
    ]
    command += [f"--include-path={folder}" for folder in header_folders()]
    api = bindings("nvrtc", "nvrtcVersion", "NVRTC, CUDA's compiler for C++,")
    module = compiled(
        *_run(api, source, architecture, command),
        compute_capability=compute_capability,
        why=why,
    )
    return replace(module, source=dict(enumerate(source.splitlines(), 1)))


def _run(
    api: ModuleType, source: str, architecture: str, command: list[str]
) -> tuple[str, str, bytes]:
    """Compile to PTX, log and machine code. Each function of NVRTC returns its status
    first.
    """
    texts = [text.encode() for text in _HEADERS.values()]
    names = [name.encode() for name in _HEADERS]
    program = _value(
        api.nvrtcCreateProgram(
            source.encode(), _FILE.encode(), len(names), texts, names
        )
    )
    try:
        options = [option.encode() for option in command]
        (status,) = api.nvrtcCompileProgram(program, len(options), options)
        log_bytes = _text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
        log = log_bytes.decode(errors="replace").strip("\0 \n")
        if status:
            raise _rejected(api, source, architecture, log, status)
        ptx = _text(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program)
        cubin = _text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
        return ptx.decode().rstrip("\0 \n"), log, cubin
    finally:
        api.nvrtcDestroyProgram(program)


def _value(answer: tuple[Any, ...]) -> Any:
    if answer[0]:
        raise CompileError(
            f"NVRTC failed with {answer[0]}. Restart the kernel; if that does not help,"
            " reinstall NVRTC."
        )
    return answer[1] if len(answer) > 1 else None


def _text(size: Any, get: Any, program: Any) -> bytes:
    text = b" " * int(_value(size(program)))
    _value(get(program, text))  # NVRTC writes into it
    return text


def _rejected(
    api: ModuleType, source: str, architecture: str, log: str, status: Any
) -> CompileError:
    """The error for NVRTC's log, with the line of the source that it refers to."""
    error = _ERROR.search(log)
    if error:
        number = int(error[1])
        lines = source.splitlines()
        text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        words = f"NVRTC rejected line {number}, `{text}`: {error[2].strip()}."
        more = len(_ERROR.findall(log)) - 1
        if more:
            words += f" ({more} more: they often follow from the first.)"
        if "host f" in error[2]:
            words += (
                " NVRTC compiles no host code: put it between #ifndef __CUDACC_RTC__"
                " and #endif."
            )
        return CompileError(
            f"{words} Correct that line, then compile again. The whole log:\n{log}"
        )
    architectures = [str(number) for number in _value(api.nvrtcGetSupportedArchs())]
    if architecture.removeprefix("sm_").rstrip("af") not in architectures:
        version = ".".join(str(part) for part in api.nvrtcVersion()[1:])
        return CompileError(
            f"NVRTC {version} doesn't compile for {architecture}. It knows"
            f" sm_{', sm_'.join(architectures)}: pass one of these."
        )
    return CompileError(
        f"NVRTC rejected the source or its options: {log or status}. Check the spelling"
        " of each option."
    )
