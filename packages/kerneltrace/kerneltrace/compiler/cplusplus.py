"""Compile CUDA C++ with NVRTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kerneltrace._arguments import text
from kerneltrace._text import brief_repr, cut
from kerneltrace.compiler.compiled import Compiled, compiled
from kerneltrace.compiler.host_code import SourceFile, included
from kerneltrace.compiler.toolchain import bindings, header_folders, target
from kerneltrace.errors import CompileError

_FILE = "kernel.cu"
_ERROR = re.compile(
    r"^(\S.*?)\((\d+)\): (?:catastrophic )?error\S*:? (.*)\n?(?:.*\n( +)\^)?",
    re.MULTILINE,
)
_NOT_FOUND = re.compile(r'cannot open source file "([^"]+)"')
_PRELUDE = "kerneltrace_prelude.h"
_INTEGERS = r"u?int(?:ptr|max|\d+|_fast\d+|_least\d+)_t"
_LIMITS = (
    r"U?INT(?:PTR|MAX|\d+|_FAST\d+|_LEAST\d+)?_(?:MAX|MIN)|U?(?:CHAR|SHRT|LONG|LLONG)"
    r"_(?:MAX|MIN)|SCHAR_(?:MAX|MIN)|CHAR_BIT|SIZE_MAX"
)
_USES = {
    "cstdint": re.compile(rf"\b(?:{_INTEGERS}|{_LIMITS})\b"),
    "cfloat": re.compile(r"\b(?:FLT|DBL)_[A-Z0-9_]+\b"),
}
"""Headers of libcu++ by what of C's headers nvcc knows without an #include."""
_MACROS = """\
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VALF __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define M_E 2.718281828459045
#define M_LOG2E 1.4426950408889634
#define M_LOG10E 0.4342944819032518
#define M_LN2 0.6931471805599453
#define M_LN10 2.302585092994046
#define M_PI 3.141592653589793
#define M_PI_2 1.5707963267948966
#define M_PI_4 0.7853981633974483
#define M_1_PI 0.3183098861837907
#define M_2_PI 0.6366197723675814
#define M_2_SQRTPI 1.1283791670955126
#define M_SQRT2 1.4142135623730951
#define M_SQRT1_2 0.7071067811865476
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
"""
"""Macros of C's math.h and stdlib.h, which nvcc knows without an #include."""
_STD = """\
#include <cuda/std/cstddef>
namespace std { using ::size_t; using cuda::std::ptrdiff_t; }
"""
_OF_C = "assert complex ctype errno float inttypes limits math stdbool stddef stdint"
_OF_C += " stdio stdlib string time"
_OF_CPLUSPLUS = (
    "algorithm any array atomic bit bitset cassert ccomplex cctype cerrno cfloat"
    " charconv chrono cinttypes climits cmath complex concepts condition_variable"
    " csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime deque exception"
    " execution filesystem forward_list fstream functional future initializer_list"
    " iomanip ios iosfwd iostream istream iterator limits list locale map memory mutex"
    " new numbers numeric optional ostream queue random ranges ratio regex set sstream"
    " stack stdexcept streambuf string string_view system_error thread tuple"
    " type_traits typeinfo unordered_map unordered_set utility valarray variant vector"
)
_OF_SYSTEM = (
    "thrust/detail/complex/stream.h sys/time.h sys/types.h unistd.h getopt.h omp.h"
)
_OF_CUBLAS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuComplex.h>\n"
"""What cuBLAS's headers include for a kernel."""
_HEADERS = {
    **{f"{name}.h": "" for name in _OF_C.split()},
    **dict.fromkeys(_OF_CPLUSPLUS.split(), ""),
    **dict.fromkeys(_OF_SYSTEM.split(), ""),
    **dict.fromkeys(("cublas_v2.h", "cublasLt.h"), _OF_CUBLAS),
}
"""Headers of the host, which NVRTC has not: what kernels use of them is built in, or in
the prelude.
"""


@dataclass(frozen=True)
class _Job:
    """What NVRTC is asked to compile."""

    source: SourceFile
    headers: dict[str, SourceFile]
    options: tuple[str, ...]
    has_std: bool = False
    """Whether namespace std is that of libcu++, which takes a second or more."""
    instances: tuple[str, ...] = ()
    """Instances of templates, such as "sum<256>"."""

    @property
    def files(self) -> dict[str, SourceFile]:
        """The files from which host code can be left out, by name."""
        return {_FILE: self.source, **self.headers}

    def texts(self) -> dict[str, str]:
        """The texts of headers by name."""
        own = {name: header.remaining() for name, header in self.headers.items()}
        texts = _HEADERS | own
        if self.has_std:
            folders = [Path(folder) for folder in header_folders()]
            for name in _OF_CPLUSPLUS.split():
                if any((folder / "cuda/std" / name).is_file() for folder in folders):
                    texts[name] = (
                        f"#include <cuda/std/{name}>\n"
                        "namespace std { using namespace cuda::std; }\n"
                    )
        return texts | {_PRELUDE: self._prelude()}

    def _prelude(self) -> str:
        """What nvcc includes before a file, as far as this one uses it."""
        whole = "\n".join(file.text for file in self.files.values())
        lines = [
            f"#include <cuda/std/{header}>"
            for header, pattern in _USES.items()
            if pattern.search(whole)
        ]
        if "std::" in whole or "namespace std" in whole:
            lines.append(_STD)
        return "\n".join([*lines, _MACROS])


