"""What NCCL says in a container with a small /dev/shm, and what the launch's message
adds.
"""

import pytest

from ranks.launcher import rank_failures
from ranks.launcher.coordinator import Failure, RankState

# The words of torch 2.6 and NCCL 2.21.5: github.com/hiyouga/LlamaFactory/issues/7233.
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in:"
    " /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error"
    " (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError:"
    " System call (e.g. socket, malloc) or external library call failed or device"
    " error. \nLast error:\n"
)
SEGMENT = (
    "Error while creating shared memory segment /dev/shm/nccl-LeXlEJ (size 9637888)"
)


@pytest.mark.parametrize(
    ("last", "advised"),
    [(SEGMENT, True), ("Call to connect failed: Connection timed out", False)],
)
def test_a_small_shared_memory_is_told_with_what_to_do(last, advised):
    states = [
        RankState(rank, None, failure=Failure(1.0 + rank, NCCL + last))
        for rank in range(2)
    ]
    said = rank_failures.explain(states, 60.0, "").splitlines()
    assert said[0].startswith(
        "rank 0 failed first, 1.00 s after the start:"
        " torch.distributed.DistBackendError: NCCL error"
    )
    for line in said:
        for way in (
            "/dev/shm is too small for NCCL",
            "--shm-size=1g",
            "--ipc=host",
            "NCCL_SHM_DISABLE=1",
        ):
            assert (way in line) == advised
