"""Record a step's kernels once as a CUDA graph, and launch all of them with one call from then on."""

from __future__ import annotations

import functools
from collections.abc import Callable

from labkit.core.arguments import check_function
from labkit.core.errors import LabError
from labkit.measure.machine import machine

_WARM_UPS = 3


def captured(step: Callable[[], object]) -> Callable[[], object]:
    """A function that replays the kernels of `step`, as one CUDA graph, on the tensors that it used when recorded.

    `step` runs four times, three of them to warm up. It must read its inputs from tensors that stay in place (write
    new batches into them with copy_), wait for nothing on the GPU, and change nothing in Python that a later step
    needs: a replay runs no Python. An optimiser such as SGD may be inside, if its learning rate never changes.
    The fourth run is recorded and computes nothing. What the function returns is always None: a loss that is wanted
    has to be copied by `step` into a tensor of yours. The step, and with it what it uses, is kept as long as the
    function.
    Raises LabError without a CUDA GPU, and where the step can't be recorded. Source: PyTorch documentation,
    "CUDA semantics", CUDA Graphs.
    """
    check_function("step", step)
    if not machine().gpus:
        raise LabError("Expected a CUDA GPU to record a CUDA graph on, got none. Guard the call with machine.gpus.")
    import torch

    stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream  # untyped in some versions
    side = stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # lazy set-up, as of cuBLAS, must not fall into the recording
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph, usual = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        torch.cuda.set_stream(usual)  # a recording that can't be ended leaves its own stream behind
        # What broke the recording; ending it only says that it was broken.
        cause = error.__context__ if isinstance(error.__context__, RuntimeError) else error
        reason = str(cause).partition("\n")[0].rstrip(".")
        raise LabError(
            f"The step can't be recorded as a CUDA graph: {reason}. Take out what waits for the GPU "
            "(item(), print, a branch on a tensor) or what moves data from the CPU."
        ) from error
    return functools.partial(_replay, graph.replay, step)


def _replay(replay: Callable[[], None], step: Callable[[], object]) -> None:
    """Launch what was recorded. The graph holds addresses alone, so `step` is carried along to keep its tensors."""
    replay()
