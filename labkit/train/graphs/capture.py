"""Record a step's kernels once as a CUDA graph, and launch all of them with one call from then on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from labkit.core.errors import LabError
from labkit.core.parameters import checked
from labkit.measure.machine import machine

_WARM_UPS = 3  # what torch.cuda.make_graphed_callables does by default


@checked
def captured(step: Callable[[], object]) -> Callable[[], object]:
    """Return a function that replays the kernels of `step` as one CUDA graph, on the tensors of the recording.

    `step` runs four times, three of them to warm up; the fourth is recorded and computes nothing. It must read its
    inputs from tensors that stay in place (write new batches into them with copy_), wait for nothing on the GPU, and
    change nothing in Python that a later step needs: a replay runs no Python. An optimizer such as SGD may be inside if
    its learning rate never changes. The function returns None: `step` has to copy a loss that is wanted into a tensor
    of yours. The function keeps `step`, and with it all tensors that the step uses.
    Raises LabError without a CUDA GPU, and where the step can't be recorded.
    Source: PyTorch documentation, "CUDA semantics", CUDA Graphs.
    """
    if not machine().gpus:
        raise LabError("Expected a CUDA GPU to record a CUDA graph on, got none. Guard the call with machine.gpus.")
    stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream  # untyped in some versions
    side = stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # lazy initialization, as of cuBLAS, must not be part of the recording
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph, usual = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        torch.cuda.set_stream(usual)  # a recording that can't be ended leaves its own stream behind
        # What broke the recording; the error of ending it only says that it was broken.
        cause = error.__context__ if isinstance(error.__context__, RuntimeError) else error
        reason = str(cause).partition("\n")[0].rstrip(".")
        raise LabError(
            f"The step can't be recorded as a CUDA graph: {reason}. Take out what waits for the GPU "
            "(item(), print, a branch on a tensor) or what moves data from the CPU."
        ) from error

    def replay(_keep: object = step) -> None:  # a graph holds addresses alone: without the step its tensors would go
        graph.replay()

    return replay
