"""Compare what kerneltrace counts with a GPU's own counters, for the textbook kernels,
and keep the comparison.

usage, in the repository's folder, on a machine with a CUDA GPU and ncu: python -m
benchmarks.counters             writes data/recorded/<machine>-counters.jsonl python -m
benchmarks.counters --launch    launch each kernel once (what ncu is pointed at)

In the file a measurement is the GPU's counter, and its prediction is what lab.trace
counts for the same launch.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import labkit as lab
from kerneltrace import Trace
from labkit.core import results
from labkit.core.display import Table, cut
from labkit.core.errors import DataError
from labkit.core.paths import RECORDED
from labkit.core.results import Measurement
from labkit.measure.machine import machine
from test_kerneltrace.textbook import ENTRIES, Entry

REPOSITORY = Path(__file__).parents[1]

# (what, unit) -> the counter's name in Nsight Compute and what to ask of the trace.
# Shared loads and stores count wavefronts; a wavefront beyond the first of a request is
# a bank conflict.
COUNTERS = {
    ("global loads", "requests"): (
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
        "global",
        "load",
    ),
    ("global loads", "sectors"): (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "global",
        "load",
    ),
    ("global stores", "requests"): (
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
        "global",
        "store",
    ),
    ("global stores", "sectors"): (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        "global",
        "store",
    ),
    ("shared loads", "wavefronts"): (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "shared",
        "load",
    ),
    ("shared stores", "wavefronts"): (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "shared",
        "store",
    ),
}

_NOT_ALLOWED = (
    "ncu was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM): run it as"
    " administrator, in a container started with --cap-add=SYS_ADMIN, or let everyone"
    " read them with the line 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in"
    " /etc/modprobe.d/ and a restart; on a rented machine ask its owner"
    " (developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


def launch() -> None:
    """Launch every textbook kernel once, in order."""
    from numba import cuda

    for entry in ENTRIES:
        cuda.jit(entry.kernel)[entry.grid, entry.block](*entry.args(cuda.to_device))
    cuda.synchronize()


def traced(entry: Entry) -> Trace:
    """The trace of an entry."""
    return lab.trace(
        entry.kernel, entry.grid, entry.block, *entry.args(lambda array: array)
    )


def counted() -> list[dict[str, float]]:
    """For each launch, in order, the value of each counter, read by ncu in a process of
    its own.
    """
    names = [name for name, _, _ in COUNTERS.values()]
    command = [
        "ncu",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--clock-control",
        "none",
    ]
    command += [
        "--metrics",
        ",".join(names),
        sys.executable,
        "-m",
        "benchmarks.counters",
        "--launch",
    ]
    environment = {**os.environ, "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"}
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=REPOSITORY,
    )
    try:
        _units, *rows = csv_rows(f"{completed.stdout}\n{completed.stderr}")
    except DataError as error:
        sys.exit(
            f"ncu could not read the counters. {error}\n{completed.stderr[-2000:]}"
        )
    if completed.returncode:
        output = f"{completed.stdout[-2000:]}\n{completed.stderr[-2000:]}"
        sys.exit(f"ncu ended with status {completed.returncode}:\n{output}")
    return [{name: float(row[name].replace(",", "")) for name in names} for row in rows]


def csv_rows(text: str) -> list[dict[str, str]]:
    """The rows, by column, of the table in the output of ncu; DataError says why there
    is none.
    """
    lines = text.splitlines()
    begin = next(
        (
            i
            for i, line in enumerate(lines)
            if next(csv.reader([line]), [])[:1] == ["ID"]
        ),
        len(lines),
    )
    # lines that begin with == are the tool's messages, not rows
    heads, *rows = [
        *csv.reader(
            line for line in lines[begin:] if line.strip() and not line.startswith("==")
        )
    ] or [[]]
    if by_column := [
        dict(zip(heads, row, strict=True)) for row in rows if len(row) == len(heads)
    ]:
        return by_column
    if "ERR_NVGPUCTRPERM" in text:
        raise DataError(_NOT_ALLOWED)
    reason = next(
        (
            line
            for line in lines
            if "==ERROR==" in line or "No kernels were profiled" in line
        ),
        "",
    )
    hint = (
        f" It says: {cut(reason.strip(), 200)}"
        if reason
        else " Did the script run a kernel on the GPU?"
    )
    raise DataError(f"Expected a table of ncu as CSV, found no row.{hint}")


def compare(entry: Entry, values: dict[str, float]) -> list[Measurement]:
    """One measurement a counter: the GPU's value, with the trace's as
    its prediction.
    """
    here = machine()
    trace = traced(entry)
    measurements = []
    for (what, unit), (counter, space, kind) in COUNTERS.items():
        predicted = getattr(trace.count(space=space, kind=kind), unit)
        if predicted or values[counter]:
            measurements.append(
                Measurement(
                    "04.0",
                    f"{entry.name}: {unit} of {what}",
                    values[counter],
                    unit,
                    "measured",
                    here.name,
                    results.now(),
                    predicted=float(predicted),
                    versions=here.versions,
                )
            )
    return measurements


def main() -> None:
    """Compare all entries, print those that differ, and write the file."""
    if not machine().gpus or not shutil.which("ncu"):
        sys.exit(
            "This comparison needs a CUDA GPU and ncu, NVIDIA's Nsight Compute. Nothing"
            " was compared."
        )
    counters = counted()
    if len(counters) != len(ENTRIES):
        sys.exit(
            f"ncu saw {len(counters)} launches, expected {len(ENTRIES)}: nothing was"
            " written."
        )
    measurements = [
        m
        for entry, values in zip(ENTRIES, counters, strict=True)
        for m in compare(entry, values)
    ]
    differ = [m for m in measurements if not np.isclose(m.value, m.predicted or 0.0)]
    path = RECORDED / f"{machine().slug}-counters.jsonl"
    lines = "".join(results.to_line(m) + "\n" for m in measurements)
    path.write_text(lines, encoding="utf-8")
    rows = tuple((m.what, f"{m.value:,.0f}", f"{m.predicted:,.0f}") for m in differ)
    agree = len(measurements) - len(differ)
    note = f"{agree} of {len(measurements)} counters agree; all are in {path}"
    print(
        Table(
            rows,
            ("counter", "GPU", "lab.trace"),
            "Where the GPU's counters differ",
            (note,),
        )
        if rows
        else note
    )


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["--launch"] else main()
