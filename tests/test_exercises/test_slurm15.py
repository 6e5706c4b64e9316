"""Slurm on two hosts, with the job that as_script writes: needs root, iproute2,
slurm-wlm and munge.
"""

import subprocess
import time
from pathlib import Path

import pytest
import torch

from exercises.nb15 import slurm
from exercises.nb15.namespace_hosts import NAMES, two_hosts
from exercises.nb15.rank_script import as_script, returned
from exercises.nb15.slurm import SlurmCluster, slurm_missing
from labkit.core.errors import LabError
from tests.needs import needs
from tests.test_exercises.test_two_hosts15 import needs_hosts, ours

DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd", "torchrun")


def needs_slurm(test):
    return needs("slurmctld")(needs_hosts(test))


def counted(folder, until):
    """Sums of both ranks, each noted in a file, from where the file ends; as many as
    `until`.
    """
    import socket
    from pathlib import Path

    import torch.distributed as dist

    dist.init_process_group("gloo")
    saved = Path(folder, "saved")
    first = len(saved.read_text()) if saved.exists() else 0
    for _ in range(first, until):
        total = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(total)
        time.sleep(0.02)
        if dist.get_rank() == 0:
            with saved.open("a") as file:
                file.write(".")
    return socket.gethostname(), first, total.item()


def running_here():
    """The process numbers and command lines of the daemons and ranks that run on this
    machine.
    """
    listed = subprocess.run(
        ["ps", "-eo", "pid,comm,args"], capture_output=True, text=True, check=True
    ).stdout
    ours = {
        line
        for line in listed.splitlines()
        if line.split()[1] in DAEMONS or "labkit-hosts" in line
    }
    return {line for line in ours if "<defunct>" not in line}


@pytest.fixture(scope="module")
def cluster():
    before = running_here()
    with two_hosts() as hosts:
        yield SlurmCluster(hosts)
        folder = hosts.folder
        assert running_here() > before
    assert running_here() - before == set()
    assert not folder.exists()
    assert ours() == []


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Writes a function's job for two nodes without GPUs; a job's ranks import torch,
    which takes them seconds.
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return lambda fn, *args, **options: (
        as_script(fn, tmp_path, *args, nproc=1, nnodes=2, gpus=False, **options).slurm
    )


def output(job):
    return "".join(path.read_text() for path in job.parent.glob("*.out"))


@needs_slurm
def test_a_job_whose_node_dies_starts_again_on_both_and_goes_on(cluster, job, tmp_path):
    written = job(counted, str(tmp_path), 400, restarts=1)
    number = cluster.submit(written)
    cluster.wait((tmp_path / "saved").exists, "the first sum")
    assert cluster.job(number)["NodeList"] == "host-a,host-b"
    cluster.power_off("host-b")
    assert cluster.wait_for(number, "PENDING")["Restarts"] == "1"
    cluster.power_on("host-b")
    assert cluster.wait_for(number, "COMPLETED")["Restarts"] == "1"
    ends = dict(returned(output(written))).values()
    assert sorted(host for host, _, _ in ends) == sorted(NAMES)
    assert {(first > 0, total) for _, first, total in ends} == {(True, 3.0)}
    assert len((tmp_path / "saved").read_text()) == 400


@needs_slurm
def test_what_a_command_of_slurm_refuses_is_told(cluster, tmp_path):
    (tmp_path / "job.slurm").write_text("no script\n")
    with pytest.raises(
        LabError,
        match=(
            r"sbatch --parsable job.slurm ended with exit status 1: .*does not look"
            r" like a batch script"
        ),
    ):
        cluster.submit(tmp_path / "job.slurm")


def test_without_slurm_a_sentence_says_what_adds_it(monkeypatch):
    monkeypatch.setattr(
        slurm.shutil, "which", lambda name: None if name == "slurmd" else name
    )
    assert (
        slurm_missing()
        == "Slurm isn't installed here: slurmd missing. On Debian and Ubuntu, `make"
        " programs` adds it."
    )
