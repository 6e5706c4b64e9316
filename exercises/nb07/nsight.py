"""Commands that run NVIDIA's profilers, Nsight Systems (nsys) and Nsight Compute (ncu),
and programs for them.

Both profile a whole program: `as_script` writes what a cell does to one. A command is
text for a shell, as in `!{command}` in a cell. Sources for options and reports: Nsight
Systems User Guide and Nsight Compute CLI documentation (docs.nvidia.com).
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from exercises.source_text import is_plain_function, with_imports
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.own_folder import writing
from labkit.core.parameters import Count, Size, checked

_PROGRAM = Path(__file__).with_name("profiled.py.in").read_text(encoding="utf-8")


@checked
def nsys_command(script: str | Path) -> str:
    """The command that records a timeline of `script` with Nsight Systems, to
    <script>.nsys-rep beside it.

    It has CUDA calls and kernels, NVTX ranges and calls of the operating system. If the
    script calls torch.cuda.profiler.start(), recording begins there and ends at stop().
    """
    path = Path(script)
    stem = _stem(script)
    capture = (
        ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
        if _marks_a_range(path)
        else ()
    )
    options = (
        "--trace=cuda,nvtx,osrt",
        *capture,
        f"--output={stem}",
        "--force-overwrite=true",
    )
    return shlex.join(("nsys", "profile", *options, sys.executable, str(path)))


@checked
def nsys_stats_command(script: str | Path, *, report: str = "cuda_gpu_kern_sum") -> str:
    """The command that prints a report on the recording of nsys_command(script).

    Reports: 'cuda_gpu_kern_sum' (kernels), 'cuda_api_sum' (calls on the host),
    'cuda_gpu_mem_time_sum' (copies), 'nvtx_sum' (ranges); `nsys stats --help-reports`
    lists all.
    """
    # Without --force-export, nsys would report on an earlier recording.
    return shlex.join(
        (
            "nsys",
            "stats",
            f"--report={report}",
            "--force-export=true",
            f"{_stem(script)}.nsys-rep",
        )
    )


@checked
def ncu_command(script: str | Path, *, launches: Count | None = None) -> str:
    """The command that prints what the GPU's counters say of each kernel of `script`,
    by Nsight Compute's set 'basic'.

    `launches` limits the number of launches measured. If the script calls
    torch.cuda.profiler.start(), measuring begins there. ncu repeats each kernel a few
    times, so the script runs much longer.
    """
    path = Path(script)
    _stem(path)
    # ncu would lock the base clock, and durations would be longer than without it
    options = [
        "--set",
        "basic",
        "--nvtx",
        "--clock-control",
        "none",
        "--target-processes",
        "all",
    ]
    options += [] if launches is None else ["--launch-count", str(launches)]
    options += ["--profile-from-start", "off"] if _marks_a_range(path) else []
    return shlex.join(["ncu", *options, sys.executable, str(path)])


def in_lines(command: str, *, width: int = 88) -> str:
    """The command in lines of at most `width` characters, as far as its arguments are
    short enough: each but the last ends in a backslash, so that a shell runs it.
    """
    first, *rest = map(shlex.quote, shlex.split(command))
    lines = [first]
    for argument in rest:
        longer = f"{lines[-1]} {argument}"
        if len(longer) + len(" \\") > width:
            lines.append(f"    {argument}")
        else:
            lines[-1] = longer
    return " \\\n".join(lines)


def _stem(script: str | Path) -> Path:
    if not Path(script).name:
        raise BadArgument(
            f"Expected script to be the path of a file, got {str(script)!r}."
        )
    return Path(script).with_suffix("")


def _marks_a_range(path: Path) -> bool:
    """Whether the script at `path`, which need not exist yet, limits what is profiled
    to a part of it.
    """
    return path.is_file() and "profiler.start(" in path.read_text(encoding="utf-8")


@checked
def as_script(
    work: Callable[[], object], path: str | Path, *, warm_ups: Size = 3
) -> Path:
    """Write the function `work` to a Python file that nsys and ncu can run, and return
    its path.

    `work` takes no arguments. It is written with the imports that it needs, then called
    `warm_ups` times, and once more between cudaProfilerStart and cudaProfilerStop, so
    that a profiler sees only that call. It has to create everything else that it uses.
    Raises BadMeasurement for a function that uses a variable of the notebook,
    BadArgument for anything but a function without arguments, DataError where the file
    can't be written.
    """
    if not is_plain_function(work) or inspect.signature(work).parameters:
        raise BadArgument(
            "Expected a function without arguments, made with def; got"
            f" {brief_repr(work)}. Define one with `def`."
        )
    imports, source = with_imports(work, advice="Create it inside the function.")
    target = Path(path)
    program = _PROGRAM.format(
        imports=imports, source=source, name=work.__name__, warm_ups=warm_ups
    )
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(program, encoding="utf-8")
    return target
