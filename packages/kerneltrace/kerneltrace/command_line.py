"""Read a command line of `python -m kerneltrace`: find the kernel in its file, and make
the arguments of its launch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr, cut, nearest

_INTEGERS = tuple(
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
)
_DTYPES = (
    "float16",
    "float32",
    "float64",
    *_INTEGERS,
    "bool",
    "complex64",
    "complex128",
)


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
# the name that the file has as a module: its own may be that of another
_MODULE = "kernel_file"
_EXAMPLE = """arguments of the kernel, in its order, each after an --arg:
  float32:1024         an array of random numbers: floats to 1, integers to 99
  int32:64x32          one of two dimensions
  zeros:float32:1024   an array of zeros; so ones:, and arange: for 0, 1, 2, ...
  1024, 2.5, True      a number, which numba takes as int64, float64 or bool
  scalar:float32:2.5   a number of another type
  data.npy             an array that numpy.save wrote

An array may have 1 GiB, counted with 8 bytes or more an element, as it is made.
The exit status is 1 where a mistake was found in the kernel, and 2 where it could not
be traced."""


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    options = argparse.ArgumentParser(
        prog="python -m kerneltrace",
        description=(
            "Run a CUDA kernel, of numba or CUDA C++, on the CPU, and print what a GPU"
            " would be asked to do."
        ),
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "kernel",
        metavar="FILE.py::KERNEL",
        help="the kernel, and the file of Python or CUDA C++ (.cu) that defines it",
    )
    options.add_argument("--grid", required=True, help="blocks: 4, or 4,2 or 4,2,1")
    options.add_argument(
        "--block", required=True, help="threads of a block: 256, or 16,16 or 8,8,4"
    )
    options.add_argument(
        "--arg",
        action="append",
        default=[],
        help="an argument of the kernel, see below",
    )
    options.add_argument(
        "--shared-bytes",
        type=int,
        default=0,
        help="dynamic shared memory of a block, in bytes",
    )
    options.add_argument(
        "--seed", type=int, default=0, help="of the random numbers (0)"
    )
    options.add_argument(
        "--device", help='also estimate the time on this GPU: "A100 SXM4 80GB"'
    )
    options.add_argument(
        "--full-grid",
        help="blocks of the launch to estimate, where only a part of it is traced",
    )
    options.add_argument(
        "--registers",
        type=int,
        help="registers a thread, as a compiler counts them, for the estimate",
    )
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


def load_kernel(request: str) -> Any:
    """The kernel that FILE.py::KERNEL names, from its file, which is run; ValueError
    says what is missing.

    Of a file of CUDA C++ the path.
    """
    file, colons, name = request.rpartition("::")
    path = Path(file if colons else name)
    if not path.is_file():
        raise ValueError(
            f"Expected a Python file and a kernel as FILE.py::KERNEL, got {request!r}:"
            f" no file {path}."
        )
    if path.suffix == ".cu":
        return path
    kernels = {
        key: value
        for key, value in vars(_module(path)).items()
        if _is_kernel(value, path)
    }
    if colons and name in kernels:
        return kernels[name]
    if not kernels:
        raise ValueError(
            f"{path} defines no function. Define a kernel in it: `@cuda.jit`, then"
            " `def`."
        )
    near = nearest(name, kernels) if colons else list(kernels)[:5]
    listed = ", ".join(near)
    if len(kernels) > len(near):
        listed += f" and {len(kernels) - len(near)} more"
    raise ValueError(f"Expected FILE.py::KERNEL, got {request!r}. {path} has {listed}.")


def _is_kernel(value: Any, path: Path) -> bool:
    function = getattr(value, "py_func", None) or getattr(value, "fn", None) or value
    if not isinstance(function, types.FunctionType):
        return False
    return function.__code__.co_filename == str(path.resolve())


def _module(path: Path) -> types.ModuleType:
    """A file's module, with the names that it defines; ValueError where running it
    fails.
    """
    spec = importlib.util.spec_from_file_location(_MODULE, path.resolve())
    if spec is None or spec.loader is None:
        raise ValueError(f"Expected a Python file whose name ends in .py, got {path}.")
    module = importlib.util.module_from_spec(spec)
    # as for a script, so that it finds the files beside it
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        words = cut(f"{type(error).__name__}: {error}", 300)
        raise ValueError(
            f"{path} could not be run: {words}. Make `python {path}` work, with what it"
            ' does itself under `if __name__ == "__main__":`.'
        ) from None
    return module


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
    few = (
        "The most is 1 GiB, with 8 bytes or more an element. Trace a smaller problem: a"
        " few blocks are enough."
    )
    too_large = _refused(text, f"There is no memory for an array of that shape. {few}")
    if math.prod(shape) * max(kind.itemsize, 8) > _MOST_BYTES:
        raise too_large
    if fill and fill not in _FILLS:
        raise _refused(text, f"{fill!r} is none of zeros, ones, arange and scalar.")
    try:
        if fill in _FILLS:
            return _FILLS[fill](shape, kind)
        if kind.kind in "iub":
            return draw.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)
        return draw.random(shape).astype(kind)
    except (MemoryError, ValueError):  # ValueError: of more dimensions than numpy's
        raise too_large from None


def _from_file(path: Path) -> Any:
    size = path.stat().st_size if path.is_file() else 0
    if size > _MOST_BYTES:
        raise ValueError(
            f"Expected a file of at most 1 GiB, got {path} of {size:,} B. Save a part"
            " of the array."
        )
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except Exception as error:
        # numpy's own words for a file of another kind are about pickles
        words = "it holds something else"
        if isinstance(error, OSError) and error.strerror:
            words = error.strerror
        raise ValueError(
            f"Expected an array of numbers that numpy.save wrote in {path}: {words}."
        ) from None
    if not isinstance(array, np.ndarray):
        raise ValueError(
            f"Expected one array in {path}, got several. Write each with numpy.save."
        )
    return array


def _refused(text: str, more: str = "") -> ValueError:
    advice = f"{more} {_FORMS}".strip()
    return ValueError(
        f"Expected an argument of a kernel, got {brief_repr(text)}. {advice}"
    )
