"""Run a training under torchrun, which starts all ranks again when one fails, and read
the log that it has kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import NamedTuple

from exercises.nb15.namespace_hosts import last_words, rank_environment
from exercises.nb15.rank_script import Scripts
from ranks.errors import RankFailed


class LoggedStep(NamedTuple):
    """How often the ranks had started again, seconds since torchrun was called, the
    step from 0, and its loss.
    """

    restart: int
    at_s: float
    step: int
    loss: float


def run(scripts: Scripts, timeout_s: float = 180.0) -> tuple[list[LoggedStep], float]:
    """Run torchrun.sh on this machine: the steps that rank 0 has printed, and the
    seconds from its call to its end.

    A rank prints "step", and then its rank, restart, Unix time, step and loss, in one
    write: ranks share the output. Raises RankFailed if torchrun fails or takes longer
    than `timeout_s`, and where there is no bash. Afterwards nothing runs any more.
    """
    if shutil.which("bash") is None:
        raise RankFailed("torchrun.sh needs bash, which isn't here.")
    start_s = time.time()
    with subprocess.Popen(
        ["bash", str(scripts.torchrun)],
        env=rank_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a notebook's Stop is for the kernel, which ends what it started
        start_new_session=True,
    ) as torchrun:
        try:
            output, _ = torchrun.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RankFailed(
                f"torchrun did not end within {timeout_s:g} s and was stopped."
            ) from error
        finally:
            # an agent that is told to end ends its ranks, which a killed one leaves
            torchrun.terminate()
    took_s = time.time() - start_s
    if torchrun.returncode:
        raise RankFailed(
            f"torchrun failed with exit status {torchrun.returncode}:"
            f" {last_words(output)}"
        )
    rows = re.findall(r"(?m)^step 0 (\d+) (\S+) (\d+) (\S+)$", output)
    steps = [
        LoggedStep(int(n), float(at) - start_s, int(step), float(loss))
        for n, at, step, loss in rows
    ]
    return steps, took_s
