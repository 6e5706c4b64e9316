"""The zero-bubble schedule that is built for given times, against what must hold for
any, on random times.
"""

import random

import pytest

from exercises.nb14.zero_bubble import zero_bubble
from trainplan.errors import ScheduleError
from trainplan.schedule import simulate, zb_h1, zb_h2


@pytest.mark.parametrize("seed", range(12))
def test_it_is_legal_within_its_limit_and_no_worse_than_the_handwritten(seed):
    rng = random.Random(seed)
    p = rng.randint(1, 8)
    m = rng.randint(1, 20)
    f, b, w = ([rng.uniform(0.2, 2) for _ in range(p)] for _ in range(3))
    c = rng.choice([0, 0.1, 0.5])
    limit = rng.choice([1, 1.5, p, 2 * p, 99])
    kept = rng.choice([0, 0.4, 1])
    order = zero_bubble(
        p,
        m,
        forward_s=f,
        input_s=b,
        weight_s=w,
        transfer_s=c,
        memory_limit=limit,
        kept=kept,
    )
    whole = [x + y for x, y in zip(b, w, strict=True)]
    played = simulate(order, f, whole, w, c, kept=kept)
    assert max(played.peak_activations) <= limit + 1e-9
    for other in (zb_h1, zb_h2):
        rival = simulate(other(p, m), f, whole, w, c, kept=kept)
        if max(rival.peak_activations) <= limit:
            assert played.period_s <= rival.period_s + 1e-9


def test_more_memory_leaves_no_bubble():
    one, two = (
        zero_bubble(8, 24, transfer_s=0.05, memory_limit=limit) for limit in (8, 16)
    )
    played = [simulate(order, 1.0, 2.0, transfer_s=0.05) for order in (one, two)]
    bubbles = [1 - sum(each.busy_s) / each.ranks / each.period_s for each in played]
    assert bubbles[0] > 0.08
    assert bubbles[1] < 0.02
    assert zero_bubble(8, 24, transfer_s=0.05) == one


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"memory_limit": 0.5}, "memory_limit to be a finite number of at least 1"),
        ({"transfer_s": -1}, "transfer_s"),
        ({"kept": 2}, "kept to be a finite number from 0 to 1"),
        ({"forward_s": [1, 2]}, "forward_s to be one number or 4"),
        ({"weight_s": -1}, "weight_s"),
    ],
)
def test_what_it_refuses(given, words):
    with pytest.raises(ScheduleError, match=words):
        zero_bubble(4, 8, **given)
