import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from exercises.nb07.nsight import (
    as_script,
    csv_rows,
    ncu_command,
    nsys_command,
    nsys_stats_command,
    read_report,
)
from labkit.core.errors import BadArgument, DataError

# `nsys stats --format csv`: what it says first, then the columns of cuda_gpu_kern_sum
NSYS = """\
Generating SQLite file step.sqlite from step.nsys-rep
Processing [step.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
70.0,7000000,5,1400000.0,1400000.0,1390000,1410000,7071.1,"void gemm<(int)128, float>(float *, int)"
30.0,3000000,10,300000.0,300000.0,290000,310000,7071.1,relu
"""
_HEADS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value",'
    '"Rule Name","Rule Type","Rule Description"\n'
)


def details(number, kernel, metric, unit, value):
    launch = f'"{number}","1","python3.11","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(4, 1, 1)","0","9.0"'
    return f'{launch},"GPU Speed Of Light Throughput","{metric}","{unit}","{value}","","",""\n'


NCU = (
    "==PROF== Connected to process 4711 (/usr/bin/python3.11)\n"
    '==PROF== Profiling "relu" - 0: 0%....50%....100% - 9 passes\n'
    "a line of the program itself, with a comma\n"
    + _HEADS
    + details(0, "relu", "Duration", "us", "3.20")
    + details(0, "relu", "Registers Per Thread", "register/thread", "16")
    + details(0, "relu", "Achieved Occupancy", "%", "74.48")
    + details(0, "relu", "", "", "")
    + details(1, "gemm", "Duration", "ns", "1,024")
    + details(1, "gemm", "Achieved Occupancy", "%", "12.50")
    + "==PROF== Disconnected from process 4711\n"
)
RAW = (
    "==PROF== Connected\n"
    '"ID","Kernel Name","dram__bytes_read.sum","gpu__time_duration.sum"\n'
    '"","","byte","ns"\n'
    '"0","relu","1,048,576","3200"\n'
)
REFUSED = (
    "==PROF== Connected to process 1\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0.\n==WARNING== No kernels were profiled.\n"
)


