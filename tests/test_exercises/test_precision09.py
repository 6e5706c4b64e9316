"""Notebook 09's ways to train, on a machine whose hardware has bfloat16 and on one
where it is simulated.
"""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

import labkit as lab
from exercises.nb09 import casts, claim, formats, scaling
from labkit.measure import bench
from tests.helpers import code_cells, notebook_paths

(PATH,) = [path for path in notebook_paths() if path.name.startswith("09")]
WAYS = [
    "float32",
    "bfloat16, mixed",
    "float16, mixed, scaled",
    "bfloat16 only",
    "bfloat16 only, stochastic",
]


@pytest.fixture
def ways(monkeypatch, request):
    """What the notebook's cells define between the ceilings and the
    rows to be timed.
    """
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    rates = {"float32": 1e9, **request.param}
    monkeypatch.setattr(
        lab,
        "measure_ceilings",
        lambda: SimpleNamespace(matmul_flop_per_s=rates, remarks={}),
    )
    names = {
        "lab": lab,
        "torch": torch,
        "cross_entropy": cross_entropy,
        "machine": SimpleNamespace(device="cpu", gpus=()),
        "functools": functools,
        "formats": formats,
    }
    cells = code_cells(PATH)
    exec(next(cell for cell in cells if cell.startswith("def stochastic(")), names)
    first, last = (
        next(i for i, c in enumerate(cells) if w in c)
        for w in ("native = {", "timed = {")
    )
    for source in cells[first : last + 1]:
        if "lab.predict(" not in source:
            exec(source, names)  # the notebook's own code is what is tested
    return SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("ways", "timed"),
    [
        ({}, ["float32"]),
        ({"bfloat16": 0.9e9}, ["float32"]),  # emulated: it was timed, and is no faster
        ({"bfloat16": 2e9}, ["float32", "bfloat16, mixed"]),
        ({"bfloat16": 2e9, "tf32": 3e9}, ["float32", "TF32", "bfloat16, mixed"]),
    ],
    indirect=["ways"],
)
def test_only_what_the_hardware_has_is_timed(ways, timed):
    assert [name for name in ways.ways if name != "TF32"] == WAYS
    assert list(ways.timed) == timed


def test_its_stochastic_rounding_goes_to_a_neighbor_and_is_right_on_average():
    names = {"torch": torch}
    exec(
        next(cell for cell in code_cells(PATH) if cell.startswith("def stochastic(")),
        names,
    )
    torch.manual_seed(0)
    for value in (0.1, -0.1, 1.0 + 2**-9, 3e-39, -1e38):
        exact = torch.full((20_000,), value)
        rounded = names["stochastic"](exact)
        below, above = sorted({*rounded.tolist()})
        assert below < exact[0] < above
        assert torch.equal(rounded, rounded.bfloat16().float())
        share = (exact[0].double().item() - below) / (above - below)
        assert (rounded == above).double().mean().item() == pytest.approx(
            share, abs=0.02
        )
    special = torch.tensor([0.0, math.inf, -math.inf, 0.5])
    assert torch.equal(names["stochastic"](special), special)


def ratio(low, high):
    middle = (low + high) / 2
    return bench.Ratio("mixed", "float32", middle, low, high)


@pytest.mark.parametrize(
    ("gain", "memory", "keeps", "said"),
    [
        (ratio(1.5, 1.8), 0.6, True, True),
        (ratio(0.9, 1.2), 0.6, True, None),  # a null result is none
        (ratio(0.9, 1.0), 0.6, True, False),
        (ratio(1.5, 1.8), 1.0, True, False),
        (ratio(1.5, 1.8), 0.6, None, None),
        (ratio(0.9, 1.2), 0.6, False, False),
    ],
)
def test_mixed_precision_pays_only_where_all_three_are_shown(gain, memory, keeps, said):
    assert claim.pays(gain, memory, keeps) is said


def test_with_fewer_than_ten_seeds_nothing_is_judged_and_a_null_result_is_one():
    assert claim.one_pays([True], 9) is None
    assert claim.one_pays([], 10) is None
    assert claim.one_pays([None, True], 10) is True
    assert claim.one_pays([None, False], 10) == "not shown"
    assert claim.one_pays([False], 10) is False
    assert claim.masters_matter(False, True, 9) is None
    assert claim.masters_matter(False, True, 10) is True
    assert claim.masters_matter(True, None, 10) is False
    assert claim.masters_matter(None, False, 10) is False
    assert claim.masters_matter(False, None, 10) == "not shown"


def test_a_search_follows_the_scale_that_each_step_returns():
    images = torch.rand(12, 3, 32, 32)
    labels = torch.arange(12) % 10
    given = []

    def step(loss, optimizer, scale, good):
        given.append((scale, good))
        return scale / 2, good + 1

    powers = scaling.search(step, images, labels, steps=3, start=8.0)
    assert powers == [2, 1, 0]
    assert given == [(8, 0), (4, 1), (2, 2)]


def test_every_layer_sends_a_gradient():
    model = lab.models.SimpleCNN()
    images = torch.rand(4, 3, 32, 32)
    sent = scaling.sent_gradients(model, images, torch.arange(4))
    assert len(sent) == len([*model.features, *model.classifier])
    assert len(sent[0]) == 4 * 10  # of the logits
    again = scaling.sent_gradients(model, images, torch.arange(4))
    assert len(again) == len(sent), "no hook stays"


def test_autocast_on_a_cpu_casts_products_and_leaves_sums():
    rows = {name: dtypes for name, *dtypes in casts.results("cpu", torch.bfloat16).rows}
    assert rows["matmul"] == rows["convolution"] == ["bfloat16", "bfloat16"]
    assert rows["sum"] == rows["exp"] == ["float32", "bfloat16"]
    assert len(rows) == 9
