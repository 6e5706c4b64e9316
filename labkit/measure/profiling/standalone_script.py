"""Write what a cell does to a Python file that a profiler can run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.core.arguments import check_number
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.measure.source_text import is_plain_function, with_imports

_FUNCTION = """\
# Written by lab.profiling.as_script: profilers start with the marked call, the ones before warm up.
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

    Text is written as it is. A function without arguments is written with the imports that it needs, then called
    `warm_ups` times, and once more between cudaProfilerStart and cudaProfilerStop, so that a profiler sees only that
    call. It has to create everything else that it uses. Raises BadMeasurement for a function that uses a variable of
    the notebook, BadArgument for a function with arguments and for text that isn't Python.
    """
    text = work if isinstance(work, str) else _calling(work, warm_ups)
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise BadArgument(
            f"Expected the text of a Python program, got a syntax error in line {error.lineno} ({error.msg}). "
            "Leave out lines that begin with % or !, which only a notebook understands."
        ) from error
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    return target


def _calling(work: Any, warm_ups: int) -> str:
    """A program that defines the function `work` and calls it."""
    check_number("warm_ups", warm_ups, least=0, whole=True, advice="It counts calls.")
    if not is_plain_function(work) or inspect.signature(work).parameters:
        raise BadArgument(
            f"Expected a function without arguments, made with def, or the text of a program; got {brief_repr(work)}."
        )
    imports, source = with_imports(work, advice="Create it inside the function, or pass the whole program as text.")
    return _FUNCTION.format(imports=imports, source=source, name=work.__name__, warm_ups=warm_ups)
