"""Imported once by the server that ranks are forked from, so that no rank has to import
it again.
"""

import atexit
import importlib
import os
import shutil
import warnings
from multiprocessing import forkserver
from pathlib import Path

from ranks.system import adopt_orphans, end_descendants


def _tidy(server: int) -> None:
    """End the ranks and what they started, and remove multiprocessing's folder: a
    kernel that was killed can't.
    """
    # Private, and the only way to know its socket.
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if os.getpid() == server:
        end_descendants(server)
        if isinstance(address, str) and Path(address).parent.name.startswith("pymp-"):
            shutil.rmtree(Path(address).parent, ignore_errors=True)


# First of all, since a kernel can be killed while torch is imported.
if hasattr(os, "setpgid"):
    # Jupyter kills a kernel with its whole process group; the server then ends by
    # itself
    os.setpgid(0, 0)
atexit.register(_tidy, os.getpid())
adopt_orphans()
# an adopted orphan's
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
# torch's; nothing here needs it
warnings.filterwarnings("ignore", "Failed to initialize NumPy")

# Optimizers and DistributedDataParallel import torch._dynamo when first made, which
# takes seconds in each rank.
for name in (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.optim",
):
    importlib.import_module(name)
for name in ("packing", "inside.comm_trace", "inside.rank_groups", "inside.worker"):
    importlib.import_module(f"ranks.{name}")
