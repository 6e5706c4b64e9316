"""Write a notebook's function to files that run without it: under torchrun, Slurm,
Kubernetes or Ray Train.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, NamedTuple

from exercises.source_text import is_plain_function, with_imports
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.own_folder import writing
from labkit.core.parameters import Count, Number, Size, checked

_JOBS = Path(__file__).parent / "jobs"  # of each file one with @marks@
_NAMES = ("train.py", "torchrun.sh", "job.slurm", "jobset.yaml", "ray_train.py")
PORT = 29500  # torchrun's own default
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_RETURNED = re.compile(r"^rank (\d+) returned (.*)$", re.MULTILINE)


class Scripts(NamedTuple):
    """Where the files are: the program, and how torchrun, Slurm, Kubernetes (with
    JobSet) and Ray Train start it.
    """

    train: Path
    torchrun: Path
    slurm: Path
    jobset: Path
    ray: Path


@checked
def as_script(
    fn: Callable[..., object],
    folder: str | Path,
    *args: Any,
    nproc: Count,
    nnodes: Count = 1,
    rendezvous: str | None = None,
    hours: Annotated[float, Number(above=0, most=10_000)] = 1,
    restarts: Size = 0,
    gpus: bool = True,
) -> Scripts:
    """Write train.py and what starts it to `folder`; it does what `lab.launch(fn,
    nproc, *args)` does.

    train.py is the function with the imports of the modules that it uses; it calls it
    with `args`, and prints what each rank returned. torchrun.sh starts `nproc` ranks on
    one machine. With `nnodes` above 1, run it on each of them: they meet at
    `rendezvous`, "host:port" of one, or without it at $RENDEZVOUS. job.slurm,
    jobset.yaml and ray_train.py ask for `nnodes` machines with `nproc` GPUs each (with
    `gpus` False, for none), the first two for `hours`; they need no rendezvous. If a
    rank fails, all start again, up to `restarts` times: the function loads its last
    save itself. Raises BadArgument for a function that uses names of the notebook, and
    for arguments that can't be written as text; DataError where files can't be.

    Run these files only in a network of machines whose users you trust. torchrun's
    store listens on every network interface and has no password (--standalone too), and
    gloo and NCCL don't encrypt: whoever reaches their ports can read what ranks send,
    change it or join as a rank, and run code as you, since all_gather_object unpickles
    what it receives. A private network or a firewall is what keeps others out. On one
    machine `lab.launch` needs no such trust.
    """
    if not is_plain_function(fn):
        raise BadArgument(f"Expected a function made with def, got {brief_repr(fn)}.")
    imports, source = with_imports(
        fn, advice="Make it inside the function, or pass it as an argument."
    )
    marks = _meeting(nnodes, rendezvous)
    marks |= {
        "imports": imports,
        "source": source,
        "name": fn.__name__,
        "arguments": _literals(fn, args),
    }
    minutes = math.ceil(hours * 60)
    # Slurm reads HH:MM:SS
    marks |= {
        "time": f"{minutes // 60:02d}:{minutes % 60:02d}:00",
        "seconds": 60 * minutes,
    }
    marks |= {
        "nproc": nproc,
        "nnodes": nnodes,
        "ranks": nproc * nnodes,
        "restarts": restarts,
    }
    program = filled("train.py", gpus, marks)
    marks |= {
        "train": indent(program.rstrip(), " " * 4),
        "dns": _dns_name(fn),
        "port": PORT,
    }
    paths = Scripts(*(Path(folder, name) for name in _NAMES))
    for path in paths:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                filled(path.name, gpus, marks), encoding="utf-8", newline="\n"
            )
    return paths


@checked
def returned(output: str) -> Iterator[tuple[int, Any]]:
    """(rank, value) of each line in which train.py says what its function returned."""
    for rank, text in _RETURNED.findall(output):
        try:
            yield int(rank), ast.literal_eval(text)
        except (ValueError, SyntaxError):
            # not a literal, such as a tensor: keep its text
            yield int(rank), text


def _meeting(nnodes: int, rendezvous: str | None) -> dict[str, object]:
    """The marks of torchrun.sh that say where ranks meet."""
    endpoint = _ENDPOINT.fullmatch(rendezvous or "")
    # Strictly, since it becomes a part of a shell script.
    if rendezvous is not None and not (endpoint and 0 < int(endpoint[2]) < 65536):
        raise BadArgument(
            f"Expected rendezvous to be 'host:port', such as 'node1:{PORT}', got"
            f" {brief_repr(rendezvous)}."
        )
    if nnodes == 1:
        return {"where": "On this machine", "rendezvous": "", "meeting": "--standalone"}
    asked = (
        ': "${RENDEZVOUS:?set it to host:port of one of the machines, such as'
        f' node1:{PORT}}}"'
    )
    line = f"RENDEZVOUS={rendezvous}" if rendezvous else asked
    meeting = (
        f"--nnodes={nnodes} --rdzv-backend=c10d --rdzv-id=labkit"
        ' --rdzv-endpoint="$RENDEZVOUS"'
    )
    return {
        "where": f"On each of the {nnodes} machines",
        "rendezvous": line,
        "meeting": meeting,
    }


def filled(name: str, gpus: bool, marks: Mapping[str, object]) -> str:
    """A file of jobs/ with its @marks@ filled in, and without `gpus` none of the lines
    that ask for GPUs.
    """
    lines = (_JOBS / f"{name}.in").read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if gpus or "gpu" not in line)
    return re.sub(r"@(\w+)@", lambda match: str(marks[match[1]]), text)


def _dns_name(fn: Callable[..., object]) -> str:
    """A name of Kubernetes for the job: letters, digits and hyphens, short enough for
    what JobSet appends.
    """
    return "train-" + (
        re.sub(r"[^a-z0-9]+", "-", fn.__name__.lower())[:40].strip("-") or "job"
    )


def _literals(fn: Callable[..., object], args: tuple[Any, ...]) -> str:
    """The arguments as source text; BadArgument if the function doesn't take them, or
    one isn't a literal.
    """
    try:
        inspect.signature(fn).bind(*args)
    except TypeError as error:
        raise BadArgument(
            f"{fn.__name__} can't be called with these {len(args)} arguments: {error}."
        ) from error
    for arg in args:
        try:
            same = bool(ast.literal_eval(repr(arg)) == arg)
        except Exception:  # whatever the argument's own repr and == raise
            same = False
        if not same:
            raise BadArgument(
                "Expected arguments that can be written in a program (numbers, text,"
                f" lists of them), got {brief_repr(arg)}. Make it inside the function."
            )
    return ", ".join(map(repr, args))
