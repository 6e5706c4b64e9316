"""Commands that run NVIDIA's profilers, Nsight Systems (nsys) and Nsight Compute (ncu), their programs and reports.

Both profile a whole program: `as_script` writes what a cell does to one. Sources for options, reports and CSV columns:
Nsight Systems User Guide and Nsight Compute CLI documentation (docs.nvidia.com).
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exercises.source_text import is_plain_function, with_imports
from labkit.core.display import Shown, Table, brief_repr, cut
from labkit.core.errors import BadArgument, DataError
from labkit.core.own_folder import writing
from labkit.core.parameters import Count, Size, checked
from labkit.core.units import format_seconds

# The columns shown of `--set basic`, in this order.
_DETAILS = (
    "Duration",
    "Compute (SM) Throughput",
    "Memory Throughput",
    "DRAM Throughput",
    "Registers Per Thread",
    "Theoretical Occupancy",
    "Achieved Occupancy",
)
_HOW = {
    "nsys": "nsight.nsys_command(script) and nsight.nsys_stats_command(script)",
    "ncu": "nsight.ncu_command(script)",
}
_NOT_ALLOWED = (
    "ncu was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM): run it as administrator, in a container "
    "started with --cap-add=SYS_ADMIN, or let everyone read them with the line 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/ and a restart; on a rented machine ask its owner "
    "(developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


@dataclass(frozen=True, repr=False)
class Command(Shown):
    """A command line: `parts` for subprocess.run, str() for a shell, as in `!{command}` in a cell."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.parts)


@checked
def nsys_command(script: str | Path) -> Command:
    """The command that records a timeline of `script` with Nsight Systems, to <script>.nsys-rep beside it.

    It has CUDA calls and kernels, NVTX ranges and calls of the operating system. If the script calls
    torch.cuda.profiler.start(), recording begins there and ends at stop().
    """
    path, stem = Path(script), _stem(script)
    capture = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop") if _marks_a_range(path) else ()
    options = ("--trace=cuda,nvtx,osrt", *capture, f"--output={stem}", "--force-overwrite=true")
    return Command(("nsys", "profile", *options, sys.executable, str(path)))


@checked
def nsys_stats_command(script: str | Path, *, report: str = "cuda_gpu_kern_sum") -> Command:
    """The command that writes a report on the recording of nsys_command(script), to <script>_<report>.csv beside it.

    Reports: 'cuda_gpu_kern_sum' (kernels), 'cuda_api_sum' (calls on the host), 'cuda_gpu_mem_time_sum' (copies),
    'nvtx_sum' (ranges); `nsys stats --help-reports` lists all.
    """
    stem = _stem(script)
    # Without --force-export, nsys would report on an earlier recording.
    options = ("--format=csv", f"--output={stem}", "--force-overwrite=true", "--force-export=true")
    return Command(("nsys", "stats", f"--report={report}", *options, f"{stem}.nsys-rep"))


@checked
def ncu_command(
    script: str | Path | Sequence[str], *, metrics: Sequence[str] = (), launches: Count | None = None
) -> Command:
    """The command that reads the GPU's counters for each kernel of `script` with Nsight Compute, as CSV.

    By default ncu measures its set 'basic'; `metrics` selects counters instead, in base units, one row per launch.
    `launches` limits the number of launches measured. For a path, the CSV goes to <script>-ncu.csv beside it, and if
    the script calls torch.cuda.profiler.start(), measuring begins there. For a sequence of arguments to Python (such as
    ("-m", "package")), the CSV goes to the terminal. ncu repeats each kernel a few times, so the script runs much
    longer.
    """
    page = ("--page", "raw", "--print-units", "base") if metrics else ("--page", "details")
    what = ("--metrics", ",".join(metrics)) if metrics else ("--set", "basic", "--nvtx")
    clock = ("--clock-control", "none")  # ncu would lock the base clock, and durations would be longer than without it
    count = () if launches is None else ("--launch-count", str(launches))
    files: tuple[str, ...] = ()
    if isinstance(script, str | Path):
        path = Path(script)
        files = ("--target-processes", "all", "--log-file", f"{_stem(path)}-ncu.csv")
        files += ("--profile-from-start", "off") if _marks_a_range(path) else ()
        script = (str(path),)
    return Command(("ncu", "--csv", *page, *clock, *what, *count, *files, sys.executable, *script))


