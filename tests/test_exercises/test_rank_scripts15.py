import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import labkit as lab
from exercises.nb15.rank_script import as_script, returned
from labkit.core.errors import BadArgument

TORCHRUN = Path(sys.executable).parent / "torchrun"


def summed(value: float, words="a 'word'"):
    dist.init_process_group("gloo")
    total = torch.tensor([value + dist.get_rank()])
    dist.all_reduce(total)
    lab.report(total=total.item())
    return total.item(), words


def sbatch_options(path):
    lines = re.findall(
        r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", path.read_text(), re.MULTILINE
    )
    assert len(lines) == path.read_text().count("#SBATCH")
    return dict(lines)


def loaded(path):
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.complete
def test_the_program_runs_under_torchrun_and_says_what_every_rank_returned(tmp_path):
    scripts = as_script(summed, tmp_path / "new" / "job", 1.5, nproc=2)
    command = [
        str(TORCHRUN),
        "--standalone",
        "--nproc-per-node",
        "2",
        str(scripts.train),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": unbuffered},
            **pipes,
        )
        for unbuffered in ("", "1")
    ]
    for process in both:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        assert dict(returned(out)) == {0: (4.0, "a 'word'"), 1: (4.0, "a 'word'")}
        assert len(re.findall(r"total\W+4(\.0)?\b", out)) == 2, out


def test_the_command_is_the_one_for_a_machine_or_for_each_of_several(tmp_path):
    def options(path):
        command = path.read_text().partition("\nexec ")[2]
        return shlex.split(command.replace("\\\n", " "))

    alone = as_script(summed, tmp_path, 1.0, nproc=4).torchrun
    assert options(alone) == [
        "torchrun",
        "--standalone",
        "--nproc-per-node=4",
        "--max-restarts=0",
        "train.py",
    ]
    several = as_script(
        summed, tmp_path, 1.0, nproc=8, nnodes=3, rendezvous="node7:12345", restarts=5
    ).torchrun
    assert options(several) == [
        "torchrun",
        "--nnodes=3",
        "--rdzv-backend=c10d",
        "--rdzv-id=labkit",
        "--rdzv-endpoint=$RENDEZVOUS",
        "--nproc-per-node=8",
        "--max-restarts=5",
        "train.py",
    ]
    assert "\nRENDEZVOUS=node7:12345\n" in several.read_text()


def test_the_slurm_job_asks_for_the_nodes_the_gpus_and_the_time(tmp_path):
    job = as_script(summed, tmp_path, 1.0, nproc=8, nnodes=128, hours=36.505).slurm
    options = sbatch_options(job)
    assert options.pop("output")
    assert options == {
        "job-name": "summed",
        "nodes": "128",
        "ntasks-per-node": "1",
        "gpus-per-node": "8",
        "exclusive": "",
        "time": "36:31:00",
        "requeue": "",
        "open-mode": "append",
    }
    text = job.read_text()
    # sbatch reads no option below the first command
    assert text.index("#SBATCH") < text.index("set -euo")
    assert '--nnodes="$SLURM_NNODES"' in text
    assert text.count('"${nodes[0]}:$port"') == 1


def test_the_slurm_job_starts_torchrun_on_every_node_with_the_first_as_the_meeting_place(
    tmp_path,
):
    """Slurm's own commands are replaced by ones that say how they were called."""
    as_script(summed, tmp_path, 1.0, nproc=2, nnodes=3)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (
        ("srun", 'printf "%s\\n" "$@"'),
        ("scontrol", "printf 'n1\\nn2\\nn3\\n'"),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    slurm = {
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_ID": "41",
        "SLURM_NNODES": "3",
    }
    environment = {**os.environ, **slurm, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.slurm")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[words.index("torchrun") :] == [
        "torchrun",
        "--nnodes=3",
        "--nproc-per-node=2",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        "--rdzv-id=41",
        "--rdzv-endpoint=n1:20041",
        "train.py",
    ]


def test_arguments_are_written_as_they_were(tmp_path):
    def given(*values):
        return values

    values = (1, -2.5e-7, 'it\'s "so"\n{x}', [1, (2, 3)], {"a": None}, True)
    script = as_script(given, tmp_path, *values, nproc=1).train
    written = re.search(r"returned = given\((.*)\)\n", script.read_text())[1]
    assert eval(f"({written},)", {}) == values
    assert loaded(script).given(3) == (3,)


SIZE = 3


def notebook_names(rate=SIZE):
    return rate


def uses_another():
    return notebook_names()


def test_names_of_the_notebook_are_refused_in_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(
        BadArgument,
        match=(
            r"^Expected notebook_names to define all that it uses, but SIZE is the"
            r" .*\.$"
        ),
    ):
        as_script(notebook_names, tmp_path, nproc=1)
    # as a cell's functions are
    monkeypatch.setattr(notebook_names, "__module__", "__main__")
    with pytest.raises(BadArgument, match="but notebook_names is the notebook's"):
        as_script(uses_another, tmp_path, nproc=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fn": lambda value: 1}, "Expected a function made with def"),
        ({"fn": 5}, "Expected fn to be a function, got 5"),
        ({"nproc": 0}, "Expected nproc to be a whole number of at least 1, got 0"),
        ({"nnodes": 1.5}, "Expected nnodes"),
        ({"hours": 0}, "Expected hours to be a finite number above 0"),
        ({"rendezvous": "node1"}, "Expected rendezvous to be 'host:port'"),
        ({"rendezvous": "node1:99999"}, "Expected rendezvous"),
        ({"rendezvous": "a b:1; rm -r x:2"}, "Expected rendezvous"),
        (
            {"args": ()},
            (
                "summed can't be called with these 0 arguments: missing a required"
                " argument: 'value'"
            ),
        ),
        (
            {"args": (torch.ones(2),)},
            "Expected arguments that can be written in a program",
        ),
        ({"args": (float("nan"),)}, "Expected arguments that can be written"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_written(
    tmp_path, changed, words
):
    given = {
        "fn": summed,
        "args": (1.0,),
        "nproc": 2,
        "nnodes": 2,
        "rendezvous": None,
        "hours": 1,
    } | changed
    fn = given.pop("fn")
    args = given.pop("args")
    with pytest.raises(BadArgument, match=re.escape(words)):
        as_script(fn, tmp_path / "x", *args, **given)
    assert not (tmp_path / "x").exists()
