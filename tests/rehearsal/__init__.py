"""A rehearsal of what runs on a GPU: the notebooks on a pretend GPU, whose every result
is marked as simulated.

Nothing but tests can switch it on: it lies outside labkit, and starts with the
environment of `environment()` alone. `device.cpp` is a "cuda" device whose memory is
main memory; `torch_cuda.py` is what a CUDA build has in torch._C, so that torch's own
Python does the rest; `libraries.py` turns numba's launches into traces, gives the
profiler its GPU events and NCCL its transport; `stand_ins` has a CuPy over NumPy.
Types, shapes, devices and branches are real; no time is, nor what only a GPU does:
overlap, throttling, faults of the GPU, the code that inductor writes for it.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GIB = 2**30
CARDS = {
    # name, compute capability, bytes, multiprocessors, L2 cache, shared memory that a
    # block may opt in to
    "T4": ("Tesla T4", (7, 5), 15 * GIB, 40, 4 << 20, 64 << 10),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 79 * GIB, 132, 50 << 20, 227 << 10),
    "8GB": ("NVIDIA GeForce RTX 4060", (8, 9), 8188 << 20, 24, 24 << 20, 99 << 10),
    "laptop": (
        "NVIDIA GeForce RTX 3050 Laptop GPU",
        (8, 6),
        4 * GIB,
        16,
        2 << 20,
        99 << 10,
    ),
    "P100": ("Tesla P100-PCIE-16GB", (6, 0), 16 * GIB, 56, 4 << 20, 48 << 10),
}
"""Source: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability", and the data sheets.
"""


def library() -> Path:
    """device.cpp compiled for this torch, in build/."""
    import torch

    home = Path(torch.__file__).parent
    text = (
        HERE / "device.cpp"
    ).read_bytes() + f"{torch.__version__} {sys.version}".encode()
    path = ROOT / "build" / "rehearsal" / f"{hashlib.sha1(text).hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        include = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include"]
        link = [f"-L{home}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home}/lib"]
        flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-w"]
        subprocess.run(
            [
                "g++",
                *flags,
                *include,
                str(HERE / "device.cpp"),
                "-o",
                str(written),
                *link,
            ],
            check=True,
        )
        written.replace(path)
    return path


def environment(
    home: Path, card: str = "T4", gpus: int = 1, without: str = ""
) -> dict[str, str]:
    """The environment of a process with `gpus` pretend GPUs, whose results go to
    `home`.

    `without` names what the machine lacks, of "cupti" (events of the GPU), "cupy",
    "triton", "numba" (its CUDA), "new driver" (one that knows the compilers' PTX),
    "shm" (room for NCCL in /dev/shm).
    """
    return os.environ | {
        "REHEARSAL_CARD": card,
        "REHEARSAL_GPUS": str(gpus),
        "REHEARSAL_BYTES": str(CARDS[card][2]),
        "REHEARSAL_CAPABILITY": "{}{}".format(*CARDS[card][1]),
        "REHEARSAL_WITHOUT": without,
        "REHEARSAL_LIBRARY": str(library()),
        "PYTHONPATH": os.pathsep.join(
            map(str, (HERE / "startup", HERE / "stand_ins", ROOT))
        ),
        "LABKIT_HOME": str(home),
        # no turns: notebooks are run side by side
        "LABKIT_TURNS": str(home / "missing"),
        "LABKIT_PROFILE": os.environ.get("LABKIT_PROFILE", "ci"),
    }
