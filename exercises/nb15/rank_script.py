"""Write a notebook's function to files that run without it: under torchrun, on one machine or several, or Slurm."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from exercises.source_text import is_plain_function, with_imports
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.kinds import Number
from labkit.core.own_folder import writing
from labkit.core.parameters import Count, checked

PORT = 29500  # torchrun's own default
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_RETURNED = re.compile(r"^rank (\d+) returned (.*)$", re.MULTILINE)

_TRAIN = '''\
"""A function of a notebook, run on every rank that torchrun starts. Written by as_script of notebook 15."""

import os
import sys

import torch
import torch.distributed
{imports}


{source}

if __name__ == "__main__":
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    returned = {name}({arguments})
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if returned is not None:
        # One write, since print writes a line's end apart where output isn't buffered, and ranks would mix.
        sys.stdout.write(f"rank {{os.environ['RANK']}} returned {{returned!r}}\\n")
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo's that still holds a hook's Python objects would abort an orderly end
'''

_TORCHRUN = """\
#!/usr/bin/env bash
# {where}: bash torchrun.sh
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
{rendezvous}
exec torchrun {options} train.py
"""

_SLURM = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --nodes={nnodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={nproc}
#SBATCH --exclusive
#SBATCH --time={time}
#SBATCH --output=%x-%j.out
# In the folder of train.py, with the environment active that has torchrun: sbatch job.slurm
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port=$((20000 + SLURM_JOB_ID % 20000))  # jobs that share a node meet at different ports
# One task a node: torchrun starts the ranks, and they choose their own cores.
srun --kill-on-bad-exit=1 --cpu-bind=none \\
  torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={nproc} --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="${{nodes[0]}}:$port" train.py
"""


class Scripts(NamedTuple):
    """Where the files are: the program, the command for each machine, and the job for Slurm."""

    train: Path
    torchrun: Path
    slurm: Path


@checked
def as_script(
    fn: Callable[..., object],
    folder: str | Path,
    *args: Any,
    nproc: Count,
    nnodes: Count = 1,
    rendezvous: str | None = None,
    hours: Annotated[float, Number(above=0, most=10_000)] = 1,
) -> Scripts:
    """Write train.py, torchrun.sh and job.slurm to `folder`; they do what `lab.launch(fn, nproc, *args)` does.

    train.py is the function with the imports of the modules that it uses; it calls it with `args`, and prints what each
    rank returned. torchrun.sh starts `nproc` ranks on one machine. With `nnodes` above 1, run it on each of them: they
    meet at `rendezvous`, "host:port" of one, or without it at $RENDEZVOUS. job.slurm asks for `nnodes` machines with
    `nproc` GPUs each for `hours`, and needs no rendezvous. Raises BadArgument for a function
    that uses names of the notebook, and for arguments that can't be written as text; DataError where files can't be.

    Run these files only in a network of machines whose users you trust. torchrun's store listens on every network
    interface and has no password (--standalone too), and gloo and NCCL don't encrypt: whoever reaches their ports can
    read what ranks send, change it or join as a rank, and run code as you, since all_gather_object unpickles what it
    receives. A private network or a firewall is what keeps others out. On one machine `lab.launch` needs no such trust.
    """
    if not is_plain_function(fn):
        raise BadArgument(f"Expected a function made with def, got {brief_repr(fn)}.")
    imports, source = with_imports(fn, advice="Make it inside the function, or pass it as an argument.")
    start = _torchrun(nproc, nnodes, rendezvous)
    minutes = math.ceil(hours * 60)
    time = f"{minutes // 60:02d}:{minutes % 60:02d}:00"  # as Slurm reads it: HH:MM:SS
    job = _SLURM.format(name=fn.__name__, nnodes=nnodes, nproc=nproc, time=time)
    train = _TRAIN.format(imports=imports, source=source, name=fn.__name__, arguments=_literals(fn, args))
    scripts = Scripts(*(Path(folder) / name for name in ("train.py", "torchrun.sh", "job.slurm")))
    for path, text in zip(scripts, (train, start, job), strict=True):
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    return scripts


@checked
def returned(output: str) -> Iterator[tuple[int, Any]]:
    """(rank, value) of each line in which train.py says what its function returned."""
    for rank, text in _RETURNED.findall(output):
        try:
            yield int(rank), ast.literal_eval(text)
        except (ValueError, SyntaxError):  # not a literal, such as a tensor: keep its text
            yield int(rank), text


def _torchrun(nproc: int, nnodes: int, rendezvous: str | None) -> str:
    endpoint = _ENDPOINT.fullmatch(rendezvous or "")
    # Strictly, since it becomes a part of a shell script.
    if rendezvous is not None and not (endpoint and 0 < int(endpoint[2]) < 65536):
        raise BadArgument(
            f"Expected rendezvous to be 'host:port', such as 'node1:{PORT}', got {brief_repr(rendezvous)}."
        )
    if nnodes == 1:
        return _TORCHRUN.format(
            where="On this machine", rendezvous="", options=f"--standalone --nproc-per-node={nproc}"
        ).replace("\n\n", "\n")
    if rendezvous is None:
        line = f': "${{RENDEZVOUS:?set it to host:port of one of the machines, such as node1:{PORT}}}"'
    else:
        line = f"RENDEZVOUS={rendezvous}"
    options = f"--nnodes={nnodes} --nproc-per-node={nproc} --rdzv-backend=c10d \\\n"
    options += '  --rdzv-id=labkit --rdzv-endpoint="$RENDEZVOUS"'
    return _TORCHRUN.format(where=f"On each of the {nnodes} machines", rendezvous=line, options=options)


def _literals(fn: Callable[..., object], args: tuple[Any, ...]) -> str:
    """The arguments as source text; BadArgument if the function doesn't take them, or one isn't a literal."""
    try:
        inspect.signature(fn).bind(*args)
    except TypeError as error:
        raise BadArgument(f"{fn.__name__} can't be called with these {len(args)} arguments: {error}.") from error
    for arg in args:
        try:
            same = bool(ast.literal_eval(repr(arg)) == arg)
        except Exception:  # whatever the argument's own repr and == raise
            same = False
        if not same:
            raise BadArgument(
                "Expected arguments that can be written in a program (numbers, text, lists of them), "
                f"got {brief_repr(arg)}. Make it inside the function."
            )
    return ", ".join(map(repr, args))
