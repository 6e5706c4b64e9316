"""Write what a cell does to a Python file that a profiler can run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.own_folder import writing
from labkit.core.parameters import Size, checked
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


@checked
def as_script(work: Callable[[], object], path: str | Path, *, warm_ups: Size = 3) -> Path:
    """Write the function `work` to a Python file that nsys and ncu can run, and return its path.

    `work` takes no arguments. It is written with the imports that it needs, then called `warm_ups` times, and once more
    between cudaProfilerStart and cudaProfilerStop, so that a profiler sees only that call. It has to create everything
    else that it uses. Raises BadMeasurement for a function that uses a variable of the notebook, BadArgument for
    anything but a function without arguments, DataError where the file can't be written.
    """
    if not is_plain_function(work) or inspect.signature(work).parameters:
        raise BadArgument(
            f"Expected a function without arguments, made with def; got {brief_repr(work)}. Define one with `def`."
        )
    imports, source = with_imports(work, advice="Create it inside the function.")
    target = Path(path)
    program = _FUNCTION.format(imports=imports, source=source, name=work.__name__, warm_ups=warm_ups)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(program, encoding="utf-8")
    return target