def saved(folder, text, name="step-ncu.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_kernels_of_nsys_with_their_times(tmp_path):
    found = read_report(saved(tmp_path, NSYS, "step_cuda_gpu_kern_sum.csv"))
    assert found.headings == ("Time (%)", "Total Time", "Instances", "Avg", "Min", "Max", "Name")
    assert found.rows[0][:4] == ("70.0", "7.00 ms", "5", "1.40 ms")
    assert found.rows[0][-1] == "void gemm<(int)128, float>(float *, int)"
    assert len(found.rows) == 2
    assert "step_cuda_gpu_kern_sum.csv" in found.title


def test_other_reports_of_nsys_are_read_by_their_header(tmp_path):
    text = (
        "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
        "100.0,5000,2,2500.0,2500.0,2400,2600,100.0,[CUDA memcpy Host-to-Device]\n"
    )
    assert read_report(saved(tmp_path, text)).rows[0][-1] == "[CUDA memcpy Host-to-Device]"


def test_launches_of_ncu_with_the_metrics_that_are_there(tmp_path):
    found = read_report(saved(tmp_path, NCU))
    assert found.headings == ("kernel", "Duration", "Registers Per Thread", "Achieved Occupancy")
    assert found.rows == (
        ("relu", "3.20 µs", "16 register/thread", "74.48 %"),
        ("gemm", "1.02 µs", "", "12.50 %"),
    )


def test_metrics_that_nobody_foresaw_are_shown_as_they_are(tmp_path):
    found = read_report(saved(tmp_path, _HEADS + details(0, "relu", "lts__t_sectors.sum", "sector", "64")))
    assert found.headings == ("kernel", "lts__t_sectors.sum")
    assert found.rows == (("relu", "64 sector"),)


def test_rows_of_the_raw_page_begin_with_the_units():
    units, row = csv_rows(RAW)
    assert (units["gpu__time_duration.sum"], row["gpu__time_duration.sum"]) == ("ns", "3200")


def test_counters_that_may_not_be_read_give_one_sentence_with_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"not allowed to read.*ERR_NVGPUCTRPERM.*ToAdminUsers=0") as error:
        read_report(saved(tmp_path, REFUSED))
    assert "\n" not in str(error.value)
    assert "--cap-add=SYS_ADMIN" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Did the script run a kernel on the GPU"),
        ("==WARNING== No kernels were profiled.\n", "It says: ==WARNING== No kernels were profiled"),
        ("==ERROR== The application returned an error code (1).\n", r"It says: ==ERROR== The application returned"),
        (NSYS.splitlines(keepends=True)[3], "found no row"),
        ("words, and, commas\nmore, and, more\n", "found no row"),
    ],
)
def test_a_file_without_a_table_says_why(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_report(saved(tmp_path, text))


def test_a_missing_file_says_how_to_make_it(tmp_path):
    with pytest.raises(DataError, match=r"FileNotFoundError.*ncu_command\(script\), on a machine with a GPU"):
        read_report(tmp_path / "none.csv")


def test_a_line_that_was_cut_off_is_left_out():
    assert len(csv_rows(NSYS + "1.0,30")) == 2


def self_contained():
    model = torch.nn.Linear(4, 2)

    def loss():
        return functional.relu(model(torch.ones(1, 4))).sum()

    loss().backward()


@pytest.mark.slow
def test_a_function_becomes_a_program_that_runs_alone(tmp_path):
    path = as_script(self_contained, tmp_path / "new" / "step.py", warm_ups=2)
    text = path.read_text(encoding="utf-8")
    assert "import torch.nn.functional as functional\n" in text
    assert text.index("profiler.start()") < text.rindex("self_contained()") < text.index("profiler.stop()")
    assert "range(2)" in text
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def uses_the_notebook():
    return self_contained, MISSING  # noqa: F821


def test_what_belongs_to_the_notebook_is_named(tmp_path):
    held = torch.ones(3)

    def closure():
        held.sum()

    with pytest.raises(BadArgument, match="but held is the notebook's"):
        as_script(closure, tmp_path / "a.py")
    with pytest.raises(BadArgument, match="but MISSING is the notebook's"):
        as_script(uses_the_notebook, tmp_path / "a.py")
    for wrong in (lambda: None, print, 5, subprocess.run):
        with pytest.raises(BadArgument, match=r"Expected (work to be )?a function (of no|without) arguments"):
            as_script(wrong, tmp_path / "a.py")
    assert not (tmp_path / "a.py").exists()


def test_the_commands_are_exact(tmp_path):
    plain = saved(tmp_path, "x = 1", "a b.py")
    stem = str(tmp_path / "a b")
    assert nsys_command(plain).parts == (
        "nsys", "profile", "--trace=cuda,nvtx,osrt", f"--output={stem}", "--force-overwrite=true", sys.executable,
        f"{stem}.py",
    )  # fmt: skip
    assert nsys_stats_command(plain).parts == (
        "nsys", "stats", "--report=cuda_gpu_kern_sum", "--format=csv", f"--output={stem}", "--force-overwrite=true",
        "--force-export=true", f"{stem}.nsys-rep",
    )  # fmt: skip
    assert ncu_command(plain, launches=20).parts == (
        "ncu", "--csv", "--page", "details", "--clock-control", "none", "--set", "basic", "--nvtx", "--launch-count",
        "20", "--target-processes", "all", "--log-file", f"{stem}-ncu.csv", sys.executable, f"{stem}.py",
    )  # fmt: skip
    assert f"'{stem}.py'" in str(nsys_command(plain))


def test_a_marked_range_limits_what_is_recorded(tmp_path):
    path = as_script(self_contained, tmp_path / "a.py")
    assert "--capture-range=cudaProfilerApi" in nsys_command(path).parts
    assert "--capture-range-end=stop" in nsys_command(path).parts
    assert ncu_command(path).parts[-4:-2] == ("--profile-from-start", "off")


def test_metrics_are_asked_for_in_base_units_and_python_arguments_print():
    parts = ncu_command(("-m", "package"), metrics=["dram__bytes_read.sum", "b"]).parts
    assert parts == (
        "ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--metrics",
        "dram__bytes_read.sum,b", sys.executable, "-m", "package",
    )  # fmt: skip
    with pytest.raises(BadArgument, match="Expected launches to be a whole number of at least 1"):
        ncu_command("a.py", launches=0)
