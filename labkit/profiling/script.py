"""Write what a cell does as a program of its own, which a profiler can run."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from labkit.arguments import check_number, shown
from labkit.errors import BadMeasurement

_FUNCTION = """\
# Written by labkit.profiling.as_script: profilers start with the marked call, the ones before warm up.
import torch
{imports}

{source}

def _wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()

for _ in range({warm_ups}):
    {name}()
_wait()
if torch.cuda.is_available():
    torch.cuda.profiler.start()
{name}()
_wait()
if torch.cuda.is_available():
    torch.cuda.profiler.stop()
"""


def as_script(work: Callable[[], object] | str, path: str | Path, *, warm_ups: int = 3) -> Path:
    """Write `work` to a Python file that nsys and ncu can run, and return its path.

    Text is written as it is. A function without arguments is written with the imports of the modules that it uses,
    then called `warm_ups` times, and once more between cudaProfilerStart and cudaProfilerStop, so that a profiler sees
    that call alone. It has to make all else itself: nothing of the notebook is there. Raises BadMeasurement for a
    function that uses a name of the notebook, and for text that is no Python.
    """
    text = work if isinstance(work, str) else _calling(work, warm_ups)
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise BadMeasurement(
            f"Expected the text of a Python program, got something else in line {error.lineno} ({error.msg}). "
            "Leave out lines that begin with % or !, which only a notebook understands."
        ) from error
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    return target


def _calling(work: Any, warm_ups: int) -> str:
    """A program that defines the function `work` and calls it."""
    check_number("warm_ups", warm_ups, least=0, whole=True, advice="It counts calls.")
    if not inspect.isfunction(work) or work.__name__ == "<lambda>" or inspect.signature(work).parameters:
        raise BadMeasurement(
            f"Expected a function without arguments, made with def, or the text of a program; got {shown(work)}."
        )
    try:
        source = textwrap.dedent(inspect.getsource(work))
    except OSError as error:
        raise BadMeasurement(f"The text of {work.__name__} is not known to Python; pass it as text.") from error
    outside = {name for name in _globals_of(work.__code__) if not hasattr(builtins, name)}
    imports = {name: _import_of(name, work.__globals__.get(name)) for name in sorted(outside)}
    foreign = sorted({name for name, line in imports.items() if not line} | set(work.__code__.co_freevars))
    if foreign:
        raise BadMeasurement(
            f"Expected {work.__name__} to make all that it uses, but {', '.join(foreign)} is the notebook's. "
            "Make it inside the function, or pass the whole program as text."
        )
    lines = "\n".join(imports.values())
    return _FUNCTION.format(imports=lines, source=source, name=work.__name__, warm_ups=warm_ups)


def _import_of(name: str, value: Any) -> str:
    """The line that imports `value` as `name`; empty where it is no module and of none that can be imported."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    home, own = getattr(value, "__module__", None) or "__main__", getattr(value, "__qualname__", "")
    if home == "__main__" or getattr(sys.modules.get(home), own, None) is not value:
        return ""
    return f"from {home} import {own} as {name}"


def _globals_of(code: CodeType) -> Iterator[str]:
    """Names that a function's code, or a function within it, looks up outside of itself."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)
