"""Notebook 16's script, from its own cells: each technique trains, and changes what it says."""

from types import SimpleNamespace

import pytest
import torch

import labkit
from labkit.lesson.notebook_files import tagged_cells
from labkit.measure.machine import machine
from tests.selection import sampled

NAMES = tagged_cells("16", "script", lab=labkit, machine=machine())


@pytest.mark.parametrize("technique", sampled(list(NAMES["techniques"]), 5))
def test_the_script_trains_with_each_technique(technique):
    switches = NAMES["switched"]([technique]) | {"threads": 1}  # several would wait for a busy core
    assert 0 <= NAMES["train"](0, **switches) <= 1


def settings(**switches):
    return SimpleNamespace(**(NAMES["article"] | switches))


@pytest.mark.parametrize("switches", [{}, {"cached": True}, {"workers": 2}, {"cached": True, "reduced": True}])
def test_an_epoch_has_every_image_once(switches):
    torch.manual_seed(0)
    series = NAMES["epochs"](settings(batch=16, **switches))
    labels = torch.cat([labels for _, labels in next(series)])
    series.close()
    assert sorted(labels.tolist()) == sorted(int(path.parent.name) for path in NAMES["paths"])


def test_two_ranks_share_the_images():
    shares = [NAMES["epochs"](settings(cached=True, batch=16, rank=rank, ranks=2)) for rank in range(2)]
    sizes = [[len(labels) for _, labels in next(share)] for share in shares]
    assert [max(share) for share in sizes] == [8, 8]
    assert sum(map(sum, sizes)) == len(NAMES["paths"])


def test_pooling_before_relu_is_the_same_network():
    models = []
    for first in (False, True):
        torch.manual_seed(0)
        models.append(NAMES["new_model"](settings(pool_first=first)))
    images = torch.rand(4, 3, 32, 32)
    assert torch.allclose(*(model(images) for model in models))


def test_a_later_technique_overrules_an_earlier_one():
    assert NAMES["switched"](["decode once", "two workers"]) == {"workers": 0, "cached": True}
