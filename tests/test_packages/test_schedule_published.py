"""The simulation against what Qi et al. 2024 published of real and of calculated
pipelines.
"""

import dataclasses

import pytest

from exercises.nb14.replay import profile, published_errors
from tests.selection import sampled
from trainplan.schedule import simulate
from trainplan_published import table

pytestmark = pytest.mark.slow  # simulates published schedules

# Table 5: share of the longest rank's time that is idle, calculated by the authors with
# overlapped transfers.
BUBBLES = {
    ("1.5B", 24): {
        "1F1B": 0.2431,
        "ZB-H1": 0.1585,
        "ZB-H2": 0.1083,
        "ZB-1p": 0.1585,
        "ZB-2p": 0.0433,
    },
    ("1.5B", 32): {
        "1F1B": 0.1985,
        "ZB-H1": 0.1242,
        "ZB-H2": 0.0837,
        "ZB-1p": 0.1242,
        "ZB-2p": 0.0039,
    },
    ("28.3B", 96): {
        "1F1B": 0.2646,
        "ZB-H1": 0.1421,
        "ZB-H2": 0.0641,
        "ZB-1p": 0.1421,
        "ZB-2p": 0.0038,
    },
    ("28.3B", 128): {
        "1F1B": 0.2168,
        "ZB-H1": 0.1106,
        "ZB-H2": 0.0490,
        "ZB-1p": 0.1106,
        "ZB-2p": 0.0029,
    },
    ("28.3B", 256): {
        "1F1B": 0.1352,
        "ZB-H1": 0.0594,
        "ZB-H2": 0.0257,
        "ZB-1p": 0.0594,
        "ZB-2p": 0.0018,
    },
}
# Table 9: samples a second and GPU with few micro-batches, 1F1B and ZB-2p.
FEW = {
    "1.5B": {2: (3.56, 4.25), 4: (5.74, 6.92), 8: (8.26, 9.90)},
    "6.2B": {2: (1.04, 1.33), 4: (1.69, 2.16), 8: (2.45, 3.07)},
    "14.6B": {4: (0.39, 0.52), 8: (0.65, 0.85), 16: (0.95, 1.25)},
}


def profiles():
    found = {}
    for row in table("zero_bubble_times"):
        each = profile(row)
        found[each.model, each.microbatches] = each
    return found


def test_throughput_is_within_5_percent_on_average_and_10_everywhere():
    found = published_errors()
    assert len(found.rows) == 24
    assert {row.by for row in found.rows} == {"1F1B", "1F1B-I", "ZB-1p", "ZB-2p"}
    assert found.mean_error <= 0.05
    assert max(abs(row.error) for row in found.rows) <= 0.10
    assert abs(found.worst.error) == max(abs(row.error) for row in found.rows)
    assert str(found).startswith("Zero bubble, 24 runs: error ")


@pytest.mark.parametrize(
    ("setting", "schedule"),
    sampled([(s, name) for s, rates in BUBBLES.items() for name in rates], 8),
)
def test_bubble_rates_are_those_that_the_authors_calculated(setting, schedule):
    of = profiles()[setting]
    played = simulate(
        of.schedule(schedule),
        of.forward_s,
        of.input_s + of.weight_s,
        of.weight_s,
        of.transfer_s,
        kept=of.kept,
    )
    ideal_s = of.microbatches * (of.forward_s + of.input_s + of.weight_s)
    assert 1 - ideal_s / played.period_s == pytest.approx(
        BUBBLES[setting][schedule], abs=1e-4
    )


@pytest.mark.parametrize(
    ("model", "m"),
    sampled([(model, m) for model, rows in FEW.items() for m in rows], 3),
)
def test_pipelines_with_few_micro_batches_too(model, m):
    of = next(each for (name, _), each in profiles().items() if name == model)
    of = dataclasses.replace(of, microbatches=m)
    for schedule, samples_per_s in zip(("1F1B", "ZB-2p"), FEW[model][m], strict=True):
        assert of.samples_per_gpu_per_s(schedule) == pytest.approx(
            samples_per_s, rel=0.10
        )
