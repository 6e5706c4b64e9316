"""Failures: how often to write a checkpoint, and what share of the time is work that is not lost.

Sources: Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17(9); Daly 2006, A higher
order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22(3).
"""

from __future__ import annotations

import math

from labkit.core.arguments import check_number
from labkit.core.errors import BadArgument


def cluster_mtbf_s(device_mtbf_s: float, devices: int) -> float:
    """Mean seconds between failures of `devices` that each fail independently every `device_mtbf_s`."""
    check_number("device_mtbf_s", device_mtbf_s, above=0)
    check_number("devices", devices, least=1, whole=True)
    return device_mtbf_s / devices


def checkpoint_interval_s(checkpoint_s: float, mtbf_s: float, *, formula: str = "daly") -> float:
    """Seconds of work between checkpoints, each taking `checkpoint_s`, that waste the least time.

    "young": sqrt(2 c M). "daly": sqrt(2 c M) (1 + sqrt(c/2M)/3 + c/18M) - c, and M itself once c >= 2 M (Daly 2006,
    equation 37). Raises BadArgument for times that aren't above zero, or another formula.
    """
    check_number("checkpoint_s", checkpoint_s, above=0)
    check_number("mtbf_s", mtbf_s, above=0)
    young = math.sqrt(2 * checkpoint_s * mtbf_s)
    if formula == "young":
        return young
    if formula != "daly":
        raise BadArgument(f"Expected formula to be 'daly' or 'young', got {formula!r}.")
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = checkpoint_s / (2 * mtbf_s)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def goodput(interval_s: float, checkpoint_s: float, mtbf_s: float, restart_s: float = 0.0) -> float:
    """Share of the time, 0 to 1, that is work not lost, with a checkpoint every `interval_s` of work.

    interval / (M e^(restart/M) (e^((interval + checkpoint)/M) - 1)): failures come at random (exponential), also during
    checkpoints and restarts, and each loses the work since the last checkpoint. Source: Daly 2006, equation 20.
    """
    for name, value in (("interval_s", interval_s), ("mtbf_s", mtbf_s)):
        check_number(name, value, above=0)
    for name, value in (("checkpoint_s", checkpoint_s), ("restart_s", restart_s)):
        check_number(name, value, least=0)
    exponent = (interval_s + checkpoint_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 700:  # exp would overflow a float; no work ever gets through
        return 0.0
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent))
