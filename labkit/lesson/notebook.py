"""Prepare the reader's notebook, and turn a memory error into one sentence, after which
the next cell works.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any

import psutil

from kerneltrace import check_numba
from labkit.core import results
from labkit.core.errors import LabError
from labkit.core.units import GIB, MIB, format_bytes
from labkit.lesson import unset_names
from labkit.measure.contention import CELLS
from labkit.measure.machine import Machine, give_back_gpu_memory, machine

# In the words of torch's allocators, of a GPU and of a CPU, and in NumPy's.
_REQUEST = re.compile(
    r"(?:[Tt]ried|Unable) to allocate ([\d.]+) (bytes|B|KiB|MiB|GiB|TiB|PiB|EiB)"
)
# After these every call of the GPU fails. Source: CUDA Runtime API,
# cudaErrorIllegalAddress and its neighbors.
_GPU_BROKEN = re.compile(
    r"(?i)cuda.*(illegal|misaligned|device-side assert|launch failure)"
)
_RESTART = (
    "A kernel on the GPU went wrong, and from now on every call of the GPU fails in"
    " this notebook. Restart the kernel (menu Kernel), and run the cells from the top."
    " The cell above may not be the one to blame: the GPU runs behind."
)
# JupyterLab breaks long lines of text between any two letters
_WHOLE_WORDS = (
    "<style>.jp-OutputArea-output.jp-OutputArea-output pre"
    "{word-break:normal;overflow-wrap:anywhere}</style>"
)
_SIZES = {
    "bytes": 1,
    "B": 1,
    "KiB": 2**10,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 2**40,
    "PiB": 2**50,
    "EiB": 2**60,
}


class OutOfMemory(LabError):
    """A cell asked for more memory than was free: how much, how much was free, and what
    to change.
    """


def shell() -> Any:
    """The notebook's shell, or None outside one."""
    # a notebook's kernel has loaded it; nothing else should
    ipython = sys.modules.get("IPython")
    running = ipython.get_ipython() if ipython else None
    is_notebook = getattr(running, "kernel", None) is not None
    return running if is_notebook else None


def attended() -> bool:
    """Whether somebody can answer a question: nbclient and nbval, where nobody can,
    send a cell that may not ask.
    """
    running = shell()
    if running is None:
        return False
    return bool(running.get_parent().get("content", {}).get("allow_stdin"))


def start() -> Machine:
    """Prepare a notebook, and return the machine, which shows its card.

    From here on memory errors are explained. In the ci profile torch uses one thread,
    so that the tests take the same time on a busy machine; cells that compare numbers
    of threads set their own. Each cell's time that other programs took is kept, for the
    numbers that it records. Long lines of text are broken between words. RuntimeError
    where numba and numba-cuda don't go together.
    """
    import torch

    check_numba()
    results.results().probe()
    # small launches are meant to be small here
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    if results.profile() != "full":
        torch.set_num_threads(1)
    if (running := shell()) is not None:
        running.set_custom_exc(
            (torch.OutOfMemoryError, MemoryError, RuntimeError, NameError), _explain
        )
        # a second time changes nothing
        running.events.register("pre_run_cell", CELLS.begin)
        running.events.register("post_run_cell", CELLS.end)
        _break_between_words()
    return machine()


def _break_between_words() -> None:
    """Put a style into the page, which the notebook keeps: long lines of text break
    between words.
    """
    from IPython.display import publish_display_data

    show: Any = publish_display_data
    show({"text/html": _WHOLE_WORDS, "text/plain": ""})


def asked_bytes(message: str) -> float | None:
    """Bytes that an allocator's error message says were asked for, or None when it is
    about something else.
    """
    request = _REQUEST.search(message)
    if request is None:
        return None
    number, unit = request.groups()
    return float(number) * _SIZES[unit]


def explanation(asked: float | None, free: float, device: str) -> str:
    """What happened and what to change, for `asked` (None: not known) and `free` bytes
    on a device.
    """
    amount = "more than there is" if asked is None else format_bytes(asked)
    return (
        f"Out of memory on {device}: the cell asked for {amount}, and"
        f" {format_bytes(free)} is free. Make the batch, the images or the model"
        " smaller, or use a smaller dtype such as torch.bfloat16, and run the cell"
        " again. What the cell held has been given back, so the next cell works."
    )


def _explain(
    self: Any,
    kind: type,
    error: BaseException,
    trace: TracebackType,
    tb_offset: Any = None,
) -> None:
    """IPython's handler: explains memory errors and unknown names; every other error is
    shown as it always is.
    """
    import torch

    if isinstance(error, NameError):
        unset_names.explain(self, kind, error, trace, tb_offset)
        return
    n_bytes = asked_bytes(str(error))
    is_cuda = isinstance(error, torch.OutOfMemoryError)
    if n_bytes is None and not is_cuda and not isinstance(error, MemoryError):
        if _GPU_BROKEN.search(str(error)):
            error.args = (f"{error}\n{_RESTART}",)
        self.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return
    if is_cuda:
        free, _ = torch.cuda.mem_get_info()
        text = explanation(n_bytes, free, "the GPU")
    else:
        free = psutil.virtual_memory().available
        text = explanation(n_bytes, free, "this machine")
    # the frames' locals hold the tensors that filled the memory
    traceback.clear_frames(trace)
    error.__traceback__ = None
    self.showtraceback((OutOfMemory, OutOfMemory(text), None))
    for name in ("last_exc", "last_value", "last_traceback"):
        if hasattr(sys, name):
            setattr(sys, name, None)
    gc.collect()
    give_back_gpu_memory()
