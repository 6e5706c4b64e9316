"""What steptime says of loops on a GPU whose kernels are queued, and end later than the
call that launches them: a wait that is left out reads too short a time.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from labkit.core.paths import ROOT
from tests.needs import needs
from tests.rehearsal import environment

pytestmark = [
    pytest.mark.nightly,  # starts torch anew, and builds with g++
    needs("g++"),
    pytest.mark.skipif(sys.platform != "linux", reason="the pretend GPU needs Linux"),
    pytest.mark.skipif(
        torch.version.cuda is not None,
        reason="needs the CPU build of torch, whose CUDA it fills in",
    ),
]
WANTED = {
    "input_bound": ("input", "decode"),
    "launch_bound": ("launch overhead", ""),
    "compute_bound": ("arithmetic", ""),
    "memory_bound": ("memory bandwidth", ""),
    "each_norm_read": ("launch overhead", ""),
    "loss_read_and_logged": ("other host work", "log"),
    "written_beside_the_gpu": ("other host work", "log"),
    "pageable_copies": ("input", ""),
    "resized_on_the_gpu": ("input", "resize"),
}


def said(home, forgotten=""):
    """What is said of each loop by a steptime that leaves such waits out."""
    env = environment(home)
    tests = ROOT / "packages" / "steptime" / "tests"
    env["PYTHONPATH"] += f"{os.pathsep}{tests}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.rehearsal.queued_gpu", forgotten],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return said(tmp_path_factory.mktemp("home"))


def is_right(page, wanted):
    limit, cause = wanted
    return page["limit"] == limit and page["line"].startswith(cause)


@pytest.mark.parametrize("name", WANTED)
def test_a_loop_on_a_queue_is_named_with_its_time(answers, name):
    page = answers["pages"][name]
    assert is_right(page, WANTED[name]), page["text"]
    assert not page["doubt"], page["text"]
    assert page["loop_s"] == pytest.approx(page["real_s"], rel=0.05)
    assert page["took"] < 1.25


def test_a_script_on_a_queue_is_named(answers):
    page = answers["pages"]["script"]
    compute_bound = answers["pages"]["compute_bound"]
    assert page["limit"] == "arithmetic", page["text"]
    assert page["loop_s"] == pytest.approx(compute_bound["real_s"], rel=0.05)


def test_what_the_gpu_does_beside_the_host_is_no_gain(answers):
    for name, mended_s in answers["mended_s"].items():
        page = answers["pages"][name]
        truth = page["real_s"] / mended_s
        assert 0.97 * truth < page["most"] < 1.25 * truth, page["text"]


@pytest.mark.parametrize(
    ("forgotten", "wrong"),
    [
        ("when timing", {"compute_bound", "memory_bound", "resized_on_the_gpu"}),
        ("while watching", {"resized_on_the_gpu"}),
        ("in events", set()),
    ],
)
def test_a_wait_that_is_left_out_shows(tmp_path, forgotten, wrong):
    pages = said(tmp_path, forgotten)["pages"]
    for name in wrong:
        assert not is_right(pages[name], WANTED[name]), pages[name]["text"]
    if forgotten == "while watching":
        assert pages["memory_bound"]["took"] > 2
    if forgotten == "in events":
        assert "device not ready" in pages["script"]["error"]
