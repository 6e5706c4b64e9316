"""Read a command line of `python -m kerneltrace`: find the kernel in its file, and make
the arguments of its launch.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kerneltrace._text import brief_repr, cut, nearest
from kerneltrace.compiler.compiled import Compiled
from kerneltrace.compiler.cplusplus import compile_cuda
from kerneltrace.errors import KernelError
from kerneltrace.kernel_file import run_file
from kerneltrace.ptx.launch import Kernel
from kerneltrace.ptx.triton import is_triton, python_of
from kerneltrace.source.kernel_scope import python_function
from kerneltrace.tiles.binding import Jit

_DTYPES = [np.dtype(code).name for code in "efdbhiqBHIQ?FD"]
"""float16 to float64, int8 to uint64, bool, complex64 and complex128, by NumPy's codes
of one letter.
"""


def _counted(shape: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    return np.arange(math.prod(shape)).astype(kind).reshape(shape)


_FILLS: dict[str, Callable[..., Any]] = {
    "zeros": np.zeros,
    "ones": np.ones,
    "arange": _counted,
}
_FORMS = (
    "An array is float32:1024 or zeros:float32:64x64, a number is 1024 or"
    " scalar:float32:2.5, a file is x.npy."
)
_MOST_BYTES = 1 << 30  # of an array: the trace needs several times as much
_EPILOG = """arguments of the kernel, in its order or as NAME=..., each after an --arg:
  float32:1024         an array of random numbers: floats to 1, integers to 99
  int32:64x32          one of two dimensions
  zeros:float32:1024   an array of zeros; so ones:, and arange: for 0, 1, 2, ...
  1024, 2.5, True      a number, which numba takes as int64, float64 or bool
  scalar:float32:2.5   a number of another type
  data.npy             an array that numpy.save wrote

An array may take at most 1 GiB, counted with 8 bytes per element or more.

A kernel under @triton.jit runs tile by tile. With --block, it runs as the PTX that
Triton compiles for that many threads. Each tl.constexpr is a --constant.

--json prints one object: kernel, grid, block (null for tiles), ok, findings and notes
(each with kind, line, words, count, thread, array), counts by array, estimate and
review (null unless asked for), and error, what failed (null if nothing). Times are in
seconds, except cost_ms of a review's remark.

The exit status is 1 if a mistake was found in the kernel, and 2 if the kernel could not
be traced. Notes don't change it."""


