"""Record a step's kernels once as a CUDA graph, and launch all of them with one call from then on."""

from __future__ import annotations

from collections.abc import Callable

from labkit.arguments import check_function
from labkit.errors import LabError
from labkit.machine import machine

_WARM_UPS = 3


def captured(step: Callable[[], object]) -> Callable[[], object]:
    """A function that replays the kernels of `step`, as one CUDA graph, on the tensors that it used when recorded.

    `step` runs four times, three of them to warm up. It must read its inputs from tensors that stay in place (write
    new batches into them with copy_), wait for nothing on the GPU, and change nothing in Python that a later step
    needs: a replay runs no Python. An optimiser such as SGD may be inside, if its learning rate never changes.
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
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        raise LabError(
            f"The step can't be recorded as a CUDA graph: {str(error).splitlines()[0]} Take out what waits for the GPU "
            "(item(), print, a branch on a tensor) or what moves data from the CPU."
        ) from error
    return graph.replay
