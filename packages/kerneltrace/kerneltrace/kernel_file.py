"""Run a Python file that defines kernels where there is no GPU: without its statements
that fail, and without what numba compiles for a GPU at once.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kerneltrace._text import cut
from kerneltrace.ptx.triton import has_triton
from kerneltrace.source.front_end import (
    DEFAULT_CAPABILITY,
    is_simulator,
    pretended_device,
)

# the name that the file has as a module: its own may be that of another
_MODULE = "kernel_file"

Signatures = dict[Any, list[tuple[Any, ...]]]
"""Numba's types of the parameters of functions under @cuda.jit("void(...)")."""


class KernelFile(NamedTuple):
    """What running a file defined."""

    names: dict[str, Any]
    failure: str
    """What failed first in it, such as "line 7, ValueError: ..."; empty if nothing."""
    signatures: Signatures


def run_file(path: Path) -> KernelFile:
    """Run a Python file, statement by statement, and go on after one that fails.

    A name that such a statement would bind is left without a value, so that a kernel
    can't use an older one. ValueError for a file that isn't Python.
    """
    resolved = path.resolve()
    module = types.ModuleType(_MODULE)
    module.__file__ = str(resolved)
    try:
        tree = ast.parse(resolved.read_bytes(), str(resolved))
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"{path} could not be run: {type(error).__name__}: {error}. Pass a file of"
            " Python, or one of CUDA C++ whose name ends in .cu."
        ) from None
    # as for a script, so that it finds the files beside it
    sys.path.insert(0, str(resolved.parent))
    sys.modules[_MODULE] = module
    _stand_in_for_triton()
    futures = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    ]
    failure = ""
    with _nothing_compiled_at_once() as signatures, warnings.catch_warnings():
        # of launches, which fail here
        warnings.simplefilter("ignore")
        for statement in tree.body:
            part = ast.Module([*futures, statement], [])
            code = compile(part, str(resolved), "exec", dont_inherit=True)
            words = _failure(code, vars(module))
            if words and not failure:
                failure = f"line {statement.lineno}, {words}"
    return KernelFile(vars(module), failure, signatures)


def _failure(code: types.CodeType, names: dict[str, Any]) -> str:
    """Run a statement with these names; why it failed, or empty."""
    try:
        exec(code, names)
    except (Exception, SystemExit) as error:
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_NAME", "STORE_GLOBAL"):
                names.pop(instruction.argval, None)
        words = " ".join(str(error).split()).rstrip(" .:")
        return cut(f"{type(error).__name__}: {words}", 300)
    return ""


def _stand_in_for_triton() -> None:
    """Where Triton isn't installed, let the file import what stands in for it."""
    if not has_triton():
        tiles: Any = importlib.import_module("kerneltrace.tiles")
        sys.modules["triton"] = tiles.triton
        sys.modules["triton.language"] = tiles.tl


@contextlib.contextmanager
def _nothing_compiled_at_once() -> Iterator[Signatures]:
    """Note the signatures of kernels under @cuda.jit("void(...)"), which numba would
    compile and load into a GPU as they are decorated.

    Device functions need no driver: numba types them, so that their calls convert what
    they are passed.
    """
    signatures: Signatures = {}
    numba_cuda = importlib.util.find_spec("numba.cuda")
    if numba_cuda is None or is_simulator():
        yield signatures
        return
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher").CUDADispatcher
    compile_one = dispatcher.compile
    disable = dispatcher.disable_compile

    def note(self: Any, kinds: tuple[Any, ...]) -> None:
        signatures.setdefault(self.py_func, []).append(tuple(kinds))

    def disable_others(self: Any, *args: Any) -> None:
        if self.py_func not in signatures:
            disable(self, *args)

    dispatcher.compile = note
    dispatcher.disable_compile = disable_others
    try:
        with pretended_device(DEFAULT_CAPABILITY):
            yield signatures
    finally:
        dispatcher.compile = compile_one
        dispatcher.disable_compile = disable