class LoadedKernel(NamedTuple):
    """A kernel in a file."""

    kernel: Any
    """What trace takes."""
    name: str = ""
    """Of CUDA C++, the name of one of several kernels."""
    left_out: str = ""
    """What of a file of Python failed, in a sentence."""
    signatures: Sequence[tuple[Any, ...]] = ()
    """Numba's types of the parameters, where @cuda.jit was passed them."""

    @property
    def is_triton(self) -> bool:
        """Whether it is under @triton.jit."""
        return is_triton(self.kernel) or isinstance(self.kernel, Jit)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--block": {"help": "threads of a block: 256, or 16,16 or 8,8,4"},
    "--arg": {
        "action": "append",
        "default": [],
        "help": "an argument of the kernel, see below",
    },
    "--constant": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "the value of a Triton kernel's tl.constexpr: BLOCK=64",
    },
    "--tiles": {
        "action": "store_true",
        "help": "run a Triton kernel tile by tile, though --block is passed",
    },
    "--option": {
        "action": "append",
        "default": [],
        "help": "an option for NVRTC, with CUDA C++: --option=-DTILE=32",
    },
    "--blocks": {
        "help": "which blocks run, or programs of Triton: how many, or all (a sample"
        " of a large grid)"
    },
    "--shared-bytes": {
        "type": int,
        "default": 0,
        "help": "dynamic shared memory of a block, in bytes",
    },
    "--seed": {"type": int, "default": 0, "help": "seed of the random numbers (0)"},
    "--device": {"help": 'also estimate the time on this GPU: "A100 SXM4 80GB"'},
    "--review": {
        "metavar": "DEVICE",
        "help": "also list what wastes time on this GPU, line by line",
    },
    "--full-grid": {
        "help": "blocks of the launch to estimate, if only a part of it is traced"
    },
    "--registers": {
        "type": int,
        "help": "registers a thread, as a compiler counts them, for the estimate",
    },
    "--json": {"action": "store_true", "help": "print one object of JSON, see below"},
}


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    options = argparse.ArgumentParser(
        prog="python -m kerneltrace",
        description=(
            "Run a CUDA kernel of numba, CUDA C++ or Triton on the CPU, and print"
            " what a GPU would be asked to do."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "kernel",
        metavar="FILE::KERNEL",
        help="the kernel, and the file of Python or CUDA C++ (.cu) that defines it",
    )
    options.add_argument("--grid", required=True, help="blocks: 4, or 4,2 or 4,2,1")
    for name, settings in _OPTIONS.items():
        options.add_argument(name, **settings)
    return options


def extents(option: str, text: str) -> tuple[int, ...]:
    """Blocks or threads, given as 4 or 4,2; ValueError for anything else."""
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ValueError(
            f"Expected {option} to be whole numbers such as 4 or 16,16, got"
            f" {brief_repr(text)}."
        )
    return tuple(int(part) for part in parts)


def load_kernel(request: str, options: Sequence[str] = ()) -> LoadedKernel:
    """The kernel that FILE::KERNEL names, from its file, which is run, or compiled with
    NVRTC's `options`; ValueError says what is missing.
    """
    file, colons, name = request.partition("::")
    path = Path(file)
    if not path.is_file():
        raise ValueError(
            f"Expected a Python file and a kernel as FILE.py::KERNEL, got {request!r}:"
            f" no file {path}."
        )
    if path.suffix in (".cu", ".cuh"):
        instances = [name] if "<" in name else []
        module = compile_cuda(path, options=options, instances=instances)
        return LoadedKernel(module, name if instances else name.rpartition("::")[2])
    names, failure, signatures = run_file(path)
    kernels = {key: value for key, value in names.items() if _is_kernel(value, path)}
    if colons and name in kernels:
        kernel = kernels[name]
        left_out = f"{path.name} ran without what fails in it, first {failure}."
        kinds = signatures.get(getattr(kernel, "py_func", None), ())
        return LoadedKernel(kernel, "", left_out if failure else "", kinds)
    if failure:
        raise ValueError(
            f"{path} could not be run: {failure}. Make `python {path}` work, with what"
            ' it does itself under `if __name__ == "__main__":`.'
        )
    if not kernels:
        raise ValueError(
            f"{path} defines no function. Define a kernel in it: `@cuda.jit`, then"
            " `def`."
        )
    near = nearest(name, kernels) if colons else kernels
    listed = cut(", ".join(near), 200)
    raise ValueError(f"Expected FILE.py::KERNEL, got {request!r}. {path} has {listed}.")


def _is_kernel(value: Any, path: Path) -> bool:
    function = python_of(getattr(value, "py_func", value))
    if not isinstance(function, types.FunctionType):
        return False
    return function.__code__.co_filename == str(path.resolve())


def constants_of(texts: Sequence[str], seed: int) -> dict[str, Any]:
    """The values of constants by name, from texts such as BLOCK=64; ValueError for one
    that has no name.
    """
    draw = np.random.default_rng(abs(seed))
    constants = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(
                f"Expected --constant to be NAME=VALUE, got {brief_repr(text)}. Write"
                " --constant BLOCK=64."
            )
        constants[name] = _constant(value, draw)
    return constants


def _constant(text: str, draw: np.random.Generator) -> Any:
    if text.startswith("tl."):
        language = importlib.import_module("kerneltrace.tiles").tl
        return getattr(language, text.removeprefix("tl."), text)
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    with contextlib.suppress(ValueError):
        return _argument(text, draw)
    return text


def launch_texts(
    loaded: LoadedKernel, texts: Sequence[str], constants: Mapping[str, Any]
) -> list[str]:
    """The texts after --arg, some of which may be NAME=..., in the order of the
    kernel's parameters; KernelError names a parameter that none is for.
    """
    kernel, parameters = _parameters(loaded)
    names = [name for name in parameters if name not in constants]
    by_name = {}
    in_order = []
    for text in texts:
        match = re.match(r"([^\W\d]\w*)=", text)
        if match is None:
            in_order.append(text)
        elif match[1] in names:
            by_name[match[1]] = text[match.end() :]
        else:
            raise KernelError(f"{kernel}({', '.join(names)}) has no {match[1]!r}.")
    signature = f"{kernel}({', '.join(names)})"
    for name in names:
        if name in by_name:
            continue
        if in_order:
            by_name[name] = in_order.pop(0)
        elif parameters[name].default is inspect.Parameter.empty:
            raise KernelError(f"{signature}: {_missing(name, parameters[name])}")
    if in_order:
        n = len(names)
        raise KernelError(f"{signature} takes {n} arguments, got {len(texts)}.")
    return [by_name[name] for name in names if name in by_name]


def _parameters(loaded: LoadedKernel) -> tuple[str, Mapping[str, inspect.Parameter]]:
    """A kernel's name and parameters, without those that Triton's decorators choose."""
    kernel = loaded.kernel
    if isinstance(kernel, Compiled):
        entry = kernel.instances.get(loaded.name, loaded.name)
        function = Kernel(kernel.ptx, entry, kernel.source).signature()
    else:
        function = python_function(python_of(kernel))
    parameters = dict(inspect.signature(function).parameters)
    while loaded.is_triton and hasattr(kernel, "fn"):
        chosen = dict(getattr(kernel, "values", {}))
        for configuration in getattr(kernel, "configs", [])[:1]:
            chosen |= configuration.kwargs
        for name in chosen:
            parameters.pop(name, None)
        kernel = kernel.fn
    return function.__name__, parameters


def _missing(name: str, parameter: inspect.Parameter) -> str:
    if "constexpr" in str(parameter.annotation):
        return f"{name} is left out. Add its value: --constant {name}=64."
    return (
        f"{name} is left out. Add a number, --arg {name}=1024, or an array, --arg"
        f" {name}=float32:1024."
    )


def as_declared(
    signatures: Sequence[tuple[Any, ...]], arguments: list[Any]
) -> list[Any]:
    """The arguments in the types that @cuda.jit was passed, if any: numbers are
    converted, as at a launch. KernelError for other arrays.
    """
    if not signatures:
        return arguments
    for kinds in signatures:
        with contextlib.suppress(TypeError, ValueError):
            pairs = zip(kinds, arguments, strict=True)
            return [_declared(kind, value) for kind, value in pairs]
    expected = " or ".join(f"({', '.join(map(str, kinds))})" for kinds in signatures)
    typeof: Any = importlib.import_module("numba").typeof
    passed = ", ".join(str(typeof(value)) for value in arguments)
    raise KernelError(f"@cuda.jit compiles it for {expected}, got ({passed}).")


def _declared(kind: Any, value: Any) -> Any:
    """A value as a numba type of a parameter; TypeError where it can't be passed."""
    is_array = isinstance(value, np.ndarray)
    if is_array != hasattr(kind, "ndim"):
        raise TypeError
    if not is_array:
        return np.dtype(str(kind).replace("boolean", "bool")).type(value)
    name = str(kind.dtype).replace("boolean", "bool")
    is_same = value.dtype.names or name == str(value.dtype)
    if not is_same or kind.ndim != value.ndim:
        raise TypeError
    return value


def arguments_of(texts: Sequence[str], seed: int) -> list[Any]:
    """The arguments that the texts after --arg stand for; ValueError for one that
    stands for none.
    """
    draw = np.random.default_rng(abs(seed))
    return [_argument(text, draw) for text in texts]


def _argument(text: str, draw: np.random.Generator) -> Any:
    if text.endswith(".npy"):
        return _from_file(Path(text))
    if ":" not in text:
        return _number(text)
    *fills, dtype, rest = text.split(":")
    if not dtype:
        return _number(text)
    if dtype not in _DTYPES or len(fills) > 1:
        raise _refused(text, f"The nearest type is {nearest(dtype, _DTYPES, n=1)[0]}.")
    kind = np.dtype(dtype)
    fill = fills[0] if fills else ""
    if fill == "scalar":
        return _scalar(text, kind, _number(rest))
    sizes = rest.split("x")
    if not all(size.isdecimal() for size in sizes):
        raise _refused(text, f"{brief_repr(rest)} is no shape such as 1024 or 64x32.")
    return _array(text, fill, kind, tuple(map(int, sizes)), draw)


def _number(text: str) -> bool | int | float:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            number = kind(text)
            # 1e400 is larger than any float64
            if abs(number) != math.inf or "inf" in text.lower():
                return number
    raise _refused(text)


def _scalar(text: str, kind: np.dtype[Any], number: float) -> Any:
    """A number of a type, which may round it, but not make another integer of it or
    infinity.
    """
    try:
        with np.errstate(all="ignore"):
            value = kind.type(number)
        if kind.kind in "iub":
            is_close = int(value) == number
        else:
            is_close = math.isinf(number) or not np.isinf(value)
    except (OverflowError, ValueError):
        is_close = False
    if not is_close:
        raise _refused(text, f"{kind} has no such number.")
    return value


def _array(
    text: str,
    fill: str,
    kind: np.dtype[Any],
    shape: tuple[int, ...],
    draw: np.random.Generator,
) -> Any:
    """An array whose elements are drawn, or as `fill` says."""
    if math.prod(shape) * max(kind.itemsize, 8) > _MOST_BYTES:
        raise _refused(
            text,
            "There is no memory for an array of that shape. The most is 1 GiB, with 8"
            " bytes or more an element. Trace a smaller problem: a few blocks are"
            " enough.",
        )
    if fill and fill not in _FILLS:
        raise _refused(text, f"{fill!r} is none of zeros, ones, arange and scalar.")
    if fill in _FILLS:
        return _FILLS[fill](shape, kind)
    if kind.kind in "iub":
        return draw.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)
    return draw.random(shape).astype(kind)


def _from_file(path: Path) -> Any:
    size = path.stat().st_size if path.is_file() else 0
    if size > _MOST_BYTES:
        raise ValueError(
            f"Expected a file of at most 1 GiB, got {path} of {size:,} B. Save a part"
            " of the array."
        )
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:
        # numpy's own words for a file of another kind are about pickles
        words = getattr(error, "strerror", None) or "it holds something else"
        raise ValueError(
            f"Expected an array of numbers that numpy.save wrote in {path}: {words}."
        ) from None


def _refused(text: str, more: str = "") -> ValueError:
    advice = f"{more} {_FORMS}".strip()
    return ValueError(
        f"Expected an argument of a kernel, got {brief_repr(text)}. {advice}"
    )
