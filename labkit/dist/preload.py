"""Imported once by the server that ranks are forked from, so that no rank has to import it again."""

import atexit
import os
import shutil
from multiprocessing import forkserver
from pathlib import Path

import torch._dynamo  # optimisers and DistributedDataParallel import it when first made: seconds in each rank
import torch.distributed.fsdp
import torch.distributed.optim
import torch.nn
import torch.optim  # noqa: F401

from labkit.dist import comm_trace, packing, standin, worker  # noqa: F401


def _tidy(server: int) -> None:
    """Remove the server's socket and its folder, which a kernel that was killed can't."""
    # Private, and the only way to know its socket.
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if os.getpid() == server and isinstance(address, str) and Path(address).parent.name.startswith("pymp-"):
        shutil.rmtree(Path(address).parent, ignore_errors=True)


if hasattr(os, "setpgid"):
    os.setpgid(0, 0)  # Jupyter kills a kernel with its whole process group; the server then ends by itself
atexit.register(_tidy, os.getpid())