@dataclass(frozen=True)
class _Output:
    """What NVRTC answered: its log, and where it compiled PTX, machine code, and the
    symbols of the instances.
    """

    log: str
    status: Any
    ptx: str = ""
    cubin: bytes = b""
    symbols: tuple[tuple[str, str], ...] = ()

    def errors(self) -> list[re.Match[str]]:
        """The errors in the log: file, line, words, and the blanks up to the column."""
        return list(_ERROR.finditer(self.log))


def compile_cuda(
    source: str | Path,
    *,
    compute_capability: tuple[int, int] | None = None,
    options: Sequence[str] = (),
    instances: Sequence[str] = (),
) -> Compiled:
    """Compile the text of a CUDA C++ file, or the file at a path, with NVRTC, which
    needs no GPU and no driver.

    `compute_capability` defaults to that of this machine's GPU, or (8, 0) without one;
    the result says which. `options` are NVRTC's, such as "--use_fast_math" or
    "--maxrregcount=32". Kernels marked `extern "C"` keep their names; a template's
    instance has its function's name where it is the only one. `instances` are those of
    templates that nothing in the file makes, such as "sum<float, 256>".

    What nvcc takes is taken: C's macros and types without an #include, headers beside
    the file at a path, and host code, which is left out as `left_out` says. Raises
    CompileError with the compiler's message and line, MissingCompiler without NVRTC.
    Source: NVRTC documentation, "Supported Compile Options".
    """
    code, folder = _read(source)
    if not isinstance(options, list | tuple) or not all(
        isinstance(option, str) for option in options
    ):
        raise TypeError(
            f"Expected options to be a list of text, got {brief_repr(options)}. Write"
            " options=['--use_fast_math']."
        )
    compute_capability, why = target(compute_capability)
    architecture = f"sm_{compute_capability[0]}{compute_capability[1]}"
    folders = [*([str(folder)] if folder else []), *header_folders()]
    command = (
        f"--gpu-architecture={architecture}",
        "--ptxas-options=-v",
        "--generate-line-info",
        f"--pre-include={_PRELUDE}",
        *options,
        *(f"--include-path={folder}" for folder in folders),
    )
    api = bindings("nvrtc", "nvrtcVersion", "NVRTC, CUDA's compiler for C++,")
    file = SourceFile(_FILE, code)
    job = _Job(file, {}, command, instances=tuple(instances))
    output = _run(api, job)
    if output.status:
        job, output = _without_host_code(api, job, folder, output)
    if output.status:
        raise _rejected(api, job, architecture, output)
    module = compiled(
        output.ptx,
        output.log,
        output.cubin,
        compute_capability=compute_capability,
        why=why,
    )
    return replace(
        module,
        source=dict(enumerate(code.splitlines(), 1)),
        left_out=_left_out(job),
        instances=dict(output.symbols),
    )


def _read(source: Any) -> tuple[str, Path | None]:
    """The text of a source, and the folder of its file."""
    folder = None
    if isinstance(source, Path):
        folder = source.resolve().parent
        try:
            source = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"The file of the kernel can't be read: {error}."
            ) from error
    code = text("source", source, advice="Pass a file as Path(...).")
    if not code.strip():
        raise ValueError(
            "Expected the text of a CUDA C++ file, got none. Pass a file as Path(...)."
        )
    return code, folder


def _without_host_code(
    api: ModuleType, job: _Job, folder: Path | None, first: _Output
) -> tuple[_Job, _Output]:
    """Leave out what NVRTC rejects until it compiles the rest; the first answer where
    it doesn't come to that.
    """
    headers = _headers_beside(job.source.text, folder)
    for has_std in (False, True):
        fresh = {name: SourceFile(name, header) for name, header in headers.items()}
        source = SourceFile(_FILE, job.source.text)
        attempt = replace(job, source=source, headers=fresh, has_std=has_std)
        output = _run(api, attempt)
        while output.status and _leave_out(attempt, output):
            output = _run(api, attempt)
        if not output.status:
            return _with_launched(api, attempt, output)
        if not any("std::" in file.text for file in attempt.files.values()):
            break
    return attempt, output


