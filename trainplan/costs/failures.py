"""Failures: how often to write a checkpoint.

Sources: Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17(9); Daly 2006, A higher
order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22(3).
"""

from __future__ import annotations

import math
from typing import Literal

from trainplan.arguments import Positive, checked


@checked
def checkpoint_interval_s(
    checkpoint_s: Positive, mtbf_s: Positive, *, formula: Literal["daly", "young"] = "daly"
) -> float:
    """Seconds of work between checkpoints, each taking `checkpoint_s`, that waste the least time.

    "young": sqrt(2 c M). "daly": sqrt(2 c M) (1 + sqrt(c/2M)/3 + c/18M) - c, and M itself once c >= 2 M (Daly 2006,
    equation 37). Raises BadArgument for times that aren't above zero, or another formula.
    """
    young = math.sqrt(2 * checkpoint_s * mtbf_s)
    if formula == "young":
        return young
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = checkpoint_s / (2 * mtbf_s)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s