@checked
def read_report(path: str | Path) -> Table:
    """The table in the CSV output of `nsys stats --format csv` or `ncu --csv`, which may begin with other lines.

    It has nsys's kernels with their shares and times, or ncu's launches with their metrics. Raises DataError, with
    what to do, for a missing file, for one without a table, and if ncu had no permission to read the counters.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(
            f"Expected a report at {source}, got {error.__class__.__name__}. "
            f"Run {_HOW['nsys']}, or {_HOW['ncu']}, on a machine with a GPU."
        ) from error
    rows = csv_rows(text)
    return _of_ncu(rows, source.name) if "ID" in rows[0] else _of_nsys(rows, source.name)


def csv_rows(text: str) -> list[dict[str, str]]:
    """The rows, by column, of the first table in the output of nsys or ncu; DataError says why there is none."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    # lines that begin with == are the tool's messages, not rows
    table = [line for line in lines[begin:] if line.strip() and not line.startswith("==")] if begin is not None else []
    heads, *rows = csv.reader(table) if table else [[]]
    found = [dict(zip(heads, row, strict=True)) for row in rows if len(row) == len(heads)]
    if found:
        return found
    if "ERR_NVGPUCTRPERM" in text:
        raise DataError(_NOT_ALLOWED)
    said = next((line for line in lines if "==ERROR==" in line or "No kernels were profiled" in line), "")
    hint = f" It says: {cut(said.strip(), 200)}" if said else " Did the script run a kernel on the GPU?"
    raise DataError(f"Expected a table of nsys or ncu as CSV, found no row.{hint}")


def _is_header(line: str) -> bool:
    cells = next(csv.reader([line]), [])
    return len(cells) > 2 and ("ID" in cells[:1] or bool({"Name", "Operation", "Range"} & set(cells)))


def _of_nsys(rows: list[dict[str, str]], name: str) -> Table:
    """Format times, given in nanoseconds, and cut kernel names, whose template arguments can fill a line."""
    columns = [head for head in rows[0] if not head.startswith(("Med", "StdDev"))]
    headings = tuple(head.replace(" (ns)", "") for head in columns)
    body = tuple(
        tuple(_with_unit(row[head], "ns" if head.endswith("(ns)") else "") for head in columns) for row in rows
    )
    return Table(body, headings, f"Nsight Systems: {name}")


def _of_ncu(rows: list[dict[str, str]], name: str) -> Table:
    """Gather the rows of ncu's page "details", each of which has one metric of a launch, by the launch's ID."""
    launches: dict[str, dict[str, str]] = {}
    for row in rows:
        launch = launches.setdefault(row["ID"], {"kernel": cut(row["Kernel Name"], 60)})
        if row["Metric Name"]:  # rows of advice have none
            launch[row["Metric Name"]] = _with_unit(row["Metric Value"], row.get("Metric Unit", ""))
    measured = list(dict.fromkeys(metric for launch in launches.values() for metric in launch))
    columns = [metric for metric in _DETAILS if metric in measured] or measured[1:]
    body = tuple((launch["kernel"], *(launch.get(column, "") for column in columns)) for launch in launches.values())
    return Table(body, ("kernel", *columns), f"Nsight Compute: {name}")


def _with_unit(value: str, unit: str) -> str:
    """A cell's text; times in any unit are formatted by format_seconds."""
    seconds = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0}
    with contextlib.suppress(KeyError, ValueError):
        return format_seconds(float(value.replace(",", "")) * seconds[unit])
    return cut(f"{value} {unit}".strip(), 60)


def _stem(script: str | Path) -> Path:
    if not Path(script).name:
        raise BadArgument(f"Expected script to be the path of a file, got {str(script)!r}.")
    return Path(script).with_suffix("")


def _marks_a_range(path: Path) -> bool:
    """Whether the script at `path`, which need not exist yet, limits what is profiled to a part of it."""
    return path.is_file() and "profiler.start(" in path.read_text(encoding="utf-8")


_FUNCTION = """\
# Written by nsight.as_script of notebook 07: profilers start with the marked call, the ones before warm up.
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
