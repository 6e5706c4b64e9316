"""Failures: how often to write a checkpoint, and what share of the time is work that is not lost.

Sources: Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17(9); Daly 2006, A higher
order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22(3).
"""

from __future__ import annotations

import math
from typing import Literal

from labkit.core.parameters import Count, NonNegative, Positive, checked


@checked
def cluster_mtbf_s(device_mtbf_s: Positive, devices: Count) -> float:
    """Mean seconds between failures of `devices` that each fail independently every `device_mtbf_s`."""
    return device_mtbf_s / devices


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


@checked
def goodput(interval_s: Positive, checkpoint_s: NonNegative, mtbf_s: Positive, restart_s: NonNegative = 0.0) -> float:
    """Share of the time, 0 to 1, that is work not lost, with a checkpoint every `interval_s` of work.

    interval / (M e^(restart/M) (e^((interval + checkpoint)/M) - 1)): failures come at random (exponential), also during
    checkpoints and restarts, and each loses the work since the last checkpoint. Source: Daly 2006, equation 20.
    """
    exponent = (interval_s + checkpoint_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 700:  # exp would overflow a float; no work ever gets through
        return 0.0
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent))
