"""The small GPT of notebook 19: what its switches leave as it is, and
what they change.
"""

import math

import numpy as np
import pytest
import torch

from exercises.nb19 import gpt
from labkit.measure.machine import threads
from tests.helpers import check

SMALL = {
    "rows": 65,
    "layers": 2,
    "heads": 2,
    "width": 32,
    "context": 16,
    "device": "cpu",
}


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):  # more would wait for a busy core
        yield


def model_of(**switches):
    on = gpt.Switches(**SMALL | switches)
    torch.manual_seed(0)
    return on, gpt.new_model(on)


def rows_of(on, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(65, (6, on.context + 1), generator=draw)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_no_attention_changes_the_loss():
    losses = []
    for switches in ({}, {"one_call": True}, {"flex": True}):
        on, model = model_of(**switches)
        with torch.no_grad():
            losses.append(gpt.loss_of(model, rows_of(on)).item())
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)


def test_mup_changes_nothing_at_the_width_of_its_rate_and_shrinks_what_is_wider():
    (on, plain), (at, same), (narrow, wide) = (model_of(mup=mup) for mup in (0, 32, 8))
    rows = rows_of(on)
    with torch.no_grad():
        assert torch.equal(plain(rows[:, :-1]), same(rows[:, :-1]))
        assert wide(rows[:, :-1]).std() < plain(rows[:, :-1]).std() / 3
    for ours, theirs in zip(gpt.hidden(plain), gpt.hidden(wide), strict=True):
        assert theirs.std().item() == pytest.approx(ours.std().item() / 2, rel=1e-3)
    rates = [[group["lr"] for group in gpt.new_optimizers(each, one)[0].param_groups]
             for each, one in ((on, plain), (at, same), (narrow, wide))]  # fmt: skip
    assert rates == [[1e-3, 1e-3], [1e-3, 1e-3], [1e-3, 0.25e-3]]


def test_padding_changes_no_loss():
    on, model = model_of()
    short = rows_of(on)[:, :9]
    padded = torch.nn.functional.pad(short, (0, 5), value=-100)
    with torch.no_grad():
        assert gpt.loss_of(model, padded).item() == pytest.approx(
            gpt.loss_of(model, short).item(), abs=1e-6
        )


def test_a_rate_rises_and_falls():
    on, model = model_of(warmup=4, decay=10)
    optimizers = gpt.new_optimizers(on, model)
    (schedule,) = gpt.schedules(on, optimizers)
    seen = []
    for _ in range(12):
        seen.append(optimizers[0].param_groups[0]["lr"] / on.rate)
        optimizers[0].step()
        schedule.step()
    assert seen == pytest.approx(
        [0.25, 0.45, 0.6, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
    )


def on_either_side(gradient):
    """A tall matrix has its small square on the right."""
    x = gradient / (gradient.norm() + 1e-7)
    tall = gradient.shape[0] > gradient.shape[1]
    for _ in range(5):
        square = x.mT @ x if tall else x @ x.mT
        factor = -4.7750 * square + 2.0315 * square @ square
        x = 3.4445 * x + (x @ factor if tall else factor @ x)
    return x


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (
            "19.3",
            lambda loss, tokens, n_bytes: np.float32(
                loss * math.log2(math.e) / (n_bytes / tokens)
            ),
        ),
        ("19.4b", on_either_side),
        (
            "19.6",
            lambda w, n, d, t, b, each, rate: (
                w * each / rate + sum([2 * d * t * b * each] * n) / rate
            ),
        ),
    ],
)
def test_other_ways_that_are_right_pass(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
