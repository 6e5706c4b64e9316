"""Notebook 16's script, from its own cells: each technique trains, and changes what it
says.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import labkit
from exercises.nb16 import changes, pictures, search_budget
from labkit.lesson.notebook_files import tagged_cells
from labkit.measure.machine import machine
from tests.selection import sampled

NAMES = tagged_cells(
    "16", "script", lab=labkit, machine=machine(), best=search_budget.RATES, length=8
)


@pytest.mark.parametrize("technique", sampled(list(NAMES["techniques"]), 5))
def test_the_script_trains_with_each_technique(technique):
    # several would wait for a busy core
    switches = NAMES["switched"]([technique]) | {"threads": 1}
    accuracy, images = NAMES["train"](0, **switches)
    assert 0 <= accuracy <= 1
    assert images in [n * len(NAMES["paths"]) for n in range(1, NAMES["patience"] + 1)]


def settings(**switches):
    return SimpleNamespace(**(NAMES["article"] | switches))


@pytest.mark.parametrize(
    "switches", [{}, {"cached": True}, {"cached": True, "reduced": True}]
)
def test_an_epoch_has_every_image_once(switches):
    torch.manual_seed(0)
    batches = [
        labels for _, labels in next(NAMES["epochs"](settings(batch=4, **switches)))
    ]
    assert {len(labels) for labels in batches} == {4}
    assert sorted(torch.cat(batches).tolist()) == sorted(
        int(path.parent.name) for path in NAMES["paths"]
    )


def test_two_ranks_share_the_images():
    shares = [
        NAMES["epochs"](settings(cached=True, batch=16, rank=rank, ranks=2))
        for rank in range(2)
    ]
    sizes = [[len(labels) for _, labels in next(share)] for share in shares]
    assert sizes == [[8] * (len(NAMES["paths"]) // 16)] * 2


def test_a_training_ends_after_epochs_however_slow_the_machine(monkeypatch):
    monkeypatch.setitem(NAMES, "target", 2.0)  # is never reached
    _, images = NAMES["train"](0, cached=True, batch=16)
    assert images == NAMES["patience"] * len(NAMES["paths"])


def test_whitened_filters_see_patches_without_correlation():
    images = pictures.painted(torch.rand(256, 1, 24, 24), seed=0)
    layer = nn.Conv2d(3, 16, 3)
    changes.whiten(layer, images)
    # (16, patches)
    seen = nn.functional.conv2d(images, layer.weight).transpose(0, 1).flatten(1)
    assert torch.allclose(seen[:8], -seen[8:], atol=1e-4)
    assert torch.allclose(torch.corrcoef(seen[:8]), torch.eye(8), atol=0.01)


def test_an_identity_convolution_passes_its_input_on():
    run = SimpleNamespace(model=NAMES["resnet"]())
    changes.identity(run)
    *_, last = (part for part in run.model.modules() if isinstance(part, nn.Conv2d))
    x = torch.rand(2, last.in_channels, 4, 4)
    assert torch.allclose(last(x)[:, : last.in_channels], x)


def test_a_cycle_rises_to_twice_the_rate_ends_near_zero_and_stays_there():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    run = SimpleNamespace(
        on=settings(batch=4, rate=0.1),
        paths=NAMES["paths"],
        optimizer=optimizer,
        after=[],
    )
    changes.cycle(run, length=2)
    rates = []
    for _ in range(3 * len(NAMES["paths"]) // 4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        run.after[0]()
    assert max(rates) == pytest.approx(0.2, rel=0.1)
    assert rates[-1] == min(rates) < 1e-3


def test_averaged_weights_follow_the_model_and_are_what_is_judged():
    run = SimpleNamespace(model=nn.Linear(1, 1, bias=False), after=[])
    changes.averaged(run)
    for constant in (nn.init.zeros_, nn.init.ones_):
        constant(run.model.weight)
        run.after[0]()
    assert run.judged.weight.item() == pytest.approx(0.1)


def test_rates_are_tuned_with_seeds_that_are_not_raced(monkeypatch):
    seen = []
    monkeypatch.setitem(
        NAMES, "train", lambda seed, **switches: (seen.append(seed), (1.0, 10))[1]
    )
    sweep = NAMES["swept"](batch=32)
    assert min(seen) >= 10_000
    assert set(sweep.results) == {0.001}


def test_views_of_an_image_are_itself_and_two_that_are_moved():
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 2, 2] = 1
    assert changes.Views(nn.Identity())(image)[0, 0].nonzero().tolist() == [
        [1, 1],
        [2, 2],
        [3, 3],
    ]
