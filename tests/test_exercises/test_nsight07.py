import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from exercises.nb07 import planted
from exercises.nb07.nsight import (
    as_script,
    in_lines,
    ncu_command,
    nsys_command,
    nsys_stats_command,
)
from exercises.nb07.nsight_reports import copying_percent, published
from labkit.core.errors import BadArgument
from labkit.measure import catalog


def saved(folder, text, name="step-ncu.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


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
    assert (
        text.index("profiler.start()")
        < text.rindex("self_contained()")
        < text.index("profiler.stop()")
    )
    assert "range(2)" in text
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False
    )
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
        with pytest.raises(
            BadArgument,
            match=r"Expected (work to be )?a function (of no|without) arguments",
        ):
            as_script(wrong, tmp_path / "a.py")
    assert not (tmp_path / "a.py").exists()


def test_the_commands_are_exact(tmp_path):
    plain = saved(tmp_path, "x = 1", "a b.py")
    stem = str(tmp_path / "a b")
    assert shlex.split(nsys_command(plain)) == [
        "nsys",
        "profile",
        "--trace=cuda,nvtx,osrt",
        f"--output={stem}",
        "--force-overwrite=true",
        sys.executable,
        f"{stem}.py",
    ]
    assert shlex.split(nsys_stats_command(plain)) == [
        "nsys",
        "stats",
        "--report=cuda_gpu_kern_sum",
        "--force-export=true",
        f"{stem}.nsys-rep",
    ]
    assert shlex.split(ncu_command(plain, launches=20)) == [
        "ncu",
        "--set",
        "basic",
        "--nvtx",
        "--clock-control",
        "none",
        "--target-processes",
        "all",
        "--launch-count",
        "20",
        sys.executable,
        f"{stem}.py",
    ]
    assert f"'{stem}.py'" in nsys_command(plain)


def test_a_command_in_lines_is_the_same_command():
    path = "/home/somebody/a folder/" + 60 * "x"
    command = shlex.join(["ncu", "--set", "basic", *9 * ["--nvtx", "off"], path, path])
    printed = in_lines(command, width=60)
    assert shlex.split(printed.replace(" \\\n", "")) == shlex.split(command)
    assert all(len(line) <= 60 or path in line for line in printed.splitlines())
    assert in_lines("ncu --nvtx a.py") == "ncu --nvtx a.py"


def test_a_marked_range_limits_what_is_recorded(tmp_path):
    path = as_script(self_contained, tmp_path / "a.py")
    assert "--capture-range=cudaProfilerApi" in nsys_command(path)
    assert "--capture-range-end=stop" in nsys_command(path)
    assert "--profile-from-start off" in ncu_command(path)


def test_a_published_report_keeps_the_tools_own_tables_and_names_its_source():
    darts = published("darts")
    assert [part.title for part in darts.tables()] == [
        "cuda_api_sum",
        "cuda_gpu_kern_sum",
        "cuda_gpu_mem_time_sum",
    ]
    words = str(darts)
    assert "196,623,264" in words
    assert "(CC BY 4.0): https://github.com/AaltoSciComp/scicomp-docs/blob/" in words
    assert "Blackwell" in published("matmul")._repr_html_()


def test_the_reports_agree_with_themselves():
    """Percentages, ratios and sums that a report prints follow from its other rows."""
    tiny = published("tiny")
    per_launch_ns = tiny.value("cudaLaunchKernel", "Med (ns)")
    assert per_launch_ns > tiny.value("vectorAdd", "Med (ns)")
    loop_ns = tiny.value("Profile_Loop", "Total Time (ns)")
    assert 1000 * per_launch_ns == pytest.approx(loop_ns, rel=0.2)
    darts = published("darts")
    kernels_ns = [
        darts.value(name, "Total Time (ns)") for name in ("throw_dart", "setup_rng")
    ]
    share = darts.value("throw_dart", "Time (%)")
    assert 100 * kernels_ns[0] / sum(kernels_ns) == pytest.approx(share, abs=0.05)
    in_calls_ns = darts.value("cudaMemcpy", "Total Time (ns)")
    assert sum(kernels_ns) / in_calls_ns == pytest.approx(0.967, abs=1e-3)
    kernel = published("throw_dart")
    limits = [row["value"] for row in kernel.rows if "Block Limit" in row["row"]]
    v100 = catalog.find("Tesla V100 SXM2 32GB")
    fit = v100.sms * min(map(float, limits))
    waves = kernel.value("Grid Size") / fit
    assert waves == pytest.approx(kernel.value("Waves Per SM"), abs=0.005)
    transpose = published("transpose")
    used = transpose.value("bytes used of each sector loaded", "naive")
    loaded = transpose.value("sectors per load request", "naive")
    assert 100 * (32 * 8 / 32) / loaded == used


def test_a_number_that_a_report_has_not_is_refused():
    with pytest.raises(BadArgument, match="which name 0"):
        published("darts").value("cudaMemcpy")
    with pytest.raises(BadArgument, match="Expected published report to be one of"):
        published("dart board")


def test_the_device_copied_for_a_small_part_of_cudamemcpy():
    # both copies of the device over both calls of the host, in ns
    right = 100 * (41_055 + 22_784) / 13_852_441
    assert copying_percent(published("darts")) == pytest.approx(right)


@pytest.mark.parametrize(
    ("lane", "arithmetic", "evidence"),
    [
        ("device", "forward", True),
        ("device", "backward", False),
        ("host", "forward", None),
    ],
)
def test_the_profile_alone_is_judged_where_it_saw_a_gpu(lane, arithmetic, evidence):
    largest = {
        "input": "input",
        "launch overhead": "gaps",
        "memory bandwidth": "forward",
        "arithmetic": arithmetic,
    }
    profile = SimpleNamespace(spans=[SimpleNamespace(lane=lane)])
    assert planted.named_by_profile(largest, profile) is evidence
    assert (
        f"arithmetic planted: most time in {arithmetic}"
        in planted.in_words(largest)["because"]
    )