def _leave_out(job: _Job, output: _Output) -> bool:
    """Leave out the declarations that NVRTC rejects; whether there were any."""
    is_changed = False
    by_file: dict[str, list[tuple[int, int, str]]] = {name: [] for name in job.files}
    for error in output.errors():
        name, line, words, blanks = error.groups()
        header = _NOT_FOUND.search(words)
        if name not in job.files:
            is_changed |= _leave_out_header(job, name)
        elif header:
            file = job.files[name]
            is_quoted = dict(included(file.text)).get(header[1])
            if not is_quoted or header[1].startswith("helper_"):
                is_changed |= file.include(header[1])
        else:
            column = max(len(blanks or "") - 2, 0)
            by_file[name].append((int(line), column, words))
    for name, errors in by_file.items():
        is_changed |= job.files[name].leave_out(errors)
    return is_changed


def _leave_out_header(job: _Job, path: str) -> bool:
    """Leave out the directives that include a header at a path, or one of the library
    that it belongs to.
    """
    for file in job.files.values():
        names = [name for name, is_quoted in included(file.text) if not is_quoted]
        for name in sorted(names, key=lambda name: not path.endswith(f"/{name}")):
            library, slash, _ = name.partition("/")
            is_of_library = bool(slash) and f"/{library}/" in path
            if (is_of_library or path.endswith(f"/{name}")) and file.include(name):
                return True
    return False


def _headers_beside(code: str, folder: Path | None) -> dict[str, str]:
    """The texts of the headers that a file in a folder includes from there, and that
    these include.
    """
    headers: dict[str, str] = {}
    pending = [(code, folder)] if folder else []
    while pending:
        text, here = pending.pop()
        for name, is_quoted in included(text):
            path = next(
                (
                    place / name
                    for place in (here, folder or here)
                    if is_quoted and (place / name).is_file()
                ),
                None,
            )
            if path and name not in headers:
                headers[name] = path.read_text(encoding="utf-8", errors="replace")
                pending.append((headers[name], path.parent))
    return headers


def _with_launched(api: ModuleType, job: _Job, output: _Output) -> tuple[_Job, _Output]:
    """The same with the instances of templates that the host code launches, as far as
    they can be made.
    """
    launched = {name for file in job.files.values() for name in file.launched()}
    instances = (*job.instances, *sorted(launched - set(job.instances)))
    if instances == job.instances:
        return job, output
    more = replace(job, instances=instances)
    more_output = _run(api, more)
    return (job, output) if more_output.status else (more, more_output)


def _left_out(job: _Job) -> tuple[str, ...]:
    """What was left out, in a sentence."""
    parts = [
        f"{part} of {file.name}" if file is not job.source else part
        for file in job.files.values()
        for part in file.left_out()
    ]
    if not parts:
        return ()
    shown = ", ".join(parts[:8])
    if len(parts) > 8:
        shown += f" and {len(parts) - 8} more"
    return (f"Host code was not compiled: {shown}.",)


def _run(api: ModuleType, job: _Job) -> _Output:
    """Compile to PTX, log and machine code. Each function of NVRTC returns its status
    first.
    """
    headers = job.texts()
    texts = [text.encode() for text in headers.values()]
    names = [name.encode() for name in headers]
    program = _value(
        api.nvrtcCreateProgram(
            job.source.remaining().encode(), _FILE.encode(), len(names), texts, names
        )
    )
    try:
        for instance in job.instances:
            _value(api.nvrtcAddNameExpression(program, instance.encode()))
        options = [option.encode() for option in job.options]
        (status,) = api.nvrtcCompileProgram(program, len(options), options)
        log_bytes = _text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
        log = log_bytes.decode(errors="replace").strip("\0 \n")
        if status:
            return _Output(log, status)
        ptx = _text(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program)
        cubin = _text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
        symbols = [
            _value(api.nvrtcGetLoweredName(program, instance.encode())).decode()
            for instance in job.instances
        ]
        pairs = tuple(zip(job.instances, symbols, strict=True))
        return _Output(log, status, ptx.decode().rstrip("\0 \n"), cubin, pairs)
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
    api: ModuleType, job: _Job, architecture: str, output: _Output
) -> CompileError:
    """The error for NVRTC's log, with the line of the source that it refers to."""
    errors = output.errors()
    log = output.log
    if errors:
        words = _first_error(job, errors)
        left_out = _left_out(job)
        if left_out:
            words += (
                f" {left_out[0]} Put what else is for the host between #ifndef"
                " __CUDACC_RTC__ and #endif."
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
        f"NVRTC rejected the source or its options: {log or output.status}. Check the"
        " spelling of each option."
    )


def _first_error(job: _Job, errors: list[re.Match[str]]) -> str:
    """The first error in words, with its line."""
    name, number, words, _ = errors[0].groups()
    place = "" if name == _FILE else f" of {name}"
    line = ""
    if name in job.files:
        lines = job.files[name].text.splitlines()
        line = "".join(lines[int(number) - 1 : int(number)]).strip()
    sentence = (
        f"NVRTC rejected line {number}{place}, `{cut(line, 100)}`: {words.strip()}."
    )
    header = _NOT_FOUND.search(words)
    if header:
        sentence += (
            " It is looked for beside the file that a Path names, in CUDA's headers,"
            " and in options=['--include-path=...']."
        )
    return sentence
