"""Daly's interval between checkpoints against a simulation of failures."""

import math
import random

import pytest

from trainplan.cluster import goodput as planned


def daly_interval_s(checkpoint, mtbf):
    return planned(1, mtbf / 3600, save_s=checkpoint).interval_s


def goodput(interval, checkpoint, mtbf, restart):
    """Share of the time that is work not lost (Daly 2006, equation 20)."""
    return interval / (mtbf * math.exp(restart / mtbf) * math.expm1((interval + checkpoint) / mtbf))


def lived(interval, checkpoint, mtbf, restart, work, seed):
    """Share of work in a run with exponential failures, event by event."""
    draw, clock, done = random.Random(seed), 0.0, 0.0
    fails = draw.expovariate(1 / mtbf)
    while done < work:
        if clock + interval + checkpoint <= fails:
            clock += interval + checkpoint
            done += interval
            continue
        clock = fails
        fails = clock + draw.expovariate(1 / mtbf)
        while fails < clock + restart:
            clock = fails
            fails = clock + draw.expovariate(1 / mtbf)
        clock += restart
    return done / clock


@pytest.mark.parametrize(("checkpoint", "mtbf", "restart"), [(60, 10_800, 300), (5, 600, 20), (300, 3600, 0)])
def test_no_interval_does_more_than_this_one(checkpoint, mtbf, restart):
    interval = daly_interval_s(checkpoint, mtbf)
    share = goodput(interval, checkpoint, mtbf, restart)
    simulated = lived(interval, checkpoint, mtbf, restart, work=4000 * mtbf, seed=1)
    assert share == pytest.approx(simulated, rel=0.02)
    best = max(goodput(interval * factor / 100, checkpoint, mtbf, restart) for factor in range(20, 500))
    assert share == pytest.approx(best, rel=1e-3)


def test_young_and_daly_agree_where_checkpoints_are_short():
    assert daly_interval_s(1, 1e6) == pytest.approx(math.sqrt(2e6), rel=0.001)
    assert daly_interval_s(100, 40) == 40
